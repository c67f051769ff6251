// Runs the verifier of docs/verify.html in node: a line {"text", "keys", "query"} in, a line of verdicts out.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const page = readFileSync(new URL("../../docs/verify.html", import.meta.url), "utf-8");
const source = page.split('<script id="verifier">')[1].split("</script>")[0];
const { parse, verify, readKey } = new Function(`${source}; return { parse, verify, readKey };`)();
const keys = new Map();
for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  for (const key of asked.keys) if (!keys.has(key)) keys.set(key, await readKey(key));
  try {
    const claims = await verify(parse(asked.text), asked.keys.map(key => keys.get(key)), asked.query ?? null);
    console.log(JSON.stringify(Object.fromEntries(claims.map(claim => [claim.name, claim.verdict]))));
  } catch { console.log("{}"); }  // it is no receipt
}
