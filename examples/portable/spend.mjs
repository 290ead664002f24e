// Spends from Spile's buckets by portable.lua, on ioredis.
//
// node spend.mjs portable.lua redis://127.0.0.1:6379 user:123 100

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { Redis } from "ioredis";

const TOKEN = 1_000_000; // micro-tokens
const DAY = 86_400_000_000; // microseconds

// The plan `gold`: burst = "2500, 100/day", monthly = "30000, 30000/30days". Per limit: name, capacity, refill, period.
const LIMITS = [
  ["burst", 2_500 * TOKEN, 100 * TOKEN, DAY],
  ["monthly", 30_000 * TOKEN, 30_000 * TOKEN, 30 * DAY],
];

function tag(key) {
  const escape = (found) => "%" + found.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0");
  const escaped = key.replace(/[{}%:\x00-\x1f\x7f]/g, escape);
  if (Buffer.byteLength(escaped) <= 200) return escaped;
  return "sha256:" + createHash("sha256").update(key).digest("hex").slice(0, 32).toUpperCase();
}

// Resolves to whether the request may proceed, and otherwise after how many seconds to ask again.
async function spend(redis, key, tokens) {
  const limits = LIMITS.flatMap(([name, capacity, refill, period]) => [1, name, capacity, refill, period, TOKEN, tokens * TOKEN]);
  const now = 0; // by the time of the server
  const [allowed, at, deniedBy, retryAfter, ...perLimit] = await redis.spend(1, `spile:{${tag(key)}}:gold`, now, ...limits);
  return [allowed === 1, retryAfter / 1_000_000];
}

const [script, url, key, requests] = process.argv.slice(2);
// A call whose reply was lost may have spent, so it is never sent again. ioredis does so by default.
const redis = new Redis(url, { maxRetriesPerRequest: 0 });
redis.on("error", () => {}); // `spend` rejects
redis.defineCommand("spend", { lua: readFileSync(script, "utf8") });
let allowed = 0;
let wait = 0;
try {
  for (let request = 0; request < Number(requests); request += 1) {
    const [isAllowed, seconds] = await spend(redis, key, 1);
    allowed += Number(isAllowed);
    wait = seconds;
  }
  console.log(`${allowed} allowed, the last one may be repeated after ${wait.toFixed(0)} s`);
} finally {
  redis.disconnect();
}
