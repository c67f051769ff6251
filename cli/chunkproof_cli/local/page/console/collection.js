// Collection: what it holds, how its payloads are read, what doctor finds, and a map of its vectors.

import { argument, call, shell } from "./api.js";
import { go, infoOf } from "./console.js";
import { code, h, number, plural, problem, ring, show, svg, table, tiles, visible } from "./dom.js";

const SIGNS = { ok: ["good", "✓ ok"], note: ["warn", "! note"], FAIL: ["bad", "✗ fails"] };
const HUES = 8;
// A remedy that can be pasted; others are sentences.
const COMMAND = /^(client\.|create_|chunkproof |CHUNKPROOF_)[^;]*$/;
/** What the routes answered, by route and collection. */
const kept = new Map();
const keyOf = (route, name) => `${route} ${name}`;

/** A section that is filled when its route has answered. */
function later(title, waiting, route, name, draw) {
  const box = h("section", {}, h("h3", {}, title), h("p", { class: "dim" }, waiting));
  const fill = (...children) => show(box, h("h3", {}, title), children);
  const key = keyOf(route, name);
  if (!kept.has(key)) kept.set(key, call("GET", `/console/${route}`, undefined, { query: { collection: name } }));
  kept.get(key).then(({ data }) => fill(draw(data)), (error) => { kept.delete(key); fill(problem(error)); });
  return box;
}

function fields(info, samples) {
  const readAs = Object.fromEntries(Object.entries(info.payload_map).map(([field, path]) => [path, field]));
  return table(["Field", "Type", "Share", "Index", "Read as", ...(samples ? ["Sample"] : [])],
    info.payload_fields.map((field) => [h("span", { class: "mono" }, ...visible(field.name)), field.type,
      meter(field.share, `${number(field.share * 100)} %`),
      h("span", { class: field.indexed ? "good" : "dim" }, field.indexed ? "✓ yes" : "no"), readAs[field.name],
      ...(samples ? [h("span", { class: "dim cut" }, ...visible(samples[readAs[field.name]] ?? ""))] : [])]),
    { caption: "Payload fields of the first points", classes: "stacked" });
}

const meter = (share, text, tone) => h("span", { class: "score" }, share !== null
  && h("i", { class: "meter", vars: { "--share": `${share * 100}%` } }), h("span", { class: tone }, text));

/** One number, then each part with what improves it, the part with the most to gain first. */
function health({ score, health: parts }) {
  const order = [...parts].sort((a, b) => (a.share ?? 2) - (b.share ?? 2));
  return score === null ? null : h("div", { class: "health" }, ring(score / 100, String(score), `Health: ${score} of 100`),
    h("ul", {}, order.map(({ name, share, message, remedy }) => h("li", {}, h("b", {}, name),
      meter(share, share === null ? "– not counted" : `${share === 1 ? "✓" : "!"} ${number(Math.floor(share * 1000) / 10,
        share === 1 ? 0 : 1)} %`, share === null ? "dim" : share === 1 ? "good" : "warn"),
      h("p", { class: "dim" }, ...visible(message)), remedy && share !== 1 && (COMMAND.test(remedy) ? code(remedy, name)
        : h("p", {}, ...visible(remedy)))))));
}

function drawDoctor({ report }) {
  const said = new Set(report.health.map((part) => part.message));
  const bad = report.findings.some((one) => one.level === "FAIL");
  const noted = report.findings.filter((one) => one.level === "note").length;
  const findings = report.findings.filter((one) => one.level !== "ok" && !said.has(one.message))
    .sort((a, b) => (b.level === "FAIL") - (a.level === "FAIL"));
  const passed = report.findings.filter((one) => one.level === "ok");
  const row = (one) => h("li", {}, h("span", { class: SIGNS[one.level][0] }, SIGNS[one.level][1]), h("div", {},
    h("b", {}, one.check), " ", ...visible(one.message), one.remedy && h("p", { class: "dim" }, ...visible(one.remedy))));
  return [h("div", { class: `banner ${bad ? "bad" : noted ? "warn" : "good"}` }, h("h2", {},
    `${passed.length} of ${report.findings.length} checks pass`), h("p", {}, ...visible(report.verdict))), health(report),
  findings.length > 0 && h("ul", { class: "findings" }, findings.map(row)),
  h("details", {}, h("summary", {}, `${plural(passed.length, "check")} passed`), h("ul", { class: "findings" }, passed.map(row))),
  report.set.length > 0 && [h("p", {}, "Settings to use:"), code(report.set.join("\n"), "Settings")]];
}

/** The health of the collection; doctor's samples go into the table of fields. */
function doctor(info, box) {
  const draw = (data) => {
    box.replaceChildren(fields(info, data.report.samples[0]));
    return drawDoctor(data);
  };
  const run = () => later("Health", "Embedding a sample again, and checking vectors, texts, copies and indexes …",
    "doctor", info.name, draw);
  if (kept.has(keyOf("doctor", info.name))) return run();
  const section = h("section", {}, h("h3", {}, "Health"), h("p", {}, h("button", { type: "button", class: "quiet",
    onclick: () => section.replaceWith(run()) }, "Check this collection")), h("p", { class: "dim" },
    "Embeds up to 128 chunks again; changes nothing. The same as chunkproof doctor."));
  return section;
}

/** A document as a strip: a cell for each chunk, a hole where a position has none. */
function strip({ document_id: id, title, chunks, missing }) {
  const cells = [...chunks, ...missing.map((at) => [at, null])].sort((a, b) => a[0] - b[0]);
  const width = Math.min(14, 640 / cells.length);
  const said = missing.length ? `${missing.length} missing: ${missing.slice(0, 8).join(", ")}${missing.length > 8 ? " …" : ""}`
    : plural(chunks.length, "chunk");
  return h("li", {}, h("span", { class: "cut" }, ...visible(title ?? id)), svg("svg", { class: "strip", role: "img",
    viewBox: `0 0 640 16`, preserveAspectRatio: "xMinYMid", "aria-label": `${title ?? id}: ${said}` },
    cells.map(([at, chunk], index) => svg("rect", { x: (index * width + 0.5).toFixed(2), y: 1, height: 14, rx: 2,
      width: Math.max(0.5, width - 2).toFixed(2), class: chunk === null ? "hole" : null, onclick: chunk === null ? null
        : () => go("proof", { id: chunk }) }, svg("title", {}, chunk === null ? `position ${at}: no chunk`
      : `position ${at}: ${chunk}`)))), h("span", { class: missing.length ? "bad" : "dim" }, missing.length ? `✗ ${said}` : said));
}

function drawStrips({ documents, documents_total: total, missing_total: lost, read, points_count: points }) {
  if (!total) return h("p", { class: "dim" }, "Payloads name no document with a position, so there is no order to show.");
  const shown = total > documents.length ? `The first ${documents.length} of ${plural(total, "document")}, those with holes first. ` : "";
  return [h("p", { class: "dim" }, shown, read < points ? `The first ${number(read)} of ${number(points)} chunks were read: holes are not looked for.`
    : lost ? `${plural(lost, "position")} without a chunk. ` : "No position is without a chunk. ", read >= points
    && "Chunks that are missing at a document's end cannot be seen here."), h("ul", { class: "strips" }, documents.map(strip)),
  lost > 0 && code("chunkproof audit chunks.jsonl", "Command")];
}

function drawMap(map) {
  const counts = new Map();
  map.points.forEach((point) => counts.set(point.document_id, (counts.get(point.document_id) ?? 0) + 1));
  const top = [...counts].sort((a, b) => b[1] - a[1]).slice(0, HUES).map(([id]) => id);
  const hue = (id) => (top.includes(id) ? `hue${top.indexOf(id)}` : "other");
  const [xs, ys] = [map.points.map((point) => point.x), map.points.map((point) => point.y)];
  const scale = (value, all, size) => 12 + ((value - Math.min(...all)) / (Math.max(...all) - Math.min(...all)
    || 1)) * (size - 24);
  const titles = new Map(map.points.map((point) => [point.document_id,
    point.title ?? point.document_id ?? "(no document)"]));
  return [h("p", { class: "dim" },
    `${map.sampled === map.points_count ? `All ${number(map.sampled)}` : `The first ${number(map.sampled)} of ${number(map.points_count)}`} vectors on their two principal components, which show ${number(map.variance * 100)} % of the variance. Near dots mean near texts; click one to prove it.`),
    svg("svg", { class: "map", viewBox: "0 0 640 420", role: "img",
      "aria-label": `Map of ${plural(map.sampled, "vector")} of ${plural(counts.size, "document")}` },
      map.points.map((point) => svg("circle", { class: hue(point.document_id), cx: scale(point.x, xs, 640).toFixed(1),
        cy: (420 - scale(point.y, ys, 420)).toFixed(1), r: 4.5, onclick: () => go("proof", { id: point.chunk_id }) },
        svg("title", {}, `${titles.get(point.document_id)} · ${point.chunk_id}`)))),
    h("ul", { class: "legend" }, top.map((id) => h("li", {}, h("i", { class: hue(id) }),
      ...visible(String(titles.get(id)).slice(0, 60)), ` ${counts.get(id)}`)), counts.size > HUES
      && h("li", {}, h("i", { class: "other" }), `${counts.size - HUES} more documents`))];
}

export async function render(context) {
  const info = await infoOf(context.collection);
  const box = h("div", {}, fields(info));
  return context.put(h("h2", {}, ...visible(info.name)),
    tiles([[number(info.points_count), info.points_count === 1 ? "chunk" : "chunks"],
      [number(info.vector_size), `values, ${info.distance_metric}`], [info.status, "status"],
      [info.indexed ? "yes" : "no", "every vector indexed"]]),
    info.vectors.length > 1 && h("p", {}, "Vectors: ",
      info.vectors.map((one) => `${one.name || "(unnamed)"} ${one.size} ${one.distance_metric}`).join(", ")),
    h("div", { class: "pair" }, doctor(info, box), info.points_count > 0
      && later("Map", "Drawing …", "map", info.name, drawMap)),
    info.points_count > 0 && later("Documents", "Reading …", "documents", info.name, drawStrips),
    box, h("details", {}, h("summary", {}, "The same as commands"),
      code(`chunkproof collection ${argument(info.name)}\nchunkproof doctor --collection ${shell(info.name)}`, "Commands")));
}
