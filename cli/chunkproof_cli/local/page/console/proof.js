// Proof: the stored text of a chunk beside its original, aligned by line, with every difference named.

import { argument, call, shell } from "./api.js";
import { go } from "./console.js";
import { code, describe, dropZone, empty, h, ms, plural, problem, say, show, svg, table, utf8, visible } from "./dom.js";

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

const SIDES = [["was", "del", "Only in the original"], ["is", "ins", "Only in the stored text"]];
/** The rows of both texts; long runs of equal lines are folded. */
export function compareTexts(left, right) {
  const lines = [0, 0];
  return fold(pairLines(align(splitLines(left), splitLines(right))).map((pair) => {
    const equal = pair[0] === pair[1];
    const pairs = equal || pair.includes(null) ? null : align(words(pair[0]), words(pair[1]));
    const cells = SIDES.map(([name, tag, word], at) => {
      if (pair[at] === null) return [h("td", { class: "line" }), h("td", { class: name }, h("span", { class: "dim" }, "no such line"))];
      const pieces = pairs ? merge(pairs.filter((one) => one[at] !== null).map((one) => [one[at], one[0] !== one[1]]))
        : [[pair[at], !equal]];
      return [h("td", { class: "line" }, String(lines[at] += 1)), h("td", { class: name }, side(pieces, tag, word))];
    });
    return { equal, row: h("tr", { class: equal ? null : "changed" }, cells) };
  }));
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

const digest = async (...parts) => new Uint8Array(await crypto.subtle.digest("SHA-256",
  await new Blob(parts).arrayBuffer()));
const hex = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
const sha256 = async (text) => (crypto.subtle ? hex(await digest(text)) : null);
const encode = (bytes) => btoa(String.fromCharCode(...bytes));
const decode = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
/** JSON as RFC 8785 writes it. */
const canonical = (value) => (Array.isArray(value) ? `[${value.map(canonical).join(",")}]`
  : value !== null && typeof value === "object" ? `{${Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(",")}}`
    : JSON.stringify(value));

/** Write out an id and a result of a receipt, which has them short. */
const readId = (id) => (id.startsWith("~") && !id.startsWith("~~")
  ? hex(decode(`${id.slice(1)}==`)).replace(/(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-") : id.replace(/^~/, ""));
async function readRow([leaf, , short, chunk, text, others = {}], tenant) {
  const point = readId(short);
  const own = tenant ? { tenant: encode(await digest(decode(tenant.salt), `${point}\n${tenant.name}`)) } : {};
  return { leaf, entry: { ...own, ...others, v: 1, point, chunk: chunk === null ? point : readId(chunk), text } };
}

/** Compute the hashes from a chunk's entry up to the root of the seal, as docs/reference/receipt-format.md says. */
async function climb(receipt, leaf) {
  const [, size, root] = receipt.checkpoint.split("\n");
  const sealed = receipt.results.filter(([leafOf]) => leafOf !== null);
  const leaves = new Map(await Promise.all(sealed.map(async (row) => [row[0],
    await digest(Uint8Array.of(0), canonical((await readRow(row, receipt.tenant)).entry))])));
  const nodes = decode(receipt.nodes);
  const steps = [{ hash: leaves.get(leaf) }];
  let used = 0;
  const hashOf = async (start, end, within) => {
    if (!within.length) return nodes.slice(used, used += 32);
    if (end - start === 1) return leaves.get(start);
    const middle = start + 2 ** Math.ceil(Math.log2(end - start) - 1);
    const left = await hashOf(start, middle, within.filter((one) => one < middle));
    const right = await hashOf(middle, end, within.filter((one) => one >= middle));
    const hash = await digest(Uint8Array.of(1), left, right);
    if (start <= leaf && leaf < end) steps.push({ hash, side: leaf < middle ? 1 : -1, beside: leaf < middle ? right : left });
    return hash;
  };
  const found = await hashOf(0, Number(size), [...leaves.keys()]);
  return { steps, size: Number(size), proved: used === nodes.length && hex(found) === hex(decode(root)) };
}

function drawTree({ steps, size, proved }, leaf) {
  const [gap, middle, height] = [34, 170, 34 * steps.length + 20];
  const y = (level) => height - 24 - level * gap;
  const short = (hash) => hex(hash.slice(0, 4));
  return svg("svg", { class: `tree ${proved ? "good" : "bad"}`, viewBox: `0 0 340 ${height}`, role: "img",
    "aria-label": `Leaf ${leaf + 1} of ${size}, ${plural(steps.length - 1, "step")} to the root: ${proved ? "proved" : "refuted"}` },
  steps.map(({ hash, side, beside }, level) => [
    level && svg("path", { d: `M${middle} ${y(level - 1)}V${y(level)}` }),
    level && svg("path", { class: "beside", d: `M${middle + side * 66} ${y(level - 1)}L${middle} ${y(level)}` }),
    level && svg("rect", { x: middle + side * 66 - 5, y: y(level - 1) - 5, width: 10, height: 10, rx: 2 }),
    level && svg("text", { class: "beside", x: middle + side * 78, y: y(level - 1) + 4, "text-anchor": side > 0 ? "start" : "end" }, short(beside)),
    svg("circle", { cx: middle, cy: y(level), r: level && level < steps.length - 1 ? 5 : 7 }, svg("title", {}, hex(hash)))]),
  svg("text", { x: middle + 14, y: y(steps.length - 1) + 4 }, `${proved ? "✓" : "✗"} root ${short(steps.at(-1).hash)}`),
  svg("text", { x: middle + (steps[1]?.side > 0 ? -14 : 14), y: y(0) + 4, "text-anchor": steps[1]?.side > 0 ? "end" : "start" }, `chunk ${short(steps[0].hash)}`));
}

/** The way from this chunk to the seal of its collection; a search for its own text has the receipt. */
async function sealed(result, collection) {
  const query = Array.from(result.stored_text).slice(0, 2000).join("");
  const none = (...why) => [h("p", { class: "dim" }, ...why), code(`chunkproof seal ${shell(collection)} --key seal.key`, "Command")];
  if (!query.trim() || !crypto.subtle) return none("This chunk has no text to search for, or the page no HTTPS.");
  const request = { query_text: query, collection, top_k: 5, receipt: true };
  let { data } = await call("POST", "/search", request, { quiet: true });
  // The first search of a process loads its model, which may leave no time for the seal.
  if (!data.receipt) ({ data } = await call("POST", "/search", request, { quiet: true }));
  if (!data.receipt) return none(...visible((data.notes ?? []).join(" ") || "There is no receipt."));
  const at = data.results.findIndex((one) => one.point_id === result.point_id);
  const listed = data.receipt.results[at], row = listed?.[0] != null && await readRow(listed, data.receipt.tenant);
  if (!row) return none(listed ? "This chunk is not in the seal: it came later." : "A search for its own text does not return it among the first 5.");
  const path = await climb(data.receipt, row.leaf);
  const same = await sha256(data.results[at].text) === hex(decode(row.entry.text)) && data.results[at].text === result.stored_text;
  const [origin] = data.receipt.checkpoint.split("\n");
  const mark = (good, yes, no) => h("li", { class: good ? "good" : "bad" }, good ? `✓ ${yes}` : `✗ ${no}`);
  return h("div", { class: "pair" }, drawTree(path, row.leaf), h("div", {}, h("ul", { class: "marks" },
    mark(same, "The stored text is the sealed one, byte for byte", "The stored text is not the sealed one"),
    mark(path.proved, `Leaf ${row.leaf + 1} of ${path.size} leads to the root of the seal`, "The path does not lead to the root of the seal")),
  h("p", { class: "dim" }, "Computed in this browser. The seal is of ", ...visible(origin), "; who signed it, a public key shows:"),
  code(`chunkproof search QUESTION --receipt answer.json\nchunkproof verify answer.json --key seal.key.pub`, "Commands")));
}

async function verdict(result) {
  const { mismatch } = result;
  const compared = result.original_text !== null;
  const given = compared || mismatch || result.checks[0].passed;
  const own = await sha256(result.stored_text);
  const kind = mismatch?.kind.replaceAll("_", " ");
  const at = mismatch?.first_difference;
  return [h("section", { class: `banner ${result.matches && result.validation_passed ? "good" : "bad"}` },
    h("h2", {}, result.matches ? (!result.validation_passed ? "✗ The text matches, another check failed"
      : given ? "✓ Stored exactly as the original" : "✓ Unchanged since its hash was stored")
      : !given ? "✗ Not as it was written"
      : kind === "different" ? "✗ Differs from the original" : `✗ Differs: ${kind}`),
    h("p", {}, result.matches ? (compared ? "Both texts are the same, byte for byte."
      : given ? "It has the SHA-256 of the original." : "No original was given: paste it to compare every byte.")
      : visible(result.mismatch_details)),
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
    h("section", {}, h("h3", {}, "Checks"), table(["Check", "Result"], result.checks.map((check) => [
      check.name.replaceAll("_", " "), h("span", {}, sign(check.passed),
        check.details && h("span", { class: "dim" }, ": ", ...visible(check.details)))]))),
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

export async function render(context) {
  const id = context.params.get("id") ?? "";
  const idField = h("input", { type: "text", id: "chunk", value: id, required: true,
    placeholder: "chunk id, point id or the payload's own id" });
  const text = h("textarea", { id: "original", rows: "7", spellcheck: "false", dir: "auto",
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
    const seal = h("div", {}, h("p", { class: "dim" }, "Reading the receipt …"));
    sealed(data, context.collection).then((drawn) => show(seal, drawn), (error) => show(seal, problem(error)));
    shown = [await verdict(data), h("section", { class: "seal" }, h("h3", {}, "Seal"), seal)];
    say(data.matches ? "The stored text matches" : "The stored text differs");
  } catch (error) {
    if (!error.messages || error.needsToken) throw error;
    shown = problem(error);
  }
  const command = `chunkproof validate --collection ${shell(context.collection)} ${original === null ? "" : "--original FILE "}${argument(id)}`;
  return context.put(h("h2", {}, ...visible(id)), form, shown,
    h("details", {}, h("summary", {}, "The same as a command"), code(command, "Command")));
}
