// Search: one configuration, or two side by side.

import { call, searchRequest, snippets } from "./api.js";
import { go, infoOf, readAddress } from "./console.js";
import { code, empty, figure, h, link, ms, number, plural, pretty, problem, say, show, svg, table, titleOf, visible } from "./dom.js";

const MODES = { dense: "meaning", text: "words", hybrid: "both" };
const BOUNDS = { "=": "is", gte: "≥", lte: "≤", gt: ">", lt: "<" };
const answers = new Map();
const MOST_KEPT = 50;
let current = [];

/** Read a configuration from the address; the second one's names begin with b_. */
export function readConfig(params, prefix = "") {
  const read = (name) => params.get(prefix + name);
  const mode = Object.hasOwn(MODES, read("mode") ?? "") ? read("mode") : "dense";
  let f = {};
  try { f = JSON.parse(read("f") ?? "{}"); } catch { /* an address that was cut: search without filters */ }
  const k = read("k") === null ? 10 : Number(read("k"));
  return { mode, k, t: Number(read("t") ?? 0), rerank: read("rerank") === "1", f: f && typeof f === "object" ? f : {} };
}

/** Search, or return the answer that this page already has. */
export async function ask(request, quiet = false) {
  const key = JSON.stringify(request);
  if (!answers.has(key)) {
    const asked = call("POST", "/search", request, { quiet }).then(({ data, entry }) => ({ ...data,
      stages: entry.stages, ms: entry.ms }));
    answers.set(key, asked);
    asked.catch(() => answers.delete(key));
    if (answers.size > MOST_KEPT) answers.delete(answers.keys().next().value);
  }
  return answers.get(key);
}

// What takes longer than the search is asked for once its results are shown. Highlights may leave no time to explain.
const askHighlights = (request) => ask({ ...request, highlight: true }, true);
const askExplained = (request) => ask({ ...request, explain: true, neighbours: request.top_k > 100 ? undefined : 1 }, true);

/** Mark what answers the query in the texts that are shown, once it is known. */
export function addHighlights(request, list) {
  askHighlights(request).then((more) => {
    const known = new Map(more.results.map((result) => [result.metadata.chunk_id, result]));
    for (const item of list.children) {
      const result = known.get(item.dataset.id);
      if (result?.highlight) item.querySelector(".body > .text").replaceChildren(...marked(result.text,
        result.highlight, previewStart(result)));
    }
  }, () => { /* the results are complete without it; the details say what went wrong */ });
}

/** Mode, number of results, threshold and filters as a row of controls; a change goes into the address. */
export function configBar(context, prefix = "", label = "") {
  const config = readConfig(context.params, prefix);
  const set = (name, value) => go(context.view, { [prefix + name]: value, sel: null, why: null });
  const id = (name) => `${prefix}${name}-field`;
  const mode = h("fieldset", { class: "modes" }, h("legend", {}, "Search by"),
    Object.entries(MODES).map(([name, word]) => h("label", {},
    h("input", { type: "radio", name: id("mode"), id: id(name), value: name, checked: name === config.mode,
      onchange: () => set("mode", name === "dense" ? null : name) }),
    h("span", {}, word))));
  const field = (name, text, attributes) => h("label", { class: "field" }, text,
    h("input", { type: "number", id: id(name), onchange: (event) => set(name, event.target.value),
      ...attributes }));
  return h("div", { class: "config", role: "group", "aria-label": label || "Configuration" },
    label && h("strong", { class: "side" }, label), mode,
    field("k", "Results", { min: "1", max: "1000", value: String(config.k) }),
    config.mode === "text" ? null : field("t", "Least score",
      { min: "0", max: "1", step: "0.05", value: String(config.t) }),
    context.about.rerank && h("label", { class: "field check" },
      h("input", { type: "checkbox", id: id("rerank"), checked: config.rerank,
      onchange: (event) => set("rerank", event.target.checked ? "1" : null) }), "Rerank"),
    filterRow(context, config, (f) => set("f", Object.keys(f).length ? JSON.stringify(f) : null), prefix),
    context.view === "search" && !label && h("button", { type: "button", class: "quiet",
      onclick: () => go("search", { split: "1" }) }, "Compare ", h("kbd", {}, "c")));
}

const parse = (text, type) => {
  if (/boolean/.test(type)) return text === "true";
  if (/integer|number/.test(type) && text.trim() && Number.isFinite(Number(text))) return Number(text);
  return text;
};

function filterRow(context, config, set, prefix) {
  const row = h("div", { class: "filters" });
  infoOf(context.collection).then((info) => {
    const types = Object.fromEntries(info.payload_fields.map((field) => [field.name, field.type]));
    const chips = Object.entries(config.f).map(([name, value]) => filterChip(name, value, types[name] ?? "string",
      (changed) => set(changed === undefined
        ? Object.fromEntries(Object.entries(config.f).filter(([other]) => other !== name))
        : { ...config.f, [name]: changed }), prefix));
    const names = info.payload_fields.filter((field) => !(field.name in config.f)
      && !/object/.test(field.type)).map((field) => field.name);
    const text = info.payload_map.text;
    const add = h("select", { id: `${prefix}add-filter`, "aria-label": "Add a filter", onchange: (event) => {
      const name = event.target.value;
      set({ ...config.f, [name]: valuesOf(name)[0] ?? parse("0", types[name]) });
    } }, h("option", { value: "" }, "+ Filter"), names.filter((name) => name !== text).map((name) => h("option",
      { value: name }, ...visible(name))));
    row.replaceChildren(...chips, add);
  }, () => { /* the search itself says what is wrong with the collection */ });
  return row;
}

/** The values that a field has in the results, the first one's first. */
const valuesOf = (name) => [...new Set(current.flatMap((result) => name.split(".").reduce((at, step) =>
  at?.[step.replace("[]", "")], result.payload)))].filter((one) => /string|number|boolean/.test(typeof one));

function filterChip(name, value, type, set, prefix) {
  const range = value && typeof value === "object" && !Array.isArray(value);
  const bound = range ? Object.keys(value)[0] ?? "gte" : "=";
  const plain = range ? value[bound] : value;
  const id = `${prefix}filter-${name}`;
  const write = (kind, text) => {
    const parsed = Array.isArray(plain) && kind === "=" ? text.split(",").map((one) => parse(one.trim(), type))
      : parse(text, type);
    set(kind === "=" ? parsed : { [kind]: parsed });
  };
  const input = /boolean/.test(type)
    ? h("select", { id, "aria-label": name, value: String(plain), onchange: (event) => write("=", event.target.value) },
      ["true", "false"].map((one) => h("option", { selected: one === String(plain) }, one)))
    : h("input", { type: "text", id, list: `${id}-values`, "aria-label": name, value: Array.isArray(plain)
      ? plain.join(", ") : String(plain ?? ""),
      onchange: (event) => write(bound, event.target.value) });
  return h("span", { class: "chip" }, h("span", {}, ...visible(name)), /integer|number|string/.test(type) && h("select",
      { "aria-label": `How ${name} is compared`, id: `${id}-how`,
      onchange: (event) => write(event.target.value, input.value) },
      Object.entries(BOUNDS).map(([key, sign]) => h("option", { value: key, selected: key === bound }, sign))),
    input, h("datalist", { id: `${id}-values` }, valuesOf(name).map((one) => h("option", { value: String(one) }))),
    h("button", { type: "button", class: "quiet", "aria-label": `Remove the filter on ${name}`,
      onclick: () => set(undefined) }, "×"));
}

export const STAGES = ["validate", "embed", "search", "rerank", "highlight", "dense", "text", "format"];

/** The stages of a request drawn against the target, each with its time in words. */
export function stageBar(stages, total, target) {
  const parts = STAGES.filter((name) => stages[name] !== undefined).map((name) => [name, stages[name]]);
  const scale = Math.max(target, total);
  return h("div", { class: "stages" },
    h("div", { class: "track", role: "img", "aria-label": `${ms(total)} of a target of ${number(target)} ms` },
      parts.map(([name, took]) => h("i", { class: `stage ${name}`, vars: { width: `${(100 * took) / scale}%` } }))),
    h("p", {}, parts.filter(([, took]) => took >= 0.05).map(([name, took]) => h("span", {},
      h("i", { class: `stage ${name}` }), `${name} ${ms(took)}`)),
      h("b", {}, `${ms(total)} in all`), h("span", { class: "dim" }, `target ${number(target / 1000)} s`)));
}

/** A stored text with the sentence and the words that answer the query; offsets count code points. */
export function marked(text, highlight, from = 0) {
  const points = Array.from(text);
  const { sentence, terms } = highlight ?? { sentence: null, terms: [] };
  const cuts = new Set([from, points.length]);
  if (sentence) [sentence.start, sentence.end].forEach((at) => cuts.add(at));
  terms.forEach(({ start, end }) => { cuts.add(start); cuts.add(end); });
  const edges = [...cuts].filter((at) => at >= from && at <= points.length).sort((a, b) => a - b);
  return edges.slice(1).flatMap((end, index) => {
    const start = edges[index];
    const nodes = visible(points.slice(start, end).join(""));
    const inSentence = sentence && start >= sentence.start && end <= sentence.end;
    const inTerm = terms.some((term) => start >= term.start && end <= term.end);
    const inner = inTerm ? [h("b", { class: "term" }, ...nodes)] : nodes;
    return inSentence ? [h("mark", {}, ...inner)] : inner;
  });
}

/** Where the preview of a text begins: behind a first line that only repeats the title. */
function previewStart(result) {
  const [first] = result.text.split("\n", 1);
  return first.replace(/^[#\s]+/, "").trim() === titleOf(result) && first.length < result.text.length
    ? Array.from(first).length + 1 : 0;
}

const INTEGRITY = { verified: ["good", "✓"], changed: ["bad", "✗"], unknown: ["unsure", "?"] };

/** Whether a result's text matches its hash, in a word and a shape. */
export function integrityMark({ integrity }) {
  if (!Object.hasOwn(INTEGRITY, integrity ?? "")) return null;
  const [tone, sign] = INTEGRITY[integrity];
  return h("span", { class: `integrity ${tone}` }, `${sign} ${integrity}`);
}

/** The score that ranks a result, its share of the best one, and what it is. */
function scoreOf(result, best) {
  const { scores } = result;
  const given = [["rerank", scores?.rerank], ["fused", scores?.fused], ["cosine", scores ? scores.dense : result.similarity_score],
    ["BM25", scores?.text]];
  const [name, value] = given.find(([, score]) => typeof score === "number") ?? ["cosine", result.similarity_score];
  return { name, value, share: name === "cosine" || name === "rerank" ? value : best ? value / best : 0 };
}

/** Results as a list; `extra` is shown below each rank, `foot` below each text, `inside` within the selected one. */
export function resultList(results, { selected, onselect, inside, extra = () => null, foot = () => null,
  label = "Results" }) {
  const best = Math.max(0, ...results.map((result) => scoreOf(result, 1).value));
  return h("ol", { class: "results", "aria-label": label }, results.map((result) => {
    const id = result.metadata.chunk_id;
    const chosen = id === selected;
    const { name, value, share } = scoreOf(result, best);
    const { document_title: title, section_heading: heading, url } = result.metadata;
    return h("li", { class: chosen ? "chosen" : null, "data-id": id,
      onclick: (event) => { if (!event.target.closest("a, button, input, select, pre, summary, .details")) onselect(id); } },
      h("div", { class: "rank" }, h("span", {}, String(result.rank)), extra(result)),
      h("div", { class: "body" },
        h("header", {}, h("h2", {}, h("button", { type: "button", class: "pick", "aria-pressed": String(chosen),
          id: `pick-${result.rank}-${label}`, onclick: () => onselect(id) }, ...visible(titleOf(result)))),
          h("span", { class: "score", title: `${name} ${value}` },
            h("i", { class: "meter", vars: { "--share": `${Math.max(0, Math.min(1, share)) * 100}%` } }),
            h("span", {}, number(value, 3)))),
        h("p", { class: "where" }, integrityMark(result),
          heading && typeof title === "string" && h("span", {}, ...visible(title)),
          url ? link(url) : h("span", {}, ...visible(id))),
        h("p", { class: "text" }, ...marked(result.text, result.highlight, previewStart(result))),
        foot(result), chosen && inside));
  }));
}

const leg = (name, score) => score && [name, score.rank ? `rank ${score.rank}` : "not among its candidates",
  figure(score.score, 4)];

function explanation(explain, random) {
  if (!explain) return null;
  const { confidence, fusion, rerank } = explain;
  return [table(["Leg", "Place", "Score"], [leg("Meaning", explain.dense), leg("Words (BM25)", explain.text),
    fusion && ["Fused", `meaning ${number(fusion.dense ?? 0, 3)} + words ${number(fusion.text ?? 0, 3)}`,
      number(fusion.score, 4)],
    rerank && ["Reranked", `rank ${rerank.rank_before} before`, number(rerank.score, 4)]].filter(Boolean)),
  confidence && h("p", { class: "dim" },
    `Scores above ${number(Math.floor(confidence.percentile * 10) / 10, confidence.percentile > 99 ? 1 : 0)} % of ${plural(confidence.sample_size, "random chunk")}`,
    random ? `, whose median is ${number(random.median, 3)} and highest ${number(random.highest, 3)}.` : ".")];
}

/** Everything about one result; the explanation and the neighbours are asked for when it is shown. */
function details(context, request, result) {
  const more = h("div", {}, h("p", { class: "dim" }, "Explaining …"));
  const whole = h("p", { class: "text whole", tabindex: "0" }, ...visible(result.text));
  const find = (answer) => answer.results.find((one) => one.metadata.chunk_id === result.metadata.chunk_id);
  askHighlights(request).then((answer) => whole.replaceChildren(...marked(result.text, find(answer)?.highlight)),
    () => { /* shown without */ });
  askExplained(request).then((answer) => {
    const same = find(answer);
    const near = same?.neighbours;
    const part = (side, one) => h("div", { class: "near" }, h("span", { class: "dim" }, side),
      h("p", { class: "text" }, ...visible(one.text)));
    show(more, h("h3", {}, "Why this rank"), explanation(same?.explain, answer.explain?.random_scores),
      (answer.explain?.notes ?? []).map((note) => h("p", { class: "dim" }, ...visible(note))),
      h("h3", {}, "Neighbours in the document"),
      near && (near.before.length || near.after.length)
        ? [near.before.map((one) => part("before", one)), near.after.map((one) => part("after", one))]
        : h("p", { class: "dim" }, "None are stored."));
  }, (error) => more.replaceChildren(problem(error)));
  const id = result.metadata.chunk_id;
  return h("aside", { class: "details", "aria-label": `Details of result ${result.rank}` },
    h("h2", {}, ...visible(titleOf(result))),
    h("p", { class: "dim mono" }, ...visible(id)),
    h("p", { class: "actions" }, h("button", { type: "button", onclick: () => go("proof", { id }) }, "Prove it ",
      h("kbd", {}, "p")),
      result.rank > 1 && h("button", { type: "button", onclick: () => go(context.view, { why: id }) },
        "Why not higher? ", h("kbd", {}, "w"))),
    more,
    h("h3", {}, "Stored text"), whole,
    result.payload && h("details", {}, h("summary", {}, "Payload as stored"), code(pretty(result.payload), "Payload")));
}

/** Ask why a chunk is not among the results, or not before others. */
function whyForm(context, request, expected) {
  const field = h("input", { type: "text", id: "expected", value: expected ?? "",
    placeholder: "An id, a URL, or a text that it has" });
  return h("form", { class: "why", onsubmit: (event) => { event.preventDefault(); go(context.view,
    { why: field.value.trim() }); } },
    h("label", { for: "expected" }, "Expected something else?"), field, h("button", {}, "Why is it not here?"),
    expected && whyAnswer(request, expected));
}

const verdicts = new Map();
function whyAnswer(request, expected) {
  const box = h("div", { class: "verdict" }, h("p", { class: "dim" }, "Trying one change after another …"));
  // A chunk that is among the results is asked for among fewer: those before it.
  const rank = current.find((result) => result.metadata.chunk_id === expected)?.rank ?? 0;
  const asked = rank > 1 ? { ...request, top_k: rank - 1 } : request;
  const key = JSON.stringify([asked, expected]);
  if (!verdicts.has(key)) verdicts.set(key, call("POST", "/console/why",
    { request: asked, expected }).then(({ data }) => data));
  verdicts.get(key).then((report) => {
    const { verdict, rows } = report;
    show(box, h("p", {}, h("strong", { class: verdict.found ? "good" : "bad" }, verdict.found
      ? "✓ Found. " : `✗ Not among the first ${report.top_k}. `), ...visible(verdict.line)),
      verdict.cost && h("p", {}, "Cost: ", ...visible(verdict.cost)), verdict.command && code(verdict.command, "Command"),
      report.notes.map((note) => h("p", { class: "dim" }, ...visible(note))),
      table(["Change", "Rank", "Score"], rows.map((row) => [row.change, figure(row.rank), figure(row.score, 3)]),
        { label: "What was tried" }));
  }, (error) => { verdicts.delete(key); box.replaceChildren(problem(error)); });
  return box;
}

const requestAs = (request) => h("details", { class: "request" },
  h("summary", {}, "This request as curl, command or Python"),
  Object.entries(snippets(request)).map(([name, text]) => [h("h3", {}, name), code(text, name)]));

function summary(answer, target) {
  const { execution } = answer;
  return [stageBar(answer.stages, answer.stages.total ?? answer.ms, target),
    execution.skipped > 0 && h("p", { class: "note" },
      `${plural(execution.skipped, "point")} left out: no readable text.`),
    execution.rerank?.status === "skipped" && h("p", { class: "note" },
      ...visible(execution.rerank.message ?? "Not reranked.")),
    (answer.notes ?? []).map((note) => h("p", { class: "note" }, ...visible(note)))];
}

export async function render(context) {
  const { params, query, collection, about } = context;
  const bar = configBar(context, "", params.get("split") ? "A" : "");
  if (!query.trim()) {
    current = [];
    const info = collection ? await infoOf(collection) : null;
    return context.put(bar, empty(info ? `${number(info.points_count)} chunks are ready` : "No collection yet",
      info ? ["Press ", h("kbd", {}, "/"), " and ask in your own words."]
        : "Load one: chunkproof load chunks.jsonl --collection NAME",
      ["Press ", h("kbd", {}, "?"), " for every key."]));
  }
  if (params.get("split")) return compare(context, bar);
  const request = { ...searchRequest(query, collection, readConfig(params)) };
  let answer;
  try {
    answer = await ask({ ...request, with_payload: true });
  } catch (error) {
    if (error.needsToken) throw error;
    current = [];
    return context.put(bar, problem(error), requestAs(request));
  }
  if (!context.isCurrent()) return null;
  current = answer.results;
  const wide = matchMedia("(min-width: 68rem)").matches;
  const chosen = answer.results.find((result) => result.metadata.chunk_id === params.get("sel")) ?? (wide
    ? answer.results[0] : null);
  const panel = chosen && details(context, request, chosen);
  const list = resultList(answer.results, { selected: chosen?.metadata.chunk_id, inside: wide ? null : panel,
    onselect: (sel) => go(context.view, { sel }, { replace: true }) });
  if (answer.results.length) addHighlights(request, list);
  say(`${plural(answer.results.length, "result")} in ${ms(answer.execution.latency_ms)}`);
  return context.put(bar, summary(answer, about.latency_target_ms), h("div", { class: "columns" },
      h("section", { "aria-label": "Results" }, params.get("why") && whyForm(context, request, params.get("why")),
        answer.results.length ? list : empty("No chunk matches", "Lower the least score, or remove a filter."),
        !params.get("why") && whyForm(context, request, null), requestAs(request)),
      wide && panel));
}

// Two configurations

async function compare(context, bar) {
  const { params, query, collection, about } = context;
  if (!["b_mode", "b_k", "b_t", "b_f", "b_rerank"].some((name) => params.has(name))) {
    return go("search", { b_mode: readConfig(params).mode === "hybrid" ? "text" : "hybrid" }, { replace: true });
  }
  const requests = ["", "b_"].map((prefix) => searchRequest(query, collection, readConfig(params, prefix)));
  const sides = await Promise.all(requests.map((request) => ask({ ...request,
    with_payload: true }).catch((error) => ({ error, results: [] }))));
  if (!context.isCurrent()) return null;
  current = sides.flatMap((side) => side.results);
  const ranks = sides.map((side) => new Map(side.results.map((result) => [result.metadata.chunk_id, result.rank])));
  const onselect = (sel) => go("search", { sel: sel === params.get("sel") ? null : sel }, { replace: true });
  const change = (result, other, isB) => {
    const was = other.get(result.metadata.chunk_id);
    const by = was && was - result.rank;
    if (was && !isB) return null;
    return h("em", { class: `move ${!was ? "new" : by > 0 ? "up" : by < 0 ? "down" : ""}` }, !was ? "only here" : by > 0
      ? `▲ ${by}` : by < 0 ? `▼ ${-by}` : "=");
  };
  const lists = sides.map((side, index) => side.error ? problem(side.error) : resultList(side.results, {
    selected: params.get("sel"), onselect, label: index ? "Results of B" : "Results of A",
      extra: (result) => change(result, ranks[1 - index], index === 1) }));
  sides.forEach((side, index) => { if (side.results.length) addHighlights(requests[index], lists[index]); });
  const joined = [...ranks[0]].filter(([id]) => ranks[1].has(id)).length;
  const lines = svg("svg", { class: "joins", "aria-hidden": "true" });
  context.put(h("div", { class: "split-bars" }, bar, configBar(context, "b_", "B")),
    h("p", { class: "dim" }, `${joined} of ${ranks[0].size} results of A are in B too; `,
      `${[...ranks[0]].filter(([id, rank]) => ranks[1].get(id) === rank).length} at the same rank. `,
      h("button", { type: "button", class: "quiet", onclick: () => go("search", { split: null }) },
        "One configuration ", h("kbd", {}, "c"))),
    h("div", { class: "split" }, ["A", "B"].map((name, index) => h("section", { "aria-label": `Configuration ${name}` },
      sides[index].error ? null : stageBar(sides[index].stages, sides[index].stages.total ?? sides[index].ms,
        about.latency_target_ms), lists[index])), lines));
  return drawJoins(lines, params.get("sel"));
}

/** Draw a line from each chunk on the left to the same one on the right. */
function drawJoins(lines, selected) {
  const split = lines?.parentElement;
  if (!split) return;
  const box = split.getBoundingClientRect();
  const [left, right] = [...split.querySelectorAll(".results")].map((list) =>
    new Map([...list.children].map((item) => [item.dataset.id, item])));
  if (!left || !right) return;
  lines.replaceChildren(...[...left].filter(([id]) => right.has(id)).map(([id, item]) => {
    const from = item.getBoundingClientRect();
    const to = right.get(id).getBoundingClientRect();
    const [x1, y1, x2, y2] = [from.right - box.left, from.top - box.top + 24, to.left - box.left,
      to.top - box.top + 24];
    const kind = Math.abs(y1 - y2) < 2 ? "same" : y2 < y1 ? "up" : "down";
    return svg("path", { class: `${kind}${id === selected ? " chosen" : ""}`,
      d: `M${x1} ${y1} C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}` });
  }));
}

const chosenItem = () => document.querySelector(".results .chosen");
export const chosenId = () => chosenItem()?.dataset.id;
export const showChosen = () => chosenItem()?.scrollIntoView({ block: "nearest" });
/** How far a key goes in a list. */
export const stepOf = (pressed) => ({ j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 })[pressed];

/** The keys of any list of results: select the next or the previous one, prove the selected one. */
export function walk(pressed) {
  const ids = [...document.querySelectorAll(".results > li")].map((item) => item.dataset.id);
  const at = ids.indexOf(chosenId()) + stepOf(pressed);
  if (pressed === "p" && chosenId()) go("proof", { id: chosenId() });
  else if (stepOf(pressed) && ids.length) {
    go(readAddress().view, { sel: ids[Math.max(0, Math.min(ids.length - 1, at))] }, { replace: true });
    requestAnimationFrame(showChosen);
  } else return false;
  return true;
}

export function key(pressed) {
  if (pressed === "c") go("search", { split: readAddress().params.get("split") ? null : "1" });
  else if (pressed === "w" && chosenId()) go("search", { why: chosenId() });
  else return walk(pressed);
  return true;
}

addEventListener("resize", () => drawJoins(document.querySelector(".joins"), readAddress().params.get("sel")));
