// Uses the types that openapi-typescript makes, by openapi-fetch. Takes the addresses of both listeners and the token.

import createClient from "openapi-fetch";
import type { components, paths } from "./spile.js";

declare const process: { argv: string[] };

const [http, admin, token] = process.argv.slice(2);
const caller = createClient<paths>({ baseUrl: `http://${http}` });
const operator = createClient<paths>({
  baseUrl: `http://${admin}`,
  headers: { Authorization: `Bearer ${token}` },
});

function assert(holds: boolean, what: unknown): asserts holds {
  if (!holds) throw new Error(JSON.stringify(what));
}

// One token in a thousand seconds: the first call spends it.
const body = { ruleId: "clients", identity: "typescript", capacity: 1, refillPerSecond: 0.001 };
const allowed = await caller.POST("/v1/check", { body });
assert(allowed.data !== undefined && allowed.data.allowed, allowed);
const denied = await caller.POST("/v1/check", { body });
assert(denied.response.status === 429 && denied.error !== undefined, denied);
assert("retryAfterMs" in denied.error && denied.error.retryAfterMs > 0, denied);

// The sample endpoint refuses with a problem document.
const ping = () => caller.GET("/api/ping", { params: { header: { "X-API-Key": "typescript" } } });
let answer = await ping();
while (answer.data !== undefined) answer = await ping();
assert(answer.error.status === 429 && "message" in answer.error, answer);

const path = { name: "typescript" };
const plan = { capacity: 7, refill: "7/min" };
const kept = await operator.PUT("/admin/v1/plans/{name}", { params: { path }, body: plan });
assert(kept.response.status === 201 && kept.data !== undefined, kept);
const shown = await operator.GET("/admin/v1/plans/{name}", { params: { path } });
assert(JSON.stringify(shown.data) === JSON.stringify(kept.data), [shown, kept]);
const taken = await operator.POST("/admin/v1/plans", { body: { ...path, ...plan } });
const problem: components["schemas"]["Problem"] | undefined = taken.error;
assert(problem !== undefined && problem.status === 409, taken);
const missing = await operator.GET("/admin/v1/plans/{name}", { params: { path: { name: "none" } } });
assert(missing.error !== undefined && missing.error.status === 404, missing);

console.log("all is well");
