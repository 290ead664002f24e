-- Runs one or many operations in one atomic step. Each operation is a chain of charges: all are spent, or none is. Must
-- agree bit for bit with `spend`, `spend_up_to`, `refund` and `refund_once` of `spile_core`.
--
-- KEYS      the buckets. Each is listed, read and written once, however many operations use it.
-- ARGV[1]   one msgpack array of numbers, since a single unpack costs less than an argument per number:
--             sequence, now_us (0: ask TIME), number of limits,
--             per limit:    capacity (micro-tokens), rate (micro-tokens per microsecond), ttl_ms,
--             per decision: operation, number of charges, then per charge: key, limit, cost (micro-tokens).
-- Returns   sequence, now_us, repairs, then per decision the grant (1 allowed, 0 denied; for a partial spend the
--           tokens granted) and per charge the bucket afterwards: micro-tokens held, and when written. For TIME_TO_LIVE,
--           per charge PTTL + 2 and now: 0 is a missing key, 1 a key without a time to live.
--
-- A bucket is a hash of `t` (micro-tokens), `ts` (microsecond of the last write) and `v` (format, 1). Numbers stay
-- below 2^53: microseconds are exact in a Lua double, nanoseconds since the epoch are not.
-- Everything is read and decided before the first write, because a script is atomic but is not rolled back.

local SPEND, PEEK, SPEND_UP_TO, REFUND, RESET, TIME_TO_LIVE, REFUND_ONCE = 1, 2, 3, 4, 5, 6, 7
local ABSENT, LIVE, BROKEN = 0, 1, 2
local REBASE_AFTER_US = 1000000
local TOKEN = 1000000
local MOST_HELD = 1e15
local LAST_US = 9007199254740991

local call, floor, ceil, format = redis.call, math.floor, math.ceil, string.format
local args = cmsgpack.unpack(ARGV[1])
local now = args[2]
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- The state of each key: how it was found, and its tokens and time of writing, which the operations change. `held` is
-- nil for a key without state. `ttl_ms` is the longest time to live of the limits that use the key. `fills_us` is how
-- long a denied key takes to be full, and `denied` the limit that denied it last.
local found, held, written, dirty, ttl_ms, fills_us, denied = {}, {}, {}, {}, {}, {}, {}

for k = 1, #KEYS do
  local fields = redis.pcall('HMGET', KEYS[k], 't', 'ts', 'v')
  local t, ts, v = fields[1], fields[2], fields[3]
  if fields.err then
    if not string.find(fields.err, 'WRONGTYPE', 1, true) then
      return fields
    end
    found[k] = BROKEN
  elseif t or ts or v then
    t, ts = tonumber(t), tonumber(ts)
    if v == '1' and t and ts and t >= 0 and t <= MOST_HELD and t % 1 == 0
        and ts >= 0 and ts <= LAST_US and ts % 1 == 0 then
      found[k], held[k], written[k] = LIVE, t, ts
    else
      found[k] = BROKEN
    end
  else
    found[k] = ABSENT
  end
end

local out, o = { args[1], now, 0 }, 3
local available = {}
local i, last = 4 + 3 * args[3], #args
while i < last do
  local op, first, past = args[i], i + 2, i + 2 + 3 * args[i + 1]
  i = past
  o = o + 1
  if op == RESET then
    out[o] = 1
    for at = first, past - 1, 3 do
      local k = args[at]
      held[k], dirty[k] = nil, true
    end
  elseif op == TIME_TO_LIVE then
    out[o] = 1
    for at = first, past - 1, 3 do
      out[o + 1], out[o + 2] = call('PTTL', KEYS[args[at]]) + 2, now
      o = o + 2
    end
  else
    -- The tokens that each bucket has before the chain is spent, and how much the chain can grant.
    local allowed, grant = true, MOST_HELD
    for at = first, past - 1, 3 do
      local k, limit, cost = args[at], 1 + 3 * args[at + 1], args[at + 2]
      local capacity = args[limit]
      local t, there = held[k], capacity
      if t then
        local elapsed = now - written[k]
        if elapsed > 0 then
          t = t + floor(elapsed * args[limit + 1])
        end
        if t < capacity then
          there = t
        end
      end
      available[at] = there
      if there < cost then
        allowed = false
      end
      if op == SPEND_UP_TO then
        local most = floor(there / TOKEN)
        if cost < most * TOKEN then
          most = cost / TOKEN
        end
        if most < grant then
          grant = most
        end
      end
    end
    if op == SPEND_UP_TO then
      allowed = grant > 0
      out[o] = grant
    elseif op == REFUND then
      out[o] = 1
    else
      if op == REFUND_ONCE then
        allowed = available[first] >= args[first + 2]
      end
      out[o] = allowed and 1 or 0
    end

    for at = first, past - 1, 3 do
      local k, limit, cost = args[at], 1 + 3 * args[at + 1], args[at + 2]
      local t, ts = held[k], written[k]
      -- The first charge of a refund with an id is the marker, which is spent. The other charges are refunded, or
      -- peeked at if the marker was spent before.
      local step = op
      if op == REFUND_ONCE then
        step = at == first and SPEND or allowed and REFUND or PEEK
      end
      local known, rebased = t ~= nil, false
      if not known then
        t, ts = args[limit], now
      elseif ts - now > REBASE_AFTER_US then
        ts, rebased = now, true
      end
      local writes = false
      if step == SPEND or step == SPEND_UP_TO then
        local spent = cost
        if step == SPEND_UP_TO then
          spent = grant * TOKEN
          writes = allowed or rebased
        else
          writes = cost > 0 and (allowed or rebased)
        end
        if allowed and writes then
          t = available[at] - spent
          if ts < now then
            ts = now
          end
        end
      elseif step == REFUND and known and cost > 0 then
        writes = true
        t = available[at] + cost
        if t > args[limit] then
          t = args[limit]
        end
        if ts < now then
          ts = now
        end
      end
      if writes then
        held[k], written[k], dirty[k] = t, ts, true
        if args[limit + 2] > (ttl_ms[k] or 0) then
          ttl_ms[k] = args[limit + 2]
        end
      elseif denied[k] ~= limit and step ~= PEEK and cost > 0 then
        -- Once per limit: a second denial by the same limit at the same time needs no longer.
        if known then
          denied[k] = limit
          local us = (args[limit] - available[at]) / args[limit + 1]
          if ts > now then
            us = us + ts - now
          end
          if us > (fills_us[k] or 0) then
            fills_us[k] = us
          end
          if args[limit + 2] > (ttl_ms[k] or 0) then
            ttl_ms[k] = args[limit + 2]
          end
        elseif found[k] == BROKEN then
          dirty[k] = true
        end
      end
      out[o + 1], out[o + 2] = t, ts
      o = o + 2
    end
  end
end

-- A live key keeps its time to live while that still covers a whole refill, so most spends do not set it. It is read
-- with PTTL and not calculated from `ts`, because the last writer may have used a limit that refills faster. Numbers
-- are formatted by `%d`: Redis's own conversion of a Lua number takes longer than the write.
local now_text = format('%d', now)
for k in pairs(dirty) do
  local key, t, ts = KEYS[k], held[k], written[k]
  if found[k] == BROKEN then
    out[3] = out[3] + 1
    call('DEL', key)
  end
  if not t then
    if found[k] == LIVE then
      call('DEL', key)
    end
  else
    local ahead_ms, ts_text = 0, now_text
    if ts ~= now then
      ts_text = format('%d', ts)
      if ts > now then
        ahead_ms = ceil((ts - now) / 1000)
      end
    end
    if found[k] == LIVE then
      call('HSET', key, 't', format('%d', t), 'ts', ts_text)
      -- Two milliseconds cover the rounding between TIME and the clock that expires keys.
      if call('PTTL', key) < ttl_ms[k] / 2 + ahead_ms + 2 then
        call('PEXPIRE', key, ttl_ms[k] + ahead_ms)
      end
    else
      call('HSET', key, 't', format('%d', t), 'ts', ts_text, 'v', '1')
      call('PEXPIRE', key, ttl_ms[k] + ahead_ms)
    end
  end
end

-- A denial writes nothing, unless its limit refills more slowly than the limit that wrote the key. The key then gets a
-- longer time to live: it would otherwise expire, and the bucket be full, before this limit has refilled it.
for k, us in pairs(fills_us) do
  if not dirty[k] and call('PTTL', KEYS[k]) < us / 1000 + 2 then
    call('PEXPIRE', KEYS[k], ttl_ms[k])
  end
end

return out
