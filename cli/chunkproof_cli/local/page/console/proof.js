// Proof: the stored text of a chunk beside its original, aligned by line, with every difference named.

import { call } from "./api.js";
import { go } from "./console.js";
import { code, describe, dropZone, empty, h, ms, plural, problem, say, utf8, visible } from "./dom.js";

// An alignment takes the product of both lengths; beyond this, lines are compared one by one.
const MOST_CELLS = 4_000_000;
// The pasted original is no part of the address: it may be long, or secret.
let original = null;
let original256 = "";

/** Align two sequences by their longest common subsequence: [left, right] with null where one has nothing. */
export function align(left, right) {
  let start = 0;
  while (start < left.length && start < right.length && left[start] === right[start]) start += 1;
  let end = 0;
  while (end < left.length - start && end < right.length - start
    && left[left.length - 1 - end] === right[right.length - 1 - end]) end += 1;
  const a = left.slice(start, left.length - end);
  const b = right.slice(start, right.length - end);
  const same = (part) => part.map((item) => [item, item]);
  return [...same(left.slice(0, start)), ...alignMiddle(a, b), ...same(end ? left.slice(-end) : [])];
}

function alignMiddle(a, b) {
  if (!a.length || !b.length || a.length * b.length > MOST_CELLS) {
    return Array.from({ length: Math.max(a.length, b.length) }, (_, index) => [a[index] ?? null, b[index] ?? null]);
  }
  const width = b.length + 1;
  const longest = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      longest[i * width + j] = a[i] === b[j] ? longest[(i + 1) * width + j + 1] + 1
        : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const pairs = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) pairs.push([a[i++], b[j++]]);
    else if (j >= b.length || (i < a.length
      && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) pairs.push([a[i++], null]);
    else pairs.push([null, b[j++]]);
  }
  return pairs;
}

/** Put lines that were replaced beside each other. */
function pairLines(pairs) {
  const rows = [];
  let [removed, added] = [[], []];
  const flush = () => {
    for (let index = 0; index < Math.max(removed.length, added.length); index += 1) rows.push([removed[index] ?? null,
      added[index] ?? null]);
    [removed, added] = [[], []];
  };
  for (const [left, right] of pairs) {
    if (left !== null && right !== null && left === right) { flush(); rows.push([left, right]); continue; }
    if (left !== null) removed.push(left);
    if (right !== null) added.push(right);
  }
  flush();
  return rows;
}

/** Lines with the character that ends them: a changed line end is a change too. */
export const splitLines = (text) => text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
// A word, one space, or one other character with what combines with it.
const words = (line) => line.match(/[\p{L}\p{N}_]+|\p{M}|[^\p{L}\p{N}_\p{M}]/gu) ?? [];

function side(pieces, tag, word) {
  return pieces.map(([text, changed]) => (changed
    ? h(tag, { title: `${word}: ${[...text].slice(0, 8).map(describe).join("\n")}` }, ...named(text))
    : visible(text.replace(/\n$/, ""))));
}

/** A changed piece: what cannot be seen, or looks like nothing, has its name. */
const named = (text) => [...text].map((character) => (character === "\n" || character === "\t" || character === " "
  ? h("span", { class: "ch", title: describe(character) }, { "\n": "LF", "\t": "TAB", " ": "SP" }[character])
  : visible(character, { all: true }))).flat();

function merge(pieces) {
  const merged = [];
  for (const [text, changed] of pieces) {
    if (merged.length && merged.at(-1)[1] === changed) merged.at(-1)[0] += text;
    else merged.push([text, changed]);
  }
  return merged;
}

/** The rows of both texts; long runs of equal lines are folded. */
export function compareTexts(left, right) {
  const rows = pairLines(align(splitLines(left), splitLines(right)));
  let [leftLine, rightLine] = [0, 0];
  const drawn = rows.map(([a, b]) => {
    if (a !== null) leftLine += 1;
    if (b !== null) rightLine += 1;
    const equal = a === b;
    const pairs = equal || a === null || b === null ? null : align(words(a), words(b));
    const left = pairs ? merge(pairs.filter(([one]) => one !== null).map(([one, other]) => [one, other === null
      || one !== other])) : [[a ?? "", !equal]];
    const right = pairs ? merge(pairs.filter(([, one]) => one !== null).map(([other, one]) => [one, other === null
      || one !== other])) : [[b ?? "", !equal]];
    return { equal, row: h("tr", { class: equal ? null : "changed" },
      h("td", { class: "line" }, a === null ? "" : String(leftLine)),
      h("td", { class: "was" }, a === null ? h("span", { class: "dim" }, "no such line")
        : side(left, "del", "Only in the original")),
      h("td", { class: "line" }, b === null ? "" : String(rightLine)),
      h("td", { class: "is" }, b === null ? h("span", { class: "dim" }, "no such line")
        : side(right, "ins", "Only in the stored text"))) };
  });
  return fold(drawn);
}

function fold(drawn) {
  const near = new Set();
  drawn.forEach(({ equal }, index) => { if (!equal) for (let at = index - 3; at <= index + 3; at += 1) near.add(at); });
  const rows = [];
  let hidden = 0;
  const flush = () => { if (hidden) rows.push(h("tr", { class: "folded" },
    h("td", { colspan: "4" }, `${plural(hidden, "equal line")}`))); hidden = 0; };
  drawn.forEach(({ row }, index) => {
    if (drawn.length <= 40 || near.has(index)) { flush(); rows.push(row); } else hidden += 1;
  });
  flush();
  return rows;
}

const sign = (passed) => (passed === true ? h("span", { class: "good" }, "✓ passed") : passed === false
  ? h("span", { class: "bad" }, "✗ failed") : h("span", { class: "dim" }, "– not applicable"));

async function sha256(text) {
  if (!crypto.subtle) return null;
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return [...new Uint8Array(hash)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function verdict(result) {
  const { mismatch } = result;
  const compared = result.original_text !== null;
  const own = await sha256(result.stored_text);
  const kind = mismatch?.kind.replaceAll("_", " ");
  const at = mismatch?.first_difference;
  return [h("section", { class: `banner ${result.matches && result.validation_passed ? "good" : "bad"}` },
    h("h2", {}, result.matches ? (result.validation_passed ? "✓ Stored exactly as the original"
      : "✗ The text matches, another check failed") : kind === "different" ? "✗ Differs from the original"
      : `✗ Differs: ${kind}`),
    h("p", {}, result.matches ? (compared ? "Both texts are the same, byte for byte."
      : "The text fits what is known of its original.") : h("span", {}, ...visible(result.mismatch_details))),
    at && h("p", {},
      `First difference: line ${at.line}, column ${at.column}; byte ${at.byte}, character ${at.char} from 0.`)),
  compared && !result.matches && h("div", { class: "scroll", tabindex: "0", role: "region",
    "aria-label": "Both texts" }, h("table", { class: "diff" },
    h("caption", {}, h("del", {}, "struck, red"), " is only in the original; ", h("ins", {}, "underlined, green"),
      " only in the stored text. Hover for code points and bytes."),
    h("thead", {}, h("tr", {}, h("th", { scope: "col", class: "line" }, h("span", { class: "hidden" }, "Line")),
      h("th", { scope: "col" }, "Original"), h("th", { scope: "col", class: "line" },
      h("span", { class: "hidden" }, "Line")), h("th", { scope: "col" }, "Stored"))),
    h("tbody", {}, compareTexts(result.original_text, result.stored_text)))),
  (!compared || result.matches) && [h("h3", {}, "Stored text"),
    h("p", { class: "text stored" }, ...visible(result.stored_text, { all: false }))],
  h("div", { class: "pair" },
    h("section", {}, h("h3", {}, "Checks"), h("table", {}, h("caption", { class: "hidden" }, "Checks"),
      h("tbody", {}, result.checks.map((check) => h("tr", {},
      h("th", { scope: "row" }, check.name.replaceAll("_", " ")),
        h("td", {}, sign(check.passed), check.details && h("div", { class: "dim" }, ...visible(check.details)))))))),
    h("section", {}, h("h3", {}, "SHA-256, the hash that was compared"), h("dl", { class: "hashes" },
      h("dt", {}, "stored"), h("dd", { class: "mono" }, mismatch?.stored_sha256 ?? own ?? "–"),
      (mismatch || compared) && [h("dt", {}, "original"),
        h("dd", { class: "mono" }, mismatch?.original_sha256 ?? own ?? "–")],
      h("dt", {}, "bytes"), h("dd", {}, mismatch
        ? `${plural(mismatch.stored_bytes, "byte")} stored${mismatch.original_bytes === null ? "" : `, ${plural(mismatch.original_bytes, "byte")} in the original`}` : plural(utf8(result.stored_text).split(" ").length, "byte")),
      own && mismatch && [h("dt", {}, "checked here"),
        h("dd", {}, own === mismatch.stored_sha256 ? h("span", { class: "good" },
        "✓ this browser computed the same hash of the stored text")
        : h("span", { class: "bad" }, "✗ this browser computed another hash"))]),
    h("p", { class: "dim" }, `Point ${result.point_id ?? "–"}, read in ${ms(result.retrieval_time_ms)}.`)))];
}

const quote = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

export async function render(context) {
  const id = context.params.get("id") ?? "";
  const idField = h("input", { type: "text", id: "chunk", value: id, required: true,
    placeholder: "chunk id, point id or the payload's own id" });
  const text = h("textarea", { id: "original", rows: "7", spellcheck: "false",
    placeholder: "Paste the original text. Leave it empty to check the stored hash only.", value: original ?? "" });
  const hash = h("input", { type: "text", id: "sha", class: "mono", value: original256,
    placeholder: "or its SHA-256, 64 hexadecimal digits", spellcheck: "false" });
  const submit = () => {
    // A text area changes line ends: what was read from a file is sent as it was, unless it is edited.
    if ((original ?? "").replace(/\r\n?/g, "\n") !== text.value) original = text.value === "" ? null : text.value;
    original256 = hash.value.trim();
    go("proof", { id: idField.value.trim() });
  };
  const drop = dropZone("Drop a file, or choose one", async ([file]) => {
    original = new TextDecoder("utf-8", { ignoreBOM: true }).decode(await file.arrayBuffer());
    original256 = "";
    text.value = original;
    say(`${file.name} is read`);
    if (idField.value.trim()) go("proof", { id: idField.value.trim() });
  }, { multiple: false });
  const form = h("form", { class: "prove", onsubmit: (event) => { event.preventDefault(); submit(); } },
    h("div", {}, h("label", { for: "chunk" }, "Chunk"), idField, h("label", { for: "sha" }, "SHA-256 of the original"),
      hash, drop, h("button", {}, "Prove")),
    h("div", {}, h("label", { for: "original" }, "Original"), text));
  if (!id) return context.put(h("h2", {}, "Is it stored as it was written?"), form,
    empty("Every byte counts", "Name a chunk and paste its original, or press p on a search result."));
  const body = { chunk_id: id, collection: context.collection };
  if (original !== null) body.original_text = original;
  else if (original256) body.original_sha256 = original256;
  let shown;
  try {
    const { data } = await call("POST", "/validate-chunk", body);
    shown = await verdict(data);
    say(data.matches ? "The stored text matches" : "The stored text differs");
  } catch (error) {
    if (!error.messages) throw error;
    shown = problem(error);
  }
  const command = `chunkproof validate ${quote(id)} --collection ${quote(context.collection)}${original === null ? "" : " --original FILE"}`;
  return context.put(h("h2", {}, ...visible(id)), form, shown,
    h("details", {}, h("summary", {}, "The same as a command"), code(command, "Command")));
}

export function key(pressed) {
  if (pressed !== "b") return false;
  go("search");
  return true;
}
