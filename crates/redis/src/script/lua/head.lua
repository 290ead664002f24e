-- Decides one or many questions in one atomic step: every charge of a question is spent, or none is.
--
-- LAYOUT.md has the tables of KEYS, ARGV and the reply. Must agree bit for bit with `decide` of `spile_core`. Numbers stay below
-- 2^53: microseconds are exact in a Lua double, nanoseconds since the epoch are not.
--
-- All that is read is read before the first write, because a script is atomic but is not rolled back. A command that Redis
-- refuses ends the call with `{ sequence, error, wrote }`, so that a call that wrote nothing can be sent again in parts.

local SPEND, PEEK, SPEND_UP_TO, CHARGE, REFUND = 1, 2, 3, 4, 5
local RESET, REFUND_ONCE, RESERVE, SETTLE = 6, 7, 8, 9
local ACQUIRE, RETAKE, RENEW, RELEASE = 10, 11, 12, 13
local DENIED, DONE, BEFORE, EXPIRED, UNKNOWN, OUTSIDE_WINDOWS, NEWER_FORMAT = 0, 1, 2, 3, 4, 5, 6
-- How an operation changes its charges. ASK changes nothing, but the buckets have to outlive the question. LOOK writes nothing.
local TAKE, GIVE, LATE, ASK, LOOK = 1, 2, 3, 4, 5
local TOKEN = 1000000
local REBASE_AFTER_US = 1000000
-- How long a marker outlives the time in which it counts.
local MARKER_US = 3600000000
local MOST = 2e15
local LAST_US = 9007199254740991
-- The longest time to live: a debt that was made under a fast limit takes ages to repay under a slow one.
local CENTURY_MS = 3155760000000
local NONE = {}

local KEYS, pcall, format, tonumber, type, unpack = KEYS, redis.pcall, string.format, tonumber, type, unpack
local ceil, min, max = math.ceil, math.min, math.max
local args = { cmsgpack.unpack(ARGV[1]) }
local now = args[2]
if now == 0 then
  local time = pcall('TIME')
  if time.err then
    return { args[1], time.err, 0 }
  end
  now = time[1] * 1000000 + time[2]
end
local now_text = format('%d', now)
-- Tables that a lone question fills begin with room for its entries, because growing a table takes longer than filling it.
local out, o = { args[1], now, 0, 0, nil, nil, nil }, 4
-- Whether anything was written: 1 or 0.
local wrote = 0
