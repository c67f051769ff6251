// The frame: addresses, the query line, keys, the status line. Each view is a module with `render(context)`.

import { call, onSeen, token } from "./api.js";
import { byId, h, ms, number, problem, say, show, visible } from "./dom.js";
import * as search from "./search.js";
import * as proof from "./proof.js";
import * as judge from "./judge.js";
import * as collection from "./collection.js";
import * as reports from "./reports.js";
import * as latency from "./latency.js";

const VIEWS = { search, proof, judge, collection, reports, latency };
const labelOf = (view) => view[0].toUpperCase() + view.slice(1);
const KEYS = [["/", "Write a question"], ["Esc", "Leave a field"], ["↓ ↑ or j k", "Select the next or the previous result"],
  ["c", "Compare two configurations"], ["p", "Prove the selected chunk"],
  ["w", "Ask why the selected chunk has no better rank"],
  ["0 1 2 3", "Judge view: grade the selected result, from irrelevant to perfect"], ["u", "Judge view: undo"],
  ["n", "Judge view: next question"], ["g then s p j c r l", `Go to ${Object.keys(VIEWS).map(labelOf).join(", ")}`],
  ["?", "Show this list"]];

/** What is served: from the server, or next to nothing where only the page is hosted. */
const about = { collections: [], collection: "", latency_target_ms: 2000, store: "", embedding_model: "", version: "",
  rerank: true };
const infos = new Map();

export function readAddress() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const params = new URLSearchParams(query ?? "");
  const view = Object.hasOwn(VIEWS, path) ? path : "search";
  const fallback = about.collections.includes(about.collection) || !about.collections.length ? about.collection
    : about.collections[0];
  return { view, params, collection: params.get("in") || fallback, query: params.get("q") ?? "" };
}

/** Change the address; a parameter that is null or empty is left out. */
export function go(view, changes = {}, { replace = false } = {}) {
  const { params } = readAddress();
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "" || value === false) params.delete(name);
    else params.set(name, value);
  }
  const text = params.toString();
  const hash = `#/${view}${text ? `?${text}` : ""}`;
  if (hash === location.hash) return render();
  history[replace ? "replaceState" : "pushState"](null, "", hash);
  return render();
}

/** The description of a collection, asked for once. */
export function infoOf(name) {
  if (!infos.has(name)) {
    const asked = call("GET", `/collections/${encodeURIComponent(name)}`).then(({ data }) => data);
    asked.catch(() => infos.delete(name));
    infos.set(name, asked);
  }
  return infos.get(name);
}

let shown = 0;
let ready = false;
async function render() {
  if (!ready) return;
  const address = readAddress();
  const turn = ++shown;
  document.title = `${address.query ? `${address.query} · ` : ""}${labelOf(address.view)} · Chunkproof`;
  byId("heading").textContent = labelOf(address.view);
  const input = byId("query");
  if (document.activeElement !== input || !input.value) input.value = address.query;
  byId("ask").hidden = !["search", "judge"].includes(address.view);
  document.body.dataset.view = address.view;
  renderSide(address);
  const view = byId("view");
  view.setAttribute("aria-busy", "true");
  const context = { ...address, about, isCurrent: () => turn === shown,
    put: (...children) => { if (turn === shown) show(view, ...children); } };
  try {
    await VIEWS[address.view].render(context);
  } catch (error) {
    if (!error.messages) throw error;
    context.put(problem(error), error.needsToken ? tokenForm() : null);
  } finally {
    if (turn === shown) view.removeAttribute("aria-busy");
  }
}

function renderSide(address) {
  const kept = new URLSearchParams([...address.params].filter(([name]) => ["in", "q"].includes(name))).toString();
  show(byId("nav"), Object.keys(VIEWS).map((name) => h("a", { href: `#/${name}${kept ? `?${kept}` : ""}`,
    "aria-current": name === address.view ? "page" : null }, labelOf(name))));
  const names = [...new Set([...about.collections, address.collection])].filter(Boolean);
  const select = byId("collection");
  if ([...select.options].map((option) => option.value).join("\n") !== names.join("\n")) {
    show(select, names.map((name) => h("option", { value: name }, ...visible(name))));
  }
  select.value = address.collection;
}

const tokenForm = () => {
  const field = h("input", { id: "token", type: "password", autocomplete: "off" });
  return h("form", { class: "row", onsubmit: (event) => { event.preventDefault(); token(field.value); start(); } },
    h("label", { for: "token" }, "Token of this API"), field, h("button", {}, "Use it in this tab"));
};

function renderStatus(last) {
  const parts = [about.store && ["store", about.store], about.embedding_model && ["model", about.embedding_model],
    about.version && ["version", about.version]].filter(Boolean);
  const took = last && (last.stages.total ?? last.ms);
  show(byId("status"), parts.map(([name, value]) => h("span", {}, h("b", {}, name), " ", ...visible(value))),
    last && h("span", { class: "last" }, h("b", {}, "last request"), ` ${ms(took)}, `,
      `${number((100 * took) / about.latency_target_ms, took < about.latency_target_ms / 10 ? 1 : 0)} % of the ${number(about.latency_target_ms / 1000)} s target`,
      took > about.latency_target_ms ? h("em", { class: "bad" }, " over target") : null));
}

function toggleKeys() {
  const dialog = byId("keys");
  if (dialog.open) return dialog.close();
  show(dialog, h("h2", { id: "keys-title" }, "Keys"),
    h("dl", {}, KEYS.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
    h("form", { method: "dialog" }, h("button", {}, "Close")));
  return dialog.showModal();
}

let goes = false;
function onkey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const field = event.target.closest?.("input:not([type=checkbox], [type=radio]), textarea, select");
  if (event.key === "Escape" && field) return field.blur();
  if (field || byId("keys").open) return;
  if (goes) {
    goes = false;
    const view = Object.keys(VIEWS).find((name) => name[0] === event.key);
    if (view) { event.preventDefault(); go(view); }
    return;
  }
  if (event.key === "/") { event.preventDefault(); focusQuery(); }
  else if (event.key === "?") { event.preventDefault(); toggleKeys(); }
  else if (event.key === "g") goes = true;
  else if (VIEWS[readAddress().view].key?.(event.key, event)) event.preventDefault();
}

/** Put the cursor into the query line, where everything is selected. */
export function focusQuery() {
  if (byId("ask").hidden) go("search");
  byId("query").focus();
  byId("query").select();
}

async function start() {
  try {
    Object.assign(about, (await call("GET", "/console/about")).data);
  } catch (error) {
    say(error.message);
  }
  ready = true;
  renderStatus();
  await render();
  if (!readAddress().query && readAddress().view === "search") byId("query").focus();
}

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  byId("query").blur();
  go(readAddress().view === "judge" ? "judge" : "search", { q: byId("query").value, sel: null, why: null });
});
addEventListener("popstate", render);
addEventListener("keydown", onkey);
for (const query of ["(min-width: 68rem)", "(prefers-color-scheme: dark)"]) matchMedia(query).addEventListener("change", render);
byId("collection").addEventListener("change", (event) => go(readAddress().view,
  { in: event.target.value, sel: null, f: null, b_f: null }));
byId("help").addEventListener("click", toggleKeys);
byId("skip").addEventListener("click", (event) => { event.preventDefault(); byId("view").focus(); });
onSeen(renderStatus);
start();
