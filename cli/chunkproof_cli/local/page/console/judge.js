// Judge: grade results by keyboard; the suite grows beside them.

import { call, origin, searchRequest, shell } from "./api.js";
import { focusQuery, go, readAddress } from "./console.js";
import { code, empty, h, plural, problem, ring, say } from "./dom.js";
import { addHighlights, ask, chosenId, configBar, readConfig, resultList, showChosen, walk } from "./search.js";

// The first line of a suite that the console wrote; the server rewrites no other file.
const MARKER = "# Written by the console of `chunkproof serve`, which rewrites the whole file.\n";
const GRADES = ["irrelevant", "related", "good", "perfect"];
/** Cases by question, collection and filters: { query, collection, k, f, judgments: { id: grade } }. */
let cases = null;
let past = [];
let saved = { state: "", error: null };
let about = {};

const keyOf = (one) => JSON.stringify([one.query, one.collection, one.f]);
const place = () => `chunkproof-judged ${about.store} ${about.suite_file ?? ""}`;
const isWritten = (one) => Object.values(one.judgments).some((grade) => grade > 0);

// YAML reads these as line ends, refuses them, or lets them reverse the direction of a text.
const ESCAPED = /[\u007f-\u009f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]/g;
const RESERVED = /^(true|false|yes|no|on|off|null|y|n)$/i;

/** Write a text so that YAML reads exactly this text. */
export function scalar(text) {
  if (/^[A-Za-z][\w-]*( [\w-]+)*$/.test(text) && !RESERVED.test(text)) return text;
  return JSON.stringify(text).replace(ESCAPED, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

const flow = (value) => {
  if (Array.isArray(value)) return `[${value.map(flow).join(", ")}]`;
  if (value && typeof value === "object") return `{${Object.entries(value).map(([key, of]) => `${scalar(key)}: ${flow(of)}`).join(", ")}}`;
  return typeof value === "string" ? scalar(value) : JSON.stringify(value);
};

function slug(query, taken) {
  const words = query.toLowerCase().normalize("NFKD").match(/[a-z0-9]+/g) ?? ["question"];
  const base = words.join("-").slice(0, 60).replace(/-$/, "");
  let name = base;
  for (let count = 2; taken.has(name); count += 1) name = `${base}-${count}`;
  taken.add(name);
  return name;
}

/** The suite as `chunkproof suite run` reads it. A question without a relevant result expects nothing and waits. */
export function toYaml(all) {
  const written = all.filter(isWritten);
  if (!written.length) return "";
  const collection = written[0].collection;
  const taken = new Set();
  const lines = written.map((one) => [`  - name: ${scalar(slug(one.query, taken))}`,
    `    query_text: ${scalar(one.query)}`,
    one.collection !== collection && `    collection_name: ${scalar(one.collection)}`, `    top_k: ${one.k}`,
    Object.keys(one.f).length && `    filters: ${flow(one.f)}`, "    judgments:",
    ...Object.entries(one.judgments).map(([id, grade]) => `      ${scalar(id)}: ${grade}`)].filter(Boolean).join("\n"));
  return `${MARKER}name: ${scalar(`judged ${collection}`)}\ncollection: ${scalar(collection)}\ncases:\n${lines.join("\n\n")}\n`;
}

function fromDocument(document) {
  return (document?.cases ?? []).map((one) => ({ query: one.query_text,
    collection: one.collection_name ?? document.collection, k: one.top_k ?? 10,
    f: one.filters ?? {}, judgments: one.judgments ?? {} }));
}

async function load() {
  let stored = [];
  try { stored = JSON.parse(localStorage.getItem(place()) ?? "[]"); } catch { /* begin anew */ }
  if (about.suite_file) {
    const { data } = await call("GET", "/console/suite");
    // The file is what counts; it has no questions without a relevant result.
    stored = [...fromDocument(data.document), ...stored.filter((one) => !isWritten(one))];
    saved = { state: data.yaml ? `Saved in ${data.file}` : "", error: null };
  }
  cases = new Map(stored.map((one) => [keyOf(one), one]));
}

let writing = Promise.resolve();
let waiting = false;
function save() {
  localStorage.setItem(place(), JSON.stringify([...cases.values()]));
  if (!about.suite_file || waiting) return;
  // One after another, each with all judgments so far: an older suite must not be written last.
  waiting = true;
  writing = writing.then(async () => {
    waiting = false;
    const yaml = toYaml([...cases.values()]);
    if (!yaml) return;
    try {
      const { data } = await call("POST", "/console/suite", { yaml });
      saved = { state: `Saved in ${data.file}`, error: null };
    } catch (error) {
      saved = { state: "", error };
    }
    if (readAddress().view === "judge") go("judge", {}, { replace: true });
  });
}

function currentCase({ query, collection, params }) {
  const { k, f } = readConfig(params);
  const one = { query, collection, k, f, judgments: {} };
  return cases.get(keyOf(one)) ?? one;
}

function grade(context, id, value) {
  const one = currentCase(context);
  past.push([keyOf(one), id, one.judgments[id]]);
  one.judgments[id] = value;
  one.k = Math.max(one.k, readConfig(context.params).k);
  cases.set(keyOf(one), one);
  save();
  say(`${GRADES[value]}, ${plural(Object.keys(one.judgments).length, "judgment")}`);
  go("judge", { sel: null }, { replace: true });
}

function undo() {
  const [key, id, before] = past.pop() ?? [];
  const one = cases.get(key);
  if (!one) return;
  if (before === undefined) delete one.judgments[id];
  else one.judgments[id] = before;
  if (!Object.keys(one.judgments).length) cases.delete(key);
  save();
  say("undone");
  go("judge", { q: one.query, in: one.collection, sel: id }, { replace: true });
}

function gradeButtons(context, one, result) {
  const id = result.metadata.chunk_id;
  const given = one.judgments[id];
  return h("span", { class: "grades", role: "group", "aria-label": "Grade" }, GRADES.map((word, value) => h("button", {
    type: "button", class: "quiet", title: word, "aria-label": `${value} ${word}`, "aria-pressed": String(given === value),
    onclick: () => grade(context, id, value) }, String(value))));
}

const download = (yaml) => h("a", { href: `data:application/yaml,${encodeURIComponent(yaml)}`,
  download: "judged.yaml" }).click();

function suitePanel(context, done, all) {
  const list = [...cases.values()];
  const yaml = toYaml(list);
  const waiting = list.filter((one) => !isWritten(one)).length;
  const total = list.reduce((sum, one) => sum + Object.keys(one.judgments).length, 0);
  const hybrid = readConfig(context.params).mode !== "dense";
  return h("aside", { class: "suite", "aria-label": "The suite" },
    h("div", { class: "progress" }, ring(all ? done / all : 0, `${done}/${all}`, `${done} of ${all} results judged`), h("div", {}, h("strong", {}, plural(total, "judgment")),
      h("p", { class: "dim" }, plural(list.length, "question")))),
    h("p", { class: "actions" }, h("button", { type: "button", onclick: focusQuery }, "Next question ",
      h("kbd", {}, "n")),
      h("button", { type: "button", disabled: !past.length, onclick: undo }, "Undo ", h("kbd", {}, "u")),
      h("button", { type: "button", disabled: !yaml, onclick: () => download(yaml) }, "Download")),
    saved.error ? problem(saved.error) : h("p", { class: saved.state ? "good" : "dim" }, saved.state
      ? `✓ ${saved.state}` : about.suite_file ? "Saved with the first relevant result."
      : "Kept in this browser. Start chunkproof serve with --suite FILE to save it to a file."),
    waiting > 0 && h("p", { class: "note" },
      `${plural(waiting, "question")} without a relevant result ${waiting === 1 ? "is" : "are"} not written yet: such a case would expect nothing.`),
    hybrid && h("p", { class: "note" },
      "A suite searches by meaning; results that only another mode finds may fail there."),
    yaml ? [code(yaml, "Suite"), h("h3", {}, "Run it"),
      code(`chunkproof suite run ${shell(about.suite_file ?? "judged.yaml")} --api ${shell(origin)}`, "Command")] : null);
}

export async function render(context) {
  about = context.about;
  if (cases === null) await load();
  const { query, collection, params } = context;
  if (!query.trim()) {
    return context.put(configBar(context), h("div", { class: "columns" },
      empty("Ask a question, then grade what comes back",
      ["Press ", h("kbd", {}, "/"), ", then ", h("kbd", {}, "0"), " to ", h("kbd", {}, "3"),
        " for each result: 0 is irrelevant, 3 is perfect."]), suitePanel(context, 0, 0)));
  }
  const request = searchRequest(query, collection, readConfig(params));
  const answer = await ask({ ...request, with_payload: true });
  if (!context.isCurrent()) return null;
  const one = currentCase(context);
  const isJudged = (result) => one.judgments[result.metadata.chunk_id] !== undefined;
  const chosen = answer.results.find((result) => result.metadata.chunk_id === params.get("sel"))
    ?? answer.results.find((result) => !isJudged(result)) ?? answer.results.at(-1);
  const list = resultList(answer.results, { selected: chosen?.metadata.chunk_id,
    onselect: (sel) => go("judge", { sel }, { replace: true }), inside: null,
    foot: (result) => gradeButtons(context, one, result) });
  if (answer.results.length) addHighlights(request, list);
  context.put(configBar(context), h("div", { class: "columns" },
    answer.results.length ? list : empty("No chunk matches", "Lower the least score, or remove a filter."),
    suitePanel(context, answer.results.filter(isJudged).length, answer.results.length)));
  shownContext = context;
  return showChosen();
}

let shownContext = null;
export function key(pressed) {
  if (/^[0-3]$/.test(pressed) && chosenId() !== undefined) grade(shownContext, chosenId(), Number(pressed));
  else if (pressed === "u") undo();
  else if (pressed === "n") focusQuery();
  else return walk(pressed);
  return true;
}

