// Elements, texts and numbers. Stored text only ever becomes a text node.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if ((value ?? false) === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else if (name === "vars") for (const [key, to] of Object.entries(value)) element.style.setProperty(key, to);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => (child ?? false) !== false));
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const byId = (id) => document.getElementById(id);
const formats = {};
export const number = (value, digits = 0) => (formats[digits] ??= new Intl.NumberFormat("en",
  { minimumFractionDigits: digits, maximumFractionDigits: digits })).format(value);
export const ms = (value) => `${number(value, value < 9.95 ? 1 : 0)} ms`;
export const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
export const pretty = (value) => JSON.stringify(value, null, 2);

/** Say something to screen readers without moving the focus. */
export const say = (text) => { byId("said").textContent = text; };

/** Replace the children of an element; an input that had the focus has it again. */
export function show(element, ...children) {
  const active = document.activeElement;
  const kept = element.contains(active) && active.id ? [active.id, active.selectionStart] : null;
  element.replaceChildren(...children.flat(Infinity).filter(Boolean));
  const again = kept && byId(kept[0]);
  if (!again) return;
  again.focus({ preventScroll: true });
  if (kept[1] !== null && kept[1] !== undefined && again.type === "text") again.setSelectionRange(kept[1], kept[1]);
}

/** A link that is followed only if it is a web address; any other source is shown as text. */
export function link(url) {
  const text = typeof url === "string" ? url : pretty(url);
  let parsed = null;
  try { parsed = new URL(text); } catch { /* not an address */ }
  if (!/^https?:$/.test(parsed?.protocol)) return h("span", { class: "source" }, ...visible(text));
  return h("a", { class: "source", href: parsed.href, rel: "noopener noreferrer", target: "_blank" },
    ...visible(text.replace(/^https?:\/\//, "")));
}

// Code point, short name (- for none) and name.
const NAMES = new Map((
  "00 NUL NULL|09 TAB TAB|0a LF LINE FEED|0b - LINE TABULATION|0c - FORM FEED|0d CR CARRIAGE RETURN|1b ESC ESCAPE|" +
  "7f DEL DELETE|85 NEL NEXT LINE|a0 NBSP NO-BREAK SPACE|ad SHY SOFT HYPHEN|34f - COMBINING GRAPHEME JOINER|" +
  "61c - ARABIC LETTER MARK|1680 - OGHAM SPACE MARK|2002 - EN SPACE|2003 - EM SPACE|2007 - FIGURE SPACE|" +
  "2008 - PUNCTUATION SPACE|2009 - THIN SPACE|200a - HAIR SPACE|200b ZWSP ZERO WIDTH SPACE|" +
  "200c ZWNJ ZERO WIDTH NON-JOINER|200d ZWJ ZERO WIDTH JOINER|200e LRM LEFT-TO-RIGHT MARK|" +
  "200f RLM RIGHT-TO-LEFT MARK|2028 LS LINE SEPARATOR|2029 PS PARAGRAPH SEPARATOR|202a LRE LEFT-TO-RIGHT EMBEDDING|" +
  "202b RLE RIGHT-TO-LEFT EMBEDDING|202c PDF POP DIRECTIONAL FORMATTING|202d LRO LEFT-TO-RIGHT OVERRIDE|" +
  "202e RLO RIGHT-TO-LEFT OVERRIDE|202f NNBSP NARROW NO-BREAK SPACE|205f - MEDIUM MATHEMATICAL SPACE|" +
  "2060 WJ WORD JOINER|2066 LRI LEFT-TO-RIGHT ISOLATE|2067 RLI RIGHT-TO-LEFT ISOLATE|2068 FSI FIRST STRONG ISOLATE|" +
  "2069 PDI POP DIRECTIONAL ISOLATE|3000 IDSP IDEOGRAPHIC SPACE|feff BOM ZERO WIDTH NO-BREAK SPACE (BOM)|" +
  "fffd - REPLACEMENT CHARACTER|fe0f - VARIATION SELECTOR-16").split("|").map((one) => {
  const [, code, short, name] = /^(\w+) (\S+) (.*)$/.exec(one);
  return [parseInt(code, 16), { short: short === "-" ? null : short, name }];
}));
// Format and control characters, unusual spaces, unassigned and private ones: nothing of them can be seen.
const INVISIBLE = /[\p{Cf}\p{Cc}\p{Co}\p{Cn}\p{Zl}\p{Zp}\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\u034f\ufe00-\ufe0f\ufffd]/u;
const KINDS = [[/\p{Mn}|\p{Me}/u, "combining mark"], [/\p{Cf}/u, "format character"], [/\p{Cc}/u, "control character"],
  [/\p{Co}/u, "private use"], [/\p{Cn}/u, "unassigned"], [/\p{Zs}/u, "space"], [/\p{Cs}/u, "lone surrogate"]];
const encoder = new TextEncoder();

const hex = (code) => `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
export const utf8 = (text) => Array.from(encoder.encode(text), (byte) => hex(byte).slice(-2)).join(" ");

/** Code point, name and bytes of a character, as shown on hover. */
export function describe(character) {
  const code = character.codePointAt(0);
  const kind = KINDS.find(([pattern]) => pattern.test(character))?.[1];
  return `${`${hex(code)} ${NAMES.get(code)?.name ?? kind ?? ""}`.trim()} · UTF-8 ${utf8(character)}`;
}

const box = (character) => {
  const code = character.codePointAt(0);
  return h("span", { class: "ch", title: describe(character) }, NAMES.get(code)?.short ?? hex(code));
};

/** Split a text into text nodes and named boxes for the characters that cannot be seen. */
export function visible(text, { all = false } = {}) {
  const nodes = [];
  let run = "";
  for (const character of String(text)) {
    // A joiner and a variation selector are part of an emoji.
    const plain = "\n\t".includes(character) || ("\u200d\ufe0f".includes(character) && !all);
    const hidden = !plain && INVISIBLE.test(character);
    if (hidden || (all && /\p{Mn}|\p{Me}/u.test(character))) {
      if (run) nodes.push(run);
      nodes.push(box(character));
      run = "";
    } else run += character;
  }
  if (run) nodes.push(run);
  return nodes;
}

/** The name of a chunk: its heading, else the title of its document, else its id. */
export function titleOf(result) {
  const { section_heading: heading, document_title: title, chunk_id: id } = result.metadata;
  return [heading, title, id].map((name) => (typeof name === "string" ? name.trim() : "")).find(Boolean)
    || "(no title)";
}

/** A command or a piece of code, with a button that copies it. */
export function code(text, label) {
  const copy = h("button", { type: "button", class: "quiet copy", onclick: async () => {
    await navigator.clipboard?.writeText(text);
    copy.textContent = "Copied";
    say(`${label} copied`);
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  } }, "Copy");
  return h("div", { class: "code" }, h("pre", { tabindex: "0", "aria-label": label }, ...visible(text)), copy);
}

const FIXES = { __proto__: null,
  COLLECTION_NOT_FOUND: "Choose another collection, or load it: chunkproof load chunks.jsonl --collection NAME",
  CHUNK_NOT_FOUND: "A search shows the ids that are stored: press / and ask for a part of its text" };

/** A message of the API as it words it, with the code, every further reason and the fix. */
export const problem = (error) => h("div", { class: "problem", role: "alert" },
  h("strong", {}, ...visible(error.code ? error.code.replaceAll("_", " ").toLowerCase() : "No answer")),
  h("ul", {}, [...error.messages, FIXES[error.code] ?? []].flat().map((message) => h("li", {}, ...visible(message)))),
  error.requestId && h("p", { class: "dim" }, `Request ${error.requestId}`));

export const empty = (title, ...lines) => h("div", { class: "empty" }, h("h2", {}, title),
  lines.map((line) => h("p", {}, line)));

const FIGURE = /^(–|[-+]?\d[\d,.]*( ?(%|ms))?)$/;

/** An element as it is; anything else as its visible text. */
export const shownAs = (value) => (value instanceof Node ? value : visible(value ?? ""));

/** A table that scrolls sideways, also by keyboard. The first cell of a row heads it; figures are on the right. */
export function table(head, rows, { caption, label = caption || head.join(", "), classes } = {}) {
  const right = head.map((_, index) => rows.length > 0
    && rows.every((row) => FIGURE.test(row[index]?.textContent ?? row[index])));
  // A short text stays on one line; a hash may be broken anywhere, so that it takes no room from the words beside it.
  const kind = (text) => (text.length <= 20 ? "short" : /\S{40}/.test(text) && "long");
  const cell = (value, index) => h(index ? "td" : "th", { scope: index ? null : "row",
    class: right[index] ? "number" : kind(value?.textContent ?? String(value ?? "")),
    "data-head": value?.tagName === "DIV" ? null : head[index] }, shownAs(value));
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label },
    h("table", { class: classes || null }, caption && h("caption", {}, ...visible(caption)),
      h("thead", {}, h("tr", {}, head.map((name, index) => h("th", { scope: "col", class: right[index] && "number" },
        ...visible(name))))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map(cell))))));
}

/** A figure of a table, or a dash where there is none. */
export const figure = (value, digits) => (typeof value === "number" ? number(value, digits) : "–");

/** Large figures, each with what it counts. */
export const tiles = (figures) => h("ul", { class: "tiles" }, figures.map(([value, label]) => h("li", {},
  h("strong", {}, ...visible(value)), ...visible(label))));

/** A share as a ring with a text inside. */
export function ring(share, text, label) {
  const length = 2 * Math.PI * 20;
  return svg("svg", { class: "ring", viewBox: "0 0 48 48", role: "img", "aria-label": label },
    svg("circle", { cx: 24, cy: 24, r: 20 }),
    share > 0 && svg("circle", { class: "done", cx: 24, cy: 24, r: 20, "stroke-dasharray": `${length * share} ${length}` }),
    svg("text", { x: 24, y: 28.5, "text-anchor": "middle" }, text));
}

/** A drop zone for files, which is a button for the keyboard too. */
export function dropZone(label, onfiles, { multiple = true } = {}) {
  const input = h("input", { type: "file", class: "hidden", tabindex: "-1", "aria-hidden": "true", multiple,
    onchange: () => onfiles([...input.files]) });
  const zone = h("div", { class: "drop" }, h("button", { type: "button", class: "quiet", onclick: () => input.click() },
    label), input);
  zone.addEventListener("dragover", (event) => { event.preventDefault(); zone.classList.add("over"); });
  zone.addEventListener("dragleave", () => zone.classList.remove("over"));
  zone.addEventListener("drop", (event) => {
    event.preventDefault();
    zone.classList.remove("over");
    onfiles([...event.dataTransfer.files]);
  });
  return zone;
}
