// Collection: what it holds, how its payloads are read, what doctor finds, and a map of its vectors.

import { call } from "./api.js";
import { go, infoOf, readAddress } from "./console.js";
import { code, h, number, plural, problem, svg, visible } from "./dom.js";

const SIGNS = { ok: ["good", "✓ ok"], note: ["warn", "! note"], FAIL: ["bad", "✗ fails"] };
const HUES = 8;
const reports = new Map();
const maps = new Map();
const known = new Map();

const remember = (kept, name, ask) => {
  if (!kept.has(name)) { kept.set(name, ask()); kept.get(name).catch(() => kept.delete(name)); }
  return kept.get(name);
};

function fields(info, samples) {
  const readAs = Object.fromEntries(Object.entries(info.payload_map).map(([field, path]) => [path, field]));
  return h("div", { class: "scroll" }, h("table", {}, h("caption", {}, "Payload fields of the first points"),
    h("thead", {}, h("tr", {}, ["Field", "Type", "Share", "Index", "Read as", samples
      && "Sample"].filter(Boolean).map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, info.payload_fields.map((field) => h("tr", {}, h("th", { scope: "row", class: "mono" },
      ...visible(field.name)), h("td", {}, field.type),
      h("td", {}, h("span", { class: "score" }, h("i",
        { class: "meter", vars: { "--share": `${field.share * 100}%` } }), `${number(field.share * 100)} %`)),
      h("td", {}, field.indexed ? h("span", { class: "good" }, "✓ yes") : h("span", { class: "dim" }, "no")),
        h("td", {}, readAs[field.name] ?? ""),
      samples && h("td", { class: "dim cut" }, ...visible(String(samples[readAs[field.name]] ?? ""))))))));
}

function doctor(context) {
  const box = h("section", {}, h("h3", {}, "Doctor"));
  const run = () => {
    box.replaceChildren(h("h3", {}, "Doctor"), h("p", { class: "dim" },
      "Embedding a sample again, and checking vectors, texts, copies and indexes …"));
    remember(reports, context.collection, () => call("GET", "/console/doctor", undefined,
      { query: { collection: context.collection } })).then(({ data: { report } }) => {
      if (!known.has(context.collection)) {  // the fields are shown again, with samples
        known.set(context.collection, report.samples[0] ?? {});
        if (readAddress().view === "collection") go("collection", {}, { replace: true });
      }
      const order = { FAIL: 0, note: 1, ok: 2 };
      const findings = [...report.findings].sort((a, b) => order[a.level] - order[b.level]);
      const bad = findings.filter((one) => one.level === "FAIL").length;
      const noted = findings.filter((one) => one.level === "note").length;
      box.replaceChildren(h("h3", {}, "Doctor"), h("div", { class: `banner ${bad ? "bad" : noted ? "warn" : "good"}` },
        h("h2", {}, `${findings.length - bad - noted} of ${findings.length} checks pass`),
        h("p", {}, ...visible(report.verdict))),
        h("ul", { class: "findings" }, findings.map((one) => h("li", {}, h("span", { class: SIGNS[one.level][0] },
          SIGNS[one.level][1]), h("div", {}, h("b", {}, one.check), " ", ...visible(one.message), one.remedy
          && h("p", {}, ...visible(one.remedy)))))),
        ...(report.set.length ? [h("p", {}, "Settings to use:"), code(report.set.join("\n"), "Settings")] : []));
    }, (error) => box.replaceChildren(h("h3", {}, "Doctor"), problem(error)));
  };
  if (reports.has(context.collection)) run();
  else box.append(h("p", {}, h("button", { type: "button", class: "quiet", onclick: run }, "Check this collection")),
    h("p", { class: "dim" }, "Embeds up to 128 chunks again; changes nothing. The same as chunkproof doctor."));
  return box;
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
  const plot = h("section", {}, h("h3", {}, "Map"), h("p", { class: "dim" }, "Drawing …"));
  if (info.points_count) {
    remember(maps, context.collection, () => call("GET", "/console/map", undefined,
      { query: { collection: context.collection } })).then(
      ({ data }) => plot.replaceChildren(h("h3", {}, "Map"), ...drawMap(data)),
        (error) => plot.replaceChildren(h("h3", {}, "Map"), problem(error)));
  }
  const samples = known.get(context.collection);
  return context.put(h("h2", {}, ...visible(info.name)),
    h("ul", { class: "tiles" }, [[number(info.points_count), info.points_count === 1 ? "chunk" : "chunks"],
      [number(info.vector_size), `values, ${info.distance_metric}`], [info.status, "status"],
      [info.indexed ? "yes" : "no", "every vector indexed"]].map(([value, label]) => h("li", {}, h("strong", {}, value),
      label))),
    info.vectors.length > 1 && h("p", {}, "Vectors: ",
      info.vectors.map((one) => `${one.name || "(unnamed)"} ${one.size} ${one.distance_metric}`).join(", ")),
    h("div", { class: "pair" }, doctor(context), plot), fields(info, samples),
    h("details", {}, h("summary", {}, "The same as commands"),
      code(`chunkproof collection ${JSON.stringify(info.name)}\nchunkproof doctor --collection ${JSON.stringify(info.name)}`, "Commands")));
}
