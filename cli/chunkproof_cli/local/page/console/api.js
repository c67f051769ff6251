// The public API, and what its responses said about time.

const base = document.querySelector("meta[name=chunkproof-api]")?.content.replace(/\/$/, "") || ".";
export const origin = base === "." ? new URL(".", location.href).href.replace(/\/$/, "") : base;
/** Every answered request of this page, oldest first: route, status, stages in ms. */
export const seen = [];
const MOST_SEEN = 5000;
const watchers = new Set();
export const onSeen = (watcher) => watchers.add(watcher);

export class ApiError extends Error {
  constructor(messages, code, requestId) {
    super(messages[0]);
    Object.assign(this, { messages, code, requestId, needsToken: code === "401" || code === "403" });
  }
}

/** Read a Server-Timing header into milliseconds by stage. */
export function readStages(header) {
  const stages = {};
  for (const [, name, value] of (header ?? "").matchAll(/([\w-]+);dur=([\d.]+)/g)) stages[name] = Number(value);
  return stages;
}

/** The token of a deployed API: kept for this tab only. */
export const token = (value) => {
  if (value !== undefined) sessionStorage.setItem("chunkproof-token", value);
  return sessionStorage.getItem("chunkproof-token") ?? "";
};

/** Call a route; `quiet` keeps the page's own look at more of the same results out of the statistics. */
export async function call(method, path, body, { query, quiet = path.startsWith("/console/") } = {}) {
  const headers = body === undefined ? {} : { "content-type": "application/json" };
  if (token()) headers.authorization = `Bearer ${token()}`;
  const address = base + path + (query ? `?${new URLSearchParams(query)}` : "");
  const started = performance.now();
  let response;
  try {
    response = await fetch(address, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new ApiError([`${origin} does not answer. Is chunkproof serve still running?`]);
  }
  const text = await response.text();
  const took = performance.now() - started;
  let data = null;
  try { data = JSON.parse(text); } catch { /* a gateway's own page */ }
  const stages = readStages(response.headers.get("server-timing"));
  const entry = { route: `${method} ${path}`, status: response.status, at: new Date(), stages, ms: took,
    query: body?.query_text };
  if (!quiet) {
    seen.push(entry);
    if (seen.length > MOST_SEEN) seen.shift();
    watchers.forEach((watcher) => watcher(entry));
  }
  if (response.ok && data !== null) return { data, entry };
  const messages = data?.errors?.length ? data.errors : [data?.message ?? `${response.status} ${response.statusText}`];
  throw new ApiError(messages, data?.error?.code ?? String(response.status), response.headers.get("x-request-id"));
}

/** The body of POST /search for a configuration; fields at their defaults are left out. */
export function searchRequest(query, collection, config) {
  const request = { query_text: query, collection, top_k: config.k };
  if (config.mode !== "dense") request.mode = config.mode;
  if (config.t > 0 && config.mode !== "text") request.similarity_threshold = config.t;
  if (Object.keys(config.f).length) request.filters = config.f;
  if (config.rerank) request.rerank = true;
  return request;
}

export const shell = (text) => (/^[\w./:@%+=,-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

/** The last word of a command, which is no option even if it begins with a dash. */
export const argument = (text) => `${text.startsWith("-") ? "-- " : ""}${shell(text)}`;

const python = (value) => {
  if (value === null) return "None";
  if (value === true || value === false) return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([key, of]) => `${JSON.stringify(key)}: ${python(of)}`).join(", ")}}`;
  return JSON.stringify(value);
};

/** The same request for a terminal, a script and a notebook. */
export function snippets(request) {
  const { query_text: query, collection, top_k: k, similarity_threshold: threshold, filters = {}, mode,
    rerank } = request;
  const cli = ["chunkproof search", `-k ${k}`, mode && `--mode ${mode}`, threshold && `--threshold ${threshold}`,
    ...Object.entries(filters).map(([field, value]) => `--filter ${shell(`${field}=${JSON.stringify(value)}`)}`),
    rerank && "--rerank", `--collection ${shell(collection)}`, `--api ${shell(origin)}`, argument(query)];
  const fields = [`top_k=${k}`, threshold && `threshold=${threshold}`, mode && `mode="${mode}"`,
    Object.keys(filters).length && `filters=${python(filters)}`, rerank && "rerank=True"];
  return {
    curl: `curl -s ${shell(`${origin}/search`)} -d ${shell(JSON.stringify(request))}`,
    CLI: cli.filter(Boolean).join(" "),
    Python: `from chunkproof import connect\n\nwith connect(collection=${JSON.stringify(collection)}) as chunkproof:\n` +
      `    response = chunkproof.search(${JSON.stringify(query)}, ${fields.filter(Boolean).join(", ")})`,
  };
}
