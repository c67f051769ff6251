// Latency: percentiles by stage of what this page requested, or of a log file.

import { onSeen, seen } from "./api.js";
import { go, readAddress } from "./console.js";
import { dropZone, empty, h, ms, number, plural, svg, table, tiles, visible } from "./dom.js";
import { STAGES, stageBar } from "./search.js";

let file = null;

/** The value below which this share of the values lies: the nearest rank. */
export const percentile = (sorted, share) => sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];

/** Read the request lines of a log, as Lambda and `chunkproof serve` write them. */
export function readLog(text) {
  const entries = [];
  for (const line of text.split("\n")) {
    const from = line.indexOf("{");
    if (from < 0) continue;
    try {
      const one = JSON.parse(line.slice(from));
      if (one.message === "request" && one.stages_ms) entries.push({ route: one.route ?? "", status: one.status,
        at: new Date(one.timestamp), stages: one.stages_ms, ms: one.stages_ms.total, query: one.query_text });
    } catch { /* a line of another program */ }
  }
  return entries;
}

const totalOf = (entry) => entry.stages.total ?? entry.ms;

function histogram(values, target) {
  const top = Math.max(...values, 1);
  const bins = 32;
  const from = Math.log(Math.max(0.5, Math.min(1, ...values)));
  const to = Math.log(Math.max(top, target) * 1.05);
  const at = (value) => ((Math.log(Math.max(value, 0.5)) - from) / (to - from || 1)) * bins;
  const counts = Array(bins).fill(0);
  values.forEach((value) => { counts[Math.max(0, Math.min(bins - 1, Math.floor(at(value))))] += 1; });
  const most = Math.max(...counts);
  const ticks = [1, 10, 100, 1000, 10000].filter((value) => Math.log(value) >= from && Math.log(value) <= to);
  return svg("svg", { class: "histogram", viewBox: "0 0 640 150", role: "img",
    "aria-label": `Histogram of ${plural(values.length, "request")}, from ${ms(Math.min(...values))} to ${ms(top)}` },
    counts.map((count, index) => count && svg("rect",
      { x: index * 20 + 1, y: 120 - (108 * count) / most, width: 18, height: (108 * count) / most, rx: 2,
      class: index >= at(target) ? "late" : null }, svg("title", {}, plural(count, "request")))),
    svg("line", { x1: 0, x2: 640, y1: 120.5, y2: 120.5 }),
    ticks.map((value) => svg("text", { x: at(value) * 20, y: 138, "text-anchor": at(value) < 1 ? "start" : "middle" },
      `${number(value)} ms`)),
    svg("line", { class: "target", x1: at(target) * 20, x2: at(target) * 20, y1: 4, y2: 120 }),
    svg("text", { x: at(target) * 20 - 6, y: 14, "text-anchor": "end" }, `target ${number(target / 1000)} s`));
}

export function render(context) {
  const target = context.about.latency_target_ms;
  const all = file ? file.entries : seen;
  const routes = [...new Set(all.map((entry) => entry.route))].sort();
  const route = context.params.get("route") ?? (routes.includes("POST /search") ? "POST /search" : routes[0]);
  const entries = all.filter((entry) => entry.route === route && entry.status < 400);
  const source = h("div", { class: "row" }, dropZone("Drop a log file (chunkproof serve > requests.jsonl)",
      async ([dropped]) => { file = { name: dropped.name, entries: readLog(await dropped.text()) }; go("latency"); },
      { multiple: false }),
    file && h("button", { type: "button", class: "quiet", onclick: () => { file = null; go("latency"); } },
      "Back to this page's requests"));
  const title = h("h2", {}, file ? ["Latency of ", ...visible(file.name)] : "Latency of this page's requests");
  if (!entries.length) return context.put(title, source,
    empty(file ? "No request line in this file" : "Nothing was requested yet", file
    ? "A log has lines with \"message\": \"request\" and stages_ms." : "Search something, or drop a log file."));
  const totals = entries.map(totalOf).sort((a, b) => a - b);
  const within = totals.filter((value) => value <= target).length;
  const stages = [...STAGES, "total"].filter((name) => entries.some((entry) => entry.stages[name] !== undefined));
  const row = (name) => {
    const values = entries.map((entry) => entry.stages[name]).filter((value) => value >= 0).sort((a, b) => a - b);
    return [h("span", { class: "nowrap" }, h("i", { class: `stage dot ${name}` }), name),
      ...[0.5, 0.95, 0.99, 1].map((share) => ms(percentile(values, share))), number(values.length)];
  };
  return context.put(title, source, routes.length > 1 && h("label", { class: "field" }, "Route",
      h("select", { id: "route", onchange: (event) => go("latency", { route: event.target.value }) },
      routes.map((name) => h("option", { value: name, selected: name === route }, name)))),
    tiles([[`${number((100 * within) / totals.length, within === totals.length ? 0 : 1)} %`,
      `within ${number(target / 1000)} s`], [ms(percentile(totals, 0.5)), "median"],
    [ms(percentile(totals, 0.95)), "95th percentile"],
    [number(totals.length), totals.length === 1 ? "request" : "requests"]]),
    histogram(totals, target),
    table(["Stage", "Median", "95 %", "99 %", "Longest", "Requests"], stages.map(row), { caption: `${route}, time by stage` }),
    h("h3", {}, "Slowest"),
    [...entries].sort((a, b) => totalOf(b) - totalOf(a)).slice(0, 5).map((entry) => h("div", { class: "slow" },
      h("span", { class: "dim" }, entry.query ? visible(entry.query) : entry.at.toLocaleString()),
      stageBar(entry.stages, totalOf(entry), target))));
}

onSeen(() => { if (readAddress().view === "latency" && !file) go("latency", {}, { replace: true }); });
