-- Runs one or many operations in one atomic step. Each operation is a chain of charges: all are spent, or none is. Must
-- agree bit for bit with `spend`, `spend_up_to`, `charge`, `refund`, `refund_once`, `settle` and `acquire` of `spile_core`.
--
-- KEYS      the hashes of buckets, each listed, read and written once, however many operations use it: first those of one
--           bucket, then those that several limits of a plan share, then keys from before limits shared hashes. Last the
--           sorted sets of permits.
-- ARGV[1]   one msgpack array, since a single unpack costs less than an argument per number:
--             sequence, now_us (0: ask TIME), number of limits, number of hashes with one bucket,
--             per limit:    capacity (micro-tokens), rate (micro-tokens per microsecond), ttl_ms, debt (micro-tokens), quantum
--             (micro-tokens); the rate of a concurrency is 0, and in place of ttl_ms it has how long a permit is held, in milliseconds,
--             number of shapes, per shape: number of buckets and their names in the hash (empty for that of `t` and `ts`),
--             number of shared hashes, per shared hash: its shape, and 0, or 1 and per bucket the key that held it before or 0,
--             per decision: operation, number of charges, then per charge: bucket, limit, cost (micro-tokens), then for
--             operations about a permit its id. Buckets are numbered in the order of KEYS, sets of permits from -1 down to the
--             number of sets: -1 is the last key,
--             per quota:    the starts of four windows and the end of the last. In place of its rate a quota has their place,
--             below zero.
-- Returns   sequence, now_us, repairs, permits that had ended by themselves, then per decision the grant (1 allowed, 0 denied; for a
--           partial spend the micro-tokens granted, for a late charge those that no debt covers, for a settled reservation one
--           more than that; -1 if nothing was done because now is outside the windows of a quota) and per charge the bucket afterwards: micro-tokens held, and when written. For TIME_TO_LIVE,
--           per charge PTTL + 2 and now: 0 is a missing bucket, 1 a key without a time to live.
--
-- A bucket is `t` (micro-tokens, below zero if it owes some; `used` and micro-tokens for a quota) and `ts` (microsecond of the last write) in a hash with `v` (format, 1). A plan of several
-- limits has one hash for a key, with `name:t` and `name:ts` for each limit. Numbers stay below 2^53: microseconds are
-- exact in a Lua double, nanoseconds since the epoch are not.
-- The permits of a concurrency are a sorted set: the id of each, by the microsecond in which it ends.
-- Everything is read and decided before the first write, because a script is atomic but is not rolled back. Permits are
-- written by the decision that takes them: each is a step of its own, and a later one of the same call may release it.
-- Tables and functions are made where they are needed: making one takes as long as a step of a decision, and most calls decide
-- about buckets of rates that have a hash of their own.

local OUTSIDE_WINDOWS = -1
local SPEND, PEEK, SPEND_UP_TO, REFUND, RESET, TIME_TO_LIVE, REFUND_ONCE, CHARGE, SETTLE = 1, 2, 3, 4, 5, 6, 7, 8, 9
-- The first operation about a permit.
local ACQUIRE, RETAKE, RENEW, RELEASE = 10, 11, 12, 13
local ABSENT, LIVE, BROKEN = 0, 1, 2
local REBASE_AFTER_US = 1000000
local TOKEN = 1000000
local MOST_HELD = 1e15
-- Stands in `held` for a quota of which nothing has been used. What has been used is below it.
local UNUSED = -4e15
local LAST_US = 9007199254740991
-- The longest time to live, a century: a debt that was made under a fast limit takes ages to repay under a slow one.
local LONGEST_MS = 3155760000000

local call, pcall, format, tonumber = redis.call, redis.pcall, string.format, tonumber
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local args = cmsgpack.unpack(ARGV[1])
local now = args[2]
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- The state of each bucket: its tokens and time of writing, which the operations change. `held` is nil for a bucket without
-- state, and `broken` says that what was found is none.
local held, written, broken, dirty = {}, {}, {}, {}
-- For each hash: how it was found, and the longest time to live of the limits that use it.
local state, ttl_ms = {}, {}
-- After a denial: the limit that denied a bucket last, and for each hash how long a denied bucket takes to be full. After a charge
-- into debt: how long one in debt takes to be empty.
local denied, fills_us, owes_us
-- For buckets in shared hashes: their hash, and the key from before if that is where they were found.
local NONE = {}
local home, moved_from, first_bucket, fields_of, buckets = NONE, NONE, NONE, NONE, args[4]

local plain = args[4]
for k = 1, plain do
  local fields = pcall('HMGET', KEYS[k], 't', 'ts', 'v')
  local t, ts, version = fields[1], fields[2], fields[3]
  if version == '1' then
    state[k] = LIVE
    if t or ts then
      local tokens, at = tonumber(t), tonumber(ts)
      if t and not tokens then
        local used = tonumber(string.match(t, '^used (%d+)$'))
        tokens = used and used <= 2 * MOST_HELD and UNUSED - used
      elseif tokens and (tokens < -MOST_HELD or tokens > MOST_HELD or tokens % 1 ~= 0) then
        tokens = nil
      end
      if tokens and at and at >= 0 and at <= LAST_US and at % 1 == 0 then
        held[k], written[k] = tokens, at
      else
        broken[k] = true
      end
    end
  elseif fields.err and not string.find(fields.err, 'WRONGTYPE', 1, true) then
    return fields
  elseif t or ts or version or fields.err then
    state[k], broken[k] = BROKEN, true
  else
    state[k] = ABSENT
  end
end

-- Each shared hash is read by one HMGET. A shape is the list of its fields: `v`, then those of each bucket.
local i = 6 + 5 * args[3]
local shape_count = args[i - 1]
local hashes = plain
if shape_count == 0 then
  i = i + 1
else
  home, moved_from, first_bucket, fields_of = {}, {}, {}, {}
  local shapes = {}
  for shape = 1, shape_count do
    local fields = { 'v' }
    for n = 1, args[i] do
      local name = args[i + n]
      if name ~= '' then
        name = name .. ':'
      end
      fields[2 * n], fields[2 * n + 1] = name .. 't', name .. 'ts'
    end
    shapes[shape] = fields
    i = i + 1 + args[i]
  end

  -- As above, where there is no need to be as quick.
  local function read(b, t, ts)
    local tokens, at = tonumber(t), tonumber(ts)
    if t and not tokens then
      local used = tonumber(string.match(t, '^used (%d+)$'))
      tokens = used and used <= 2 * MOST_HELD and UNUSED - used
    elseif tokens and (tokens < -MOST_HELD or tokens > MOST_HELD or tokens % 1 ~= 0) then
      tokens = nil
    end
    if tokens and at and at >= 0 and at <= LAST_US and at % 1 == 0 then
      held[b], written[b] = tokens, at
    else
      broken[b] = true
    end
  end

  -- Buckets of a hash were mostly written at the same time, and to read so long a number takes a while.
  local last_ts, last_at
  hashes = plain + args[i]
  i = i + 1
  for k = plain + 1, hashes do
    local first, fields, carries_over = buckets + 1, shapes[args[i]], args[i + 1] == 1
    buckets = buckets + (#fields - 1) / 2
    first_bucket[k], fields_of[k] = first, fields
    i = i + 2
    local values = pcall('HMGET', KEYS[k], unpack(fields))
    local version = values[1]
    if values.err and not string.find(values.err, 'WRONGTYPE', 1, true) then
      return values
    end
    state[k] = version == '1' and LIVE or (version or values.err) and BROKEN or ABSENT
    for b = first, buckets do
      local f = 2 * (b - first) + 2
      local t, ts = values[f], values[f + 1]
      home[b] = k
      if t and ts and version == '1' then
        if ts ~= last_ts then
          last_ts, last_at = ts, tonumber(ts)
        end
        local tokens, at = tonumber(t), last_at
        if tokens and at and tokens >= 0 and tokens <= MOST_HELD and tokens % 1 == 0 and at >= 0 and at <= LAST_US and at % 1 == 0 then
          held[b], written[b] = tokens, at
        else
          read(b, t, ts)
        end
      elseif state[k] == BROKEN or (t or ts) and state[k] == ABSENT then
        state[k], broken[b] = BROKEN, true
      elseif t or ts then
        broken[b] = true
      elseif carries_over and args[i + b - first] > 0 then
        local before = KEYS[args[i + b - first]]
        local old = pcall('HMGET', before, 't', 'ts', 'v')
        if not old.err and old[3] == '1' then
          read(b, old[1], old[2])
          moved_from[b] = before
        end
      end
    end
    if carries_over then
      i = i + buckets - first + 1
    end
  end
end

local out, o = { args[1], now, 0, 0 }, 4
local available = {}
local last = #args
local has_permits = false
for limit = 5, 5 * args[3], 5 do
  local rate = args[limit + 1]
  if rate < 0 then
    last = last - 5
  elseif rate == 0 then
    has_permits = true
  end
end

-- The start and the end of the window that holds now, and the end of the one after it. A quota has all its tokens again when
-- the next window starts. Nil if now is not in one of the first three windows.
local window
if last < #args then
  window = function(limit)
    local w = -args[limit + 1]
    for at = w + 2, w, -1 do
      if now >= args[at] and now < args[at + 1] then
        return args[at], args[at + 1], args[at + 2]
      end
    end
  end
end

-- How many permits of each set are held, as far as they have been counted.
local permits = NONE
local places, is_held, hold_permit
if has_permits then
  permits = {}
  -- The sets from which permits were removed whose time was up, and the hold time to which those of a full set were shortened.
  local cleaned, shortened = {}, {}

  -- What Redis answers, or nil if the key has another type. Other errors end the script.
  local function ask(...)
    local reply = pcall(...)
    if type(reply) == 'table' and reply.err then
      if not string.find(reply.err, 'WRONGTYPE', 1, true) then
        call(...)
      end
      return nil
    end
    return reply
  end

  -- The micro-tokens of the free places of a concurrency. The first decision that asks for a set counts its permits.
  places = function(b, capacity, hold_ms, takes)
    local count = permits[b]
    if not count then
      local key = KEYS[#KEYS + 1 + b]
      count = ask('ZCARD', key)
      if not count then
        if not takes then
          return capacity
        end
        call('DEL', key)
        out[3] = out[3] + 1
        count = 0
      end
      if count > 0 and not takes then
        count = call('ZCOUNT', key, format('(%d', now), '+inf')
      elseif count > 0 then
        local ended = call('ZREMRANGEBYSCORE', key, '-inf', format('%d', now))
        out[4], cleaned[b] = out[4] + ended, true
        count = count - ended
      end
      permits[b] = count
    elseif takes and not cleaned[b] then
      out[4] = out[4] + call('ZREMRANGEBYSCORE', KEYS[#KEYS + 1 + b], '-inf', format('%d', now))
      cleaned[b] = true
    end
    if takes and count * TOKEN >= capacity and shortened[b] ~= hold_ms then
      -- If the clock has stepped back, permits would be held far beyond their time.
      local key, latest = KEYS[#KEYS + 1 + b], now + hold_ms * 1000
      local late = call('ZRANGEBYSCORE', key, format('(%d', latest + REBASE_AFTER_US), '+inf')
      for n = 1, #late do
        call('ZADD', key, format('%d', latest), late[n])
      end
      shortened[b] = hold_ms
    end
    return max(capacity - count * TOKEN, 0)
  end

  -- Whether a permit is held.
  is_held = function(b, id)
    local ends = ask('ZSCORE', KEYS[#KEYS + 1 + b], id)
    return ends and tonumber(ends) > now
  end

  -- Notes a permit until its time is up, or prolongs it.
  hold_permit = function(b, id, hold_ms, is_new)
    local key = KEYS[#KEYS + 1 + b]
    call('ZADD', key, format('%d', now + hold_ms * 1000), id)
    shortened[b] = nil
    if is_new then
      permits[b] = permits[b] + 1
    end
    -- Permits that were taken under a longer hold time are not cut short.
    if is_new and permits[b] == 1 or call('PTTL', key) < hold_ms + 2 then
      call('PEXPIRE', key, 2 * hold_ms + 2)
    end
  end
end

while i < last do
  local op, first, past = args[i], i + 2, i + 2 + 3 * args[i + 1]
  i = past
  o = o + 1
  local id
  if op >= ACQUIRE then
    id = args[past]
    i = past + 1
  end
  if op == RESET then
    out[o] = 1
    for at = first, past - 1, 3 do
      local b = args[at]
      if b < 0 then
        call('DEL', KEYS[#KEYS + 1 + b])
        if permits[b] then
          permits[b] = 0
        end
      else
        held[b], dirty[b] = nil, true
      end
    end
  elseif op == TIME_TO_LIVE then
    out[o] = 1
    for at = first, past - 1, 3 do
      local b = args[at]
      local there = held[b] or broken[b]
      if b < 0 then
        out[o + 1], out[o + 2] = call('PTTL', KEYS[#KEYS + 1 + b]) + 2, now
      else
        out[o + 1], out[o + 2] = there and call('PTTL', moved_from[b] or KEYS[home[b] or b]) + 2 or 0, now
      end
      o = o + 2
    end
  else
    -- The tokens that each bucket has before the chain is spent, and how much the chain can grant.
    local allowed, grant, quantum, outside, n = true, MOST_HELD, 1, false, 0
    local step_of_permit = id and op
    if id then
      op = op == RELEASE and REFUND or op == RENEW and PEEK or SPEND
    end
    local renews, released = true, nil
    for at = first, past - 1, 3 do
      local b, limit, cost = args[at], 5 * args[at + 1], args[at + 2]
      local capacity, rate = args[limit], args[limit + 1]
      local t, there = held[b], capacity
      if rate == 0 then
        -- RENEW and RELEASE skip the count and report the set as free.
        if step_of_permit == RENEW then
          renews = renews and is_held(b, id)
        elseif step_of_permit == RELEASE then
          if is_held(b, id) then
            released = released or {}
            released[b] = true
          end
        else
          there = places(b, capacity, args[limit + 2], id)
        end
        if step_of_permit == RETAKE and is_held(b, id) then
          there = there + TOKEN
        end
      elseif rate < 0 then
        local start = window(limit)
        outside = outside or not start
        if t and t <= UNUSED then
          t = capacity - (UNUSED - t)
        elseif t then
          -- What a rate held says nothing of the quota that takes its place; what it owed is owed.
          t = capacity + min(t, 0)
        end
        if t and start and written[b] >= start and t < capacity then
          there = t
        end
      elseif t then
        if t <= UNUSED then
          t = max(capacity - (UNUSED - t), 0)
        end
        local elapsed = now - written[b]
        if elapsed > 0 then
          -- Rounded down, without a call.
          local gained = elapsed * rate
          t = t + (gained - gained % 1)
        end
        if t < capacity then
          there = t
        end
      end
      n = n + 1
      available[n] = there
      if there < cost or cost == 0 and there < args[limit + 4] then
        allowed = false
      end
      if op == SPEND_UP_TO then
        grant, quantum = max(min(grant, there, cost), 0), max(quantum, args[limit + 4])
      end
    end
    grant = grant - grant % quantum
    if outside then
      op, out[o] = PEEK, OUTSIDE_WINDOWS
    elseif op == SPEND_UP_TO then
      allowed = grant > 0
      out[o] = grant
    elseif op == REFUND then
      out[o] = 1
    elseif op == CHARGE then
      out[o] = 0
    else
      if op == REFUND_ONCE then
        allowed = available[1] >= args[first + 2]
      elseif op == SETTLE then
        -- A reservation is open while its marker, the first charge, is not full. Its cost is what the others cost in the end.
        allowed = held[args[first]] ~= nil and available[1] < args[5 * args[first + 1]]
      end
      out[o] = allowed and 1 or 0
    end
    if step_of_permit == RENEW and not outside then
      out[o] = renews and 1 or 0
    elseif step_of_permit == RELEASE and not outside then
      -- A permit that is not held has nothing to refund: it was released before, or its acquisition never ran.
      op, out[o] = released and REFUND or PEEK, released and 1 or 0
    end

    local grant_at, reserved_at = o, op == SETTLE and written[args[first]]
    n = 0
    for at = first, past - 1, 3 do
      local b, limit, cost = args[at], 5 * args[at + 1], args[at + 2]
      local t, ts = held[b], written[b]
      n = n + 1
      -- The first charge of a refund with an id is the marker, which is spent. The other charges are refunded, or
      -- peeked at if the marker was spent before.
      local step = op
      if op == REFUND_ONCE then
        step = at == first and SPEND or allowed and REFUND or PEEK
      end
      local capacity, rate = args[limit], args[limit + 1]
      if op == SETTLE then
        step = PEEK
        local actual = args[first + 2]
        if not allowed then
          cost = 0
        elseif n == 1 then
          held[b], dirty[b] = nil, true
        elseif n == 2 then
          -- The count of open reservations.
          step = REFUND
        elseif actual > cost then
          step, cost = CHARGE, actual - cost
        elseif actual < cost and (rate >= 0 or reserved_at >= window(limit)) then
          -- What was reserved in an earlier window of a quota is not given back to this one.
          step, cost = REFUND, cost - actual
        end
      end
      if rate == 0 then
        local there, hold_ms = available[n], args[limit + 2]
        if id and not outside then
          if step_of_permit == RELEASE then
            if released and released[b] then
              call('ZREM', KEYS[#KEYS + 1 + b], id)
              permits[b] = permits[b] and permits[b] - 1
            end
          elseif step_of_permit == RENEW then
            if renews then
              hold_permit(b, id, hold_ms, false)
            end
          elseif allowed then
            hold_permit(b, id, hold_ms, step_of_permit == ACQUIRE or not is_held(b, id))
            there = there - TOKEN
          end
        end
        t, ts, step, cost = there, now, PEEK, 0
      end
      local known, rebased = t ~= nil, false
      if not known then
        t, ts = rate < 0 and UNUSED or capacity, now
      elseif ts - now > REBASE_AFTER_US then
        -- The clock has stepped back so far that waiting for it to catch up would lock the key out.
        local _, next_end
        if rate < 0 then
          _, _, next_end = window(limit)
        end
        if rate >= 0 or next_end and ts >= next_end then
          ts, rebased = now, true
        end
      end
      -- What the bucket holds afterwards, if that changes.
      local left
      local writes = false
      if step == SPEND then
        writes = rebased or cost > 0 and allowed
        left = cost > 0 and allowed and available[n] - cost
      elseif step == SPEND_UP_TO then
        writes = allowed or rebased
        left = allowed and available[n] - grant
      elseif step == REFUND and known and cost > 0 then
        left = min(available[n] + cost, capacity)
      elseif step == CHARGE and cost > 0 then
        -- A bucket that owes more than the limit allows now is not forgiven.
        left = max(available[n] - cost, min(-args[limit + 3], available[n]))
        local uncovered = cost - (available[n] - left) + (op == SETTLE and 1 or 0)
        if uncovered > out[grant_at] then
          out[grant_at] = uncovered
        end
      end
      if left then
        writes = true
        t = rate < 0 and UNUSED - (capacity - left) or left
        if ts < now then
          ts = now
        end
      end
      if moved_from[b] and step ~= PEEK and cost > 0 then
        writes = true
      end
      if writes then
        local k = home[b] or b
        held[b], written[b], dirty[b] = t, ts, true
        if args[limit + 2] > (ttl_ms[k] or 0) then
          ttl_ms[k] = args[limit + 2]
        end
        if t < 0 and rate > 0 then
          owes_us = owes_us or {}
          owes_us[k] = max(-t / rate, owes_us[k] or 0)
        end
      elseif step ~= PEEK and not (denied and denied[b] == limit) then
        -- Once per limit: a second question under the same limit at the same time needs no longer.
        if known then
          if not denied then
            denied, fills_us = {}, {}
          end
          local k = home[b] or b
          denied[b] = limit
          local us
          if rate < 0 then
            -- A bucket of the next window is full when that has ended.
            local _, window_end, next_end = window(limit)
            us = (ts < window_end and window_end or next_end) - now
          else
            us = (capacity - available[n]) / rate
          end
          if rate >= 0 and ts > now then
            us = us + ts - now
          end
          if us > (fills_us[k] or 0) then
            fills_us[k] = us
          end
          if args[limit + 2] > (ttl_ms[k] or 0) then
            ttl_ms[k] = args[limit + 2]
          end
        elseif broken[b] then
          dirty[b] = true
        end
      end
      out[o + 1], out[o + 2] = t, ts
      o = o + 2
    end
  end
end

-- A live hash keeps its time to live while that still covers a whole refill, so most spends do not set it. It is read
-- with PTTL and not calculated from `ts`, because the last writer may have used a limit that refills faster. Numbers
-- are formatted by `%d`: Redis's own conversion of a Lua number takes longer than the write.
local now_text = format('%d', now)

-- Most buckets are written here. The others need more.
local others
for k = 1, plain do
  if dirty[k] then
    local t, key = held[k], KEYS[k]
    if not t or t < 0 or written[k] ~= now or broken[k] then
      others = others or {}
      others[#others + 1] = k
    elseif state[k] == LIVE then
      call('HSET', key, 't', format('%d', t), 'ts', now_text)
      if call('PTTL', key) < ttl_ms[k] / 2 + 2 then
        call('PEXPIRE', key, ttl_ms[k])
      end
    else
      call('HSET', key, 't', format('%d', t), 'ts', now_text, 'v', '1')
      call('PEXPIRE', key, ttl_ms[k])
    end
  end
end

if others or hashes > plain then
  -- The tokens of a bucket as they are stored.
  local function text_of_tokens(t)
    if t > UNUSED then
      return format('%d', t)
    end
    return format('used %d', UNUSED - t)
  end

  -- The time of writing as text, and by how many milliseconds it is ahead of now.
  local function text_of(ts)
    if ts == now then
      return now_text, 0
    end
    return format('%d', ts), ts > now and ceil((ts - now) / 1000) or 0
  end

  -- Two milliseconds cover the rounding between TIME and the clock that expires keys.
  local function keep(k, ahead_ms)
    if owes_us and owes_us[k] then
      ahead_ms = ahead_ms + ceil(owes_us[k] / 1000)
    end
    if state[k] ~= LIVE or call('PTTL', KEYS[k]) < min(ttl_ms[k] / 2 + ahead_ms + 2, LONGEST_MS / 2) then
      call('PEXPIRE', KEYS[k], min(ttl_ms[k] + ahead_ms, LONGEST_MS))
    end
  end

  -- Removes fields of a live hash, and the hash if no bucket is left in it, or if Redis does not let this user remove fields.
  local function remove(k, ...)
    if state[k] == LIVE then
      local removed = pcall('HDEL', KEYS[k], ...)
      if type(removed) == 'table' or pcall('HLEN', KEYS[k]) == 1 then
        call('DEL', KEYS[k])
        state[k] = ABSENT
      end
    end
  end

  -- Counts a repair. What has no known format goes as a whole.
  local function repair(k)
    out[3] = out[3] + 1
    if state[k] == BROKEN then
      call('DEL', KEYS[k])
      state[k] = ABSENT
    end
  end

  for _, k in ipairs(others or NONE) do
    local t, ts, key = held[k], written[k], KEYS[k]
    if broken[k] then
      repair(k)
    end
    if t then
      local ts_text, ahead_ms = text_of(ts)
      call('HSET', key, 't', text_of_tokens(t), 'ts', ts_text, 'v', '1')
      keep(k, ahead_ms)
    else
      remove(k, 't', 'ts')
    end
  end

  local sets = {}
  for k = plain + 1, hashes do
    local first, fields, n, ahead_ms = first_bucket[k], fields_of[k], 0, 0
    for b = first, first + (#fields - 1) / 2 - 1 do
      if dirty[b] then
        local f = 2 * (b - first) + 2
        if broken[b] then
          repair(k)
        end
        if moved_from[b] then
          call('DEL', moved_from[b])
        end
        if held[b] then
          local t, ts_text = held[b], now_text
          if written[b] ~= now then
            local ahead
            ts_text, ahead = text_of(written[b])
            ahead_ms = max(ahead_ms, ahead)
          end
          sets[n + 1], sets[n + 2] = fields[f], t >= 0 and format('%d', t) or text_of_tokens(t)
          sets[n + 3], sets[n + 4] = fields[f + 1], ts_text
          n = n + 4
        else
          remove(k, fields[f], fields[f + 1])
        end
      end
    end
    if n > 0 then
      if state[k] ~= LIVE then
        sets[n + 1], sets[n + 2] = 'v', '1'
        n = n + 2
      end
      call('HSET', KEYS[k], unpack(sets, 1, n))
      if owes_us or ahead_ms > 0 or state[k] ~= LIVE or call('PTTL', KEYS[k]) < ttl_ms[k] / 2 + 2 then
        keep(k, ahead_ms)
      end
      if fills_us then
        fills_us[k] = nil
      end
    end
  end
end

-- A denial writes nothing, unless its limit refills more slowly than the limit that wrote the key. The key then gets a
-- longer time to live: it would otherwise expire, and the bucket be full, before this limit has refilled it.
if fills_us then
  for k, us in pairs(fills_us) do
    if (k > plain or not dirty[k]) and call('PTTL', KEYS[k]) < us / 1000 + 2 then
      call('PEXPIRE', KEYS[k], min(max(ttl_ms[k], ceil(us / 1000) + 2), LONGEST_MS))
    end
  end
end

return out
