// Elements, texts and numbers. Stored text only ever becomes a text node.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else if (name === "vars") for (const [key, to] of Object.entries(value)) element.style.setProperty(key, to);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined
    && child !== false));
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const byId = (id) => document.getElementById(id);
export const number = (value, digits = 0) =>
  value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
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
  if (!parsed || !["http:", "https:"].includes(parsed.protocol)) return h("span", { class: "source" },
    ...visible(text));
  return h("a", { class: "source", href: parsed.href, rel: "noopener noreferrer", target: "_blank" },
    ...visible(text.replace(/^https?:\/\//, "")));
}

const NAMES = {
  0x00: "NULL", 0x09: "TAB", 0x0a: "LINE FEED", 0x0b: "LINE TABULATION", 0x0c: "FORM FEED", 0x0d: "CARRIAGE RETURN",
  0x1b: "ESCAPE", 0x7f: "DELETE", 0x85: "NEXT LINE", 0xa0: "NO-BREAK SPACE", 0xad: "SOFT HYPHEN",
  0x34f: "COMBINING GRAPHEME JOINER", 0x61c: "ARABIC LETTER MARK", 0x1680: "OGHAM SPACE MARK", 0x2002: "EN SPACE",
  0x2003: "EM SPACE", 0x2007: "FIGURE SPACE", 0x2008: "PUNCTUATION SPACE", 0x2009: "THIN SPACE", 0x200a: "HAIR SPACE",
  0x200b: "ZERO WIDTH SPACE", 0x200c: "ZERO WIDTH NON-JOINER", 0x200d: "ZERO WIDTH JOINER",
  0x200e: "LEFT-TO-RIGHT MARK", 0x200f: "RIGHT-TO-LEFT MARK", 0x2028: "LINE SEPARATOR", 0x2029: "PARAGRAPH SEPARATOR",
  0x202a: "LEFT-TO-RIGHT EMBEDDING", 0x202b: "RIGHT-TO-LEFT EMBEDDING", 0x202c: "POP DIRECTIONAL FORMATTING",
  0x202d: "LEFT-TO-RIGHT OVERRIDE", 0x202e: "RIGHT-TO-LEFT OVERRIDE", 0x202f: "NARROW NO-BREAK SPACE",
  0x205f: "MEDIUM MATHEMATICAL SPACE", 0x2060: "WORD JOINER", 0x2066: "LEFT-TO-RIGHT ISOLATE",
  0x2067: "RIGHT-TO-LEFT ISOLATE", 0x2068: "FIRST STRONG ISOLATE", 0x2069: "POP DIRECTIONAL ISOLATE",
  0x3000: "IDEOGRAPHIC SPACE", 0xfeff: "ZERO WIDTH NO-BREAK SPACE (BOM)", 0xfffd: "REPLACEMENT CHARACTER",
  0xfe0f: "VARIATION SELECTOR-16",
};
const SHORT = {
  0x00: "NUL", 0x09: "TAB", 0x0a: "LF", 0x0d: "CR", 0x1b: "ESC", 0x7f: "DEL", 0x85: "NEL", 0xa0: "NBSP", 0xad: "SHY",
  0x200b: "ZWSP", 0x200c: "ZWNJ", 0x200d: "ZWJ", 0x200e: "LRM", 0x200f: "RLM", 0x2028: "LS", 0x2029: "PS",
  0x202a: "LRE", 0x202b: "RLE", 0x202c: "PDF", 0x202d: "LRO", 0x202e: "RLO", 0x202f: "NNBSP", 0x2060: "WJ",
  0x2066: "LRI", 0x2067: "RLI", 0x2068: "FSI", 0x2069: "PDI", 0x3000: "IDSP", 0xfeff: "BOM",
};
// Format and control characters, unusual spaces, unassigned and private ones: nothing of them can be seen.
const INVISIBLE = /[\p{Cf}\p{Cc}\p{Co}\p{Cn}\p{Zl}\p{Zp}\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\u034f\ufe00-\ufe0f\ufffd]/u;
const KINDS = [[/\p{Mn}|\p{Me}/u, "combining mark"], [/\p{Cf}/u, "format character"], [/\p{Cc}/u, "control character"],
  [/\p{Co}/u, "private use"], [/\p{Cn}/u, "unassigned"], [/\p{Zs}/u, "space"], [/\p{Cs}/u, "lone surrogate"]];
const encoder = new TextEncoder();

const hex = (code) => `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
export const utf8 = (text) => [...encoder.encode(text)].map((byte) => byte.toString(16).toUpperCase().padStart(2,
  "0")).join(" ");

/** Code point, name and bytes of a character, as shown on hover. */
export function describe(character) {
  const code = character.codePointAt(0);
  const kind = KINDS.find(([pattern]) => pattern.test(character))?.[1];
  return [`${hex(code)}${NAMES[code] || kind ? ` ${NAMES[code] ?? kind}` : ""}`,
    `UTF-8 ${utf8(character)}`].join(" · ");
}

const box = (character) => {
  const code = character.codePointAt(0);
  return h("span", { class: "ch", title: describe(character) }, SHORT[code] ?? hex(code));
};

/** Split a text into text nodes and named boxes for the characters that cannot be seen. */
export function visible(text, { all = false } = {}) {
  const nodes = [];
  let run = "";
  for (const character of String(text)) {
    const plain = "\n\t".includes(character) || (character === "\u200d" && !all);
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

/** A message of the API as it words it, with the code and every further reason. */
export const problem = (error) => h("div", { class: "problem", role: "alert" },
  h("strong", {}, error.code ? error.code.replaceAll("_", " ").toLowerCase() : "No answer"),
  h("ul", {}, error.messages.map((message) => h("li", {}, ...visible(message)))),
  error.requestId && h("p", { class: "dim" }, `Request ${error.requestId}`));

export const empty = (title, ...lines) => h("div", { class: "empty" }, h("h2", {}, title),
  lines.map((line) => h("p", {}, line)));

/** A share as a ring with a text inside. */
export function ring(share, text, label) {
  const length = 2 * Math.PI * 20;
  return svg("svg", { class: "ring", viewBox: "0 0 48 48", role: "img", "aria-label": label },
    svg("circle", { cx: 24, cy: 24, r: 20 }),
    svg("circle", { class: "done", cx: 24, cy: 24, r: 20, "stroke-dasharray": `${length * share} ${length}` }),
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
