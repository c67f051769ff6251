// Reports: canonical reports of any kind, by drop or by address; what failed comes first, unfolded.

import { call } from "./api.js";
import { go, readAddress } from "./console.js";
import { code, dropZone, empty, h, number, plural, problem, shownAs, svg, table, tiles, visible } from "./dom.js";
import { stepOf } from "./search.js";

// More cases that passed than this are folded into one line.
const MOST_PASSED = 30;
let dropped = null;
let opened = { file: null };

const textOf = (cell) => (cell && typeof cell === "object" ? cell.text : String(cell ?? ""));
const toned = (cell) => (cell instanceof Node ? cell : cell?.tone
  ? h("span", { class: cell.tone === "command" ? "mono" : cell.tone }, ...visible(cell.text)) : textOf(cell));

/** A block's table; on a phone, the rows of wide ones are stacked. */
function tableOf({ head, rows, caption, total, rest, layout }, classes = layout === "results" ? "stacked" : layout) {
  const more = (total ?? rows.length) - rows.length;
  return [table(head, rows.map((row) => row.map(toned)), { caption, classes }),
    more > 0 && h("p", { class: "dim" }, `… and ${number(more)} more${rest ? `; ${rest}` : ""}`)];
}

function bars({ head, bars: all, caption, mark, layout }) {
  const longest = Math.max(mark ?? 0, ...all.map((bar) => bar.size ?? 0)) || 1;
  const share = (size) => `${(100 * (size ?? 0)) / longest}%`;
  const rows = all.filter((bar) => bar.size || mark).map((bar) => [bar.label, h("div", { class: "track" },
    h("div", { class: `bar ${bar.tone}`, vars: { "--share": share(bar.size) } }),
    mark && h("div", { class: "limit", vars: { "--limit": share(mark) } })), ...bar.figures]);
  return tableOf({ head, rows, caption }, `chart ${layout}`);
}

const title = (one, tag, head = []) => h(tag, {}, h("span", { class: `badge ${one.verdict}` }, ...visible(one.state)),
  h("span", {}, ...visible(one.name)), one.figures.map(([figure], index) => h("span", { class: "dim" },
    head[index] === "ms" ? `${textOf(figure)} ms` : `${head[index] ?? "score"} ${textOf(figure)}`)));

/** Entries one below the other; of steps, the chosen one has its details. */
function entries({ entries: all, are_steps: steps, left_out: more }) {
  const at = Math.max(1, Math.min(all.length, Number(readAddress().params.get("step")) || 1));
  const step = (by, label, hint) => h("button", { type: "button", disabled: at + by < 1 || at + by > all.length,
    onclick: () => go("reports", { step: at + by }, { replace: true }) }, `${label} `, h("kbd", {}, hint));
  return [steps && h("p", { class: "actions" }, step(-1, "Previous", "k"), step(1, "Next", "j"),
    h("span", { class: "dim", role: "status" }, `Step ${at} of ${all.length}`)),
  h(steps ? "ol" : "ul", { class: `entries${steps ? " steps" : ""}` }, all.map((one, index) => h("li",
    { class: "entry", "aria-current": steps && index + 1 === at ? "step" : null }, title(one, "h3"),
    (!steps || index + 1 === at) && one.details.map(draw)))), more && h("p", { class: "dim" }, more)];
}

const change = ({ heads, before, now }) => h("dl", { class: "change" }, [["del", before], ["ins", now]].map(([tag,
  pieces], index) => h("div", {}, h("dt", {}, heads[index]), h("dd", {}, pieces.map(([text, changed]) => (changed
  ? h(tag, {}, ...visible(text)) : visible(text)))))));

function cases({ head, cases: all }) {
  const caseRow = (one, open) => h("details", { class: "case", open },
    h("summary", {}, title(one, "span", head.slice(2))), one.details.map(draw));
  const [bad, good] = [all.filter((one) => one.verdict !== "passed"), all.filter((one) => one.verdict === "passed")];
  const passed = good.map((one) => caseRow(one, false));
  return [bad.map((one) => caseRow(one, true)), passed.length > MOST_PASSED && bad.length
    ? h("details", { class: "case" }, h("summary", {}, plural(passed.length, "case"), " passed"), passed) : passed];
}

/** A chart as a picture in the colours of the page; it is no markup of this page. */
function drawing(one) {
  const colours = getComputedStyle(document.documentElement);
  const text = one.svg.replace(/var\((--[\w-]+)\)/g, (_, name) => colours.getPropertyValue(name).trim());
  const [, width, height] = /width="([\d.]+)" height="([\d.]+)"/.exec(text) ?? [null, 320, 200];
  return h("figure", {}, h("h4", {}, ...visible(one.title)), svg("svg", { class: "drawing", role: "img",
    viewBox: `0 0 ${width} ${height}`, "aria-label": `${one.title}. ${one.summary}` },
    svg("image", { width, height, href: `data:image/svg+xml,${encodeURIComponent(text)}` })),
  h("p", { class: "dim" }, ...visible(one.summary)), h("details", {}, h("summary", {}, "As a table"),
    tableOf(one.table)));
}

const BLOCKS = {
  VerdictLine: (block) => h("p", { class: `verdict ${block.tone}` }, ...visible(block.text)),
  Paragraph: (block) => (block.tone === "command" ? code(block.text, "Command") : block.tone === "heading"
    ? h("h4", {}, ...visible(block.text)) : h("p", { class: block.tone }, ...visible(block.text))),
  BulletList: (block) => h("ul", {}, block.items.map((item) => h("li", {}, ...visible(textOf(item))))),
  FactList: (block) => h("dl", {}, block.facts.map(([name, value]) => [h("dt", { class: "dim" }, ...visible(name)),
    h("dd", {}, shownAs(toned(value)))])),
  Table: (block) => tableOf(block),
  BarChart: bars,
  Drawings: (block) => h("div", { class: "charts" }, block.drawings.map(drawing)),
  Tiles: (block) => tiles(block.figures.map(([name, value]) => [textOf(value), textOf(name)])),
  MarkedText: (block) => h("details", {}, h("summary", {}, ...visible(block.summary)), h("p", { class: "text" },
    block.pieces.map(([text, marked]) => (marked ? h("mark", {}, ...visible(text)) : visible(text))))),
  CaseTable: cases,
  Entries: entries,
  ChangedText: change,
  Section: (block) => h("section", {}, block.title && h("h3", { class: "part" }, ...visible(block.title)),
    block.blocks.map(draw)),
};
const draw = (block) => BLOCKS[block.kind]?.(block) ?? null;

const drawBody = (body) => h("article", { class: "report" },
  h("div", { class: `banner ${body.verdicts[0]?.tone ?? ""}` }, h("h2", {}, ...visible(body.page_title || body.title)),
    body.verdicts.map(draw), body.summary.map(draw)),
  body.sections.map(draw), body.footer && h("p", { class: "dim" }, ...visible(body.footer)));

const describe = (names, request) => call("POST", "/console/report", request).then(
  ({ data }) => ({ names, bodies: data.bodies }), (error) => {
    if (!error.messages) throw error;
    return { names, error };
  });

async function open(files) {
  dropped = await describe(files.map((file) => file.name),
    { reports: await Promise.all(files.map((file) => file.text())) });
  go("reports", { file: null, step: null });
}

/** The reports of `serve --reports`; several are opened together. */
function shelf({ folder, files }) {
  if (!files.length) return empty("What failed comes first",
    "Drop the .json of a suite run, an audit, a diff, an absence, a tuning, latency or a why. Several suite reports show the trend.",
    folder ? `There is none in ${folder} yet.` : "chunkproof serve --reports FOLDER lists those of a folder here.");
  const form = h("form", { class: "shelf", onsubmit: (event) => { event.preventDefault();
    go("reports", { file: new FormData(form).getAll("file").join("/") }); } },
    h("h3", {}, "In ", ...visible(folder)), h("ul", {}, files.map((name, index) => h("li", {},
      h("input", { type: "checkbox", name: "file", id: `file-${index}`, "aria-label": `Mark ${name}`, value: name }),
      h("a", { href: `#/reports?${new URLSearchParams({ file: name })}` }, ...visible(name))))),
    h("button", { class: "quiet" }, "Open the marked ones together"));
  return form;
}

export async function render(context) {
  const file = context.params.get("file");
  if (file && opened.file !== file) opened = { file, ...await describe(file.split("/"), { files: file.split("/") }) };
  const shown = file ? opened : dropped;
  const zone = dropZone("Drop reports (.json), or choose them", open);
  if (!shown) {
    const { data } = await call("GET", "/console/reports");
    return context.put(h("h2", {}, "Reports"), zone, shelf(data));
  }
  const close = () => { dropped = null; go("reports", { file: null, step: null }); };
  return context.put(h("h2", {}, ...visible(shown.names.join(", "))), h("div", { class: "row" }, zone,
    h("button", { type: "button", class: "quiet", onclick: close }, "Close")), shown.error ? problem(shown.error)
    : shown.bodies.map(drawBody));
}

export function key(pressed) {
  const by = stepOf(pressed);
  const steps = [...document.querySelectorAll(".steps .entry")];
  if (!by || !steps.length) return false;
  const at = steps.findIndex((one) => one.hasAttribute("aria-current")) + 1 + by;
  if (at >= 1 && at <= steps.length) go("reports", { step: at }, { replace: true });
  return true;
}
