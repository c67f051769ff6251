// Reports: drop canonical reports of any kind; what failed comes first, unfolded.

import { call } from "./api.js";
import { go } from "./console.js";
import { code, dropZone, empty, h, number, plural, problem, visible } from "./dom.js";

const SIGNS = { passed: "✓ ", failed: "✗ ", error: "? " };
const CLASSES = { passed: "good", failed: "bad", error: "warn", dim: "dim", expected: "expected", command: "mono" };
const FIGURE = /^(–|[-+]?\d[\d,.]*( ?(%|ms))?)$/;
let dropped = null;

const textOf = (cell) => (cell && typeof cell === "object" ? cell.text : String(cell ?? ""));
const toned = (cell) => (cell && typeof cell === "object" && cell.tone
  ? h("span", { class: CLASSES[cell.tone] ?? cell.tone }, ...visible(cell.text)) : visible(textOf(cell)));

/** Whether a block says that something failed, at any depth. */
const fails = (block) => block && typeof block === "object"
  && (["failed", "error"].includes(block.tone) || ["failed", "error"].includes(block.verdict)
  || Object.values(block).some((part) => (Array.isArray(part) ? part.some(fails) : fails(part))));

function table({ head, rows, caption, total, rest }) {
  const right = head.map((_, index) => rows.length > 0 && rows.every((row) => FIGURE.test(textOf(row[index]))));
  const more = (total ?? rows.length) - rows.length;
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption || head.join(", ") },
    h("table", {}, caption && h("caption", {}, ...visible(caption)),
    h("thead", {}, h("tr", {}, head.map((name, index) => h("th", { scope: "col", class: right[index] ? "number"
      : null }, ...visible(name))))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, index) => (index ? h("td", { class: right[index]
      ? "number" : null }, toned(cell)) : h("th", { scope: "row" }, toned(cell)))))))),
  more > 0 && h("p", { class: "dim" }, `… and ${number(more)} more${rest ? `; ${rest}` : ""}`));
}

function bars({ head, bars: all, caption, mark }) {
  const longest = Math.max(mark ?? 0, ...all.map((bar) => bar.size ?? 0)) || 1;
  return h("div", { class: "scroll" }, h("table", { class: "bars" }, caption && h("caption", {}, ...visible(caption)),
    h("thead", {}, h("tr", {}, head.map((name) => h("th", { scope: "col" }, ...visible(name))))),
    h("tbody", {}, all.map((bar) => h("tr", {}, h("th", { scope: "row", class: CLASSES[bar.tone] },
      ...visible(bar.label)),
      h("td", {}, bar.size !== null && h("i", { class: "meter wide",
        vars: { "--share": `${(100 * bar.size) / longest}%` } })),
        bar.figures.map((figure) => h("td", { class: "number" }, ...visible(figure))))))));
}

function caseRow(one, head) {
  const failing = one.verdict !== "passed";
  return h("details", { class: "case", open: failing },
    h("summary", {}, h("b", { class: CLASSES[one.verdict] }, SIGNS[one.verdict] ?? "", ...visible(one.state)), " ",
    ...visible(one.name), " ",
    h("span", { class: "dim" }, one.figures.map(([figure],
      index) => `${head[index + 2] ?? ""} ${textOf(figure)}`.trim()).join(" · "))), one.details.map(draw));
}

const BLOCKS = {
  VerdictLine: (block) => h("p", { class: `verdict-line ${CLASSES[block.tone] ?? ""}` }, SIGNS[block.tone] ?? "",
    ...visible(block.text)),
  Paragraph: (block) => (block.tone === "command" ? code(block.text, "Command") : block.tone === "heading"
    ? h("h4", {}, ...visible(block.text)) : h("p", { class: CLASSES[block.tone] }, ...visible(block.text))),
  BulletList: (block) => h("ul", {}, block.items.map((item) => h("li", {}, ...visible(textOf(item))))),
  FactList: (block) => h("dl", {}, block.facts.map(([name, value]) => [h("dt", { class: "dim" }, ...visible(name)),
    h("dd", {}, toned(value))])),
  Table: table,
  BarChart: bars,
  Drawings: (block) => block.drawings.map((one) => h("details", {},
    h("summary", {}, h("b", {}, one.title), " ", ...visible(one.summary)), table(one.table))),
  Tiles: (block) => h("ul", { class: "tiles" }, block.figures.map(([name, value]) => h("li", {}, h("strong", {},
    ...visible(textOf(value))), ...visible(textOf(name))))),
  MarkedText: (block) => h("details", { open: true }, h("summary", {}, ...visible(block.summary)),
    h("p", { class: "text" }, block.pieces.map(([text, marked]) => (marked ? h("mark", {}, ...visible(text))
    : visible(text))))),
  CaseTable: (block) => { const order = [...block.cases].sort((a,
    b) => (a.verdict === "passed") - (b.verdict === "passed")); return h("div", {},
    order.map((one) => caseRow(one, block.head))); },
  Section: (block) => h("section", {}, block.title && h("h3", { class: "part" }, ...visible(block.title)),
    block.blocks.map(draw)),
};
const draw = (block) => BLOCKS[block.kind]?.(block) ?? null;

function drawBody(body) {
  const first = body.verdicts[0]?.tone;
  // What failed comes before statistics; the order is kept otherwise.
  const sections = [...body.sections].sort((a, b) => fails(b) - fails(a));
  return h("article", { class: "report" }, h("div", { class: `banner ${CLASSES[first] ?? ""}` },
    h("h2", {}, ...visible(body.page_title || body.title)), body.verdicts.map(draw)),
    body.summary.map(draw), sections.map(draw), body.footer && h("p", { class: "dim" }, ...visible(body.footer)));
}

async function open(files) {
  try {
    const reports = await Promise.all(files.map((file) => file.text()));
    const { data } = await call("POST", "/console/report", { reports });
    dropped = { names: files.map((file) => file.name), bodies: data.bodies };
  } catch (error) {
    if (!error.messages) throw error;
    dropped = { names: files.map((file) => file.name), error };
  }
  go("reports");
}

export function render(context) {
  const zone = dropZone("Drop reports (.json), or choose them", open);
  if (!dropped) return context.put(h("h2", {}, "Reports"), zone,
    empty("What failed comes first",
    "Drop the .json of a suite run, an audit, a diff, an absence, a tuning, latency or a why. Several suite reports show the trend."));
  return context.put(h("h2", {}, `${plural(dropped.names.length, "report")}: `, ...visible(dropped.names.join(", "))),
    zone, dropped.error ? problem(dropped.error) : dropped.bodies.map(drawBody));
}
