-- Spends from the rates of one key in one atomic step: every limit covers its cost and is charged, or none is.
-- A public protocol: any Redis client can call it and share buckets with Spile, bit for bit. LAYOUT.md explains it.
-- KEYS     one hash per plan, all with the same hash tag: spile:{user%3A123}:gold
-- ARGV     the time, or 0 for the server's; then 7 per limit: the number of its hash in KEYS, its name in the hash ('' for the
--          only limit of a plan), capacity, refill, period, quantum, cost
-- Returns  1 if allowed, else 0; the time; the number of the limit that denied, or 0; the wait until that covers its cost; then 2
--          per limit: the amount available, and the wait until it is full
-- Amounts are micro-tokens and times are microseconds: whole numbers below 2^53, exact in a double.
local REBASE_AFTER_US, CENTURY_MS, MOST, LAST_US = 1000000, 3155760000000, 2e15, 9007199254740991
local MAX_AMOUNT, MAX_RATE, MAX_FILL_S = 1e15, 1e9, 315619200
local ceil, floor, format, max, min = math.ceil, math.floor, string.format, math.max, math.min
local function whole(text, least, most)
  local number = tonumber(text)
  return number and number >= least and number <= most and number % 1 == 0 and number or nil
end

local time = tonumber(ARGV[1]) == 0 and redis.call('TIME')
local now = time and time[1] * 1000000 + time[2] or whole(ARGV[1], 1, LAST_US)

-- The wait until a bucket that held `held` when `written` has `wanted`. The quotient may have been rounded down onto a whole one.
local function wait_for(wanted, held, written, rate)
  local wait = ceil((wanted - held) / rate)
  wait = floor(wait * rate) < wanted - held and wait + 1 or wait
  return min(max(wait - (now - written), 0), LAST_US)
end

local is_allowed, steps, reply, seen, is_broken, is_shorter, full_at, keep_ms = true, {}, { 1, now, 0, 0 }, {}, {}, {}, {}, {}
for at = 2, max(#ARGV, 2), 7 do
  local n, key, name, capacity, refill, period, quantum, cost = #steps + 1, KEYS[tonumber(ARGV[at])], unpack(ARGV, at + 1, at + 6)
  capacity, refill, period = whole(capacity, 1, MAX_AMOUNT), whole(refill, 1, MAX_AMOUNT), whole(period, 1, LAST_US)
  quantum, cost = whole(quantum, 1, capacity or 0), whole(cost, 0, LAST_US)
  local rate, prefix = refill and period and refill / period, name == '' and '' or (name or '') .. ':'
  local t, ts, bucket = prefix .. 't', prefix .. 'ts', (key or '') .. ' ' .. prefix
  if not (now and key and rate and quantum and cost) or rate > MAX_RATE or capacity / 1e6 / rate > MAX_FILL_S or seen[bucket] then
    return redis.error_reply('BADARGS limit ' .. n .. ' repeats a bucket, or an argument is missing or out of bounds')
  end
  if cost > capacity then return redis.error_reply('ABOVECAPACITY limit ' .. n .. ' can never cover its cost') end
  local stored = redis.pcall('HMGET', key, 'v', t, ts)
  if stored.err and not string.find(stored.err, 'WRONGTYPE', 1, true) then return stored end
  if whole(stored[1], 2, math.huge) then return redis.error_reply('NEWERFORMAT limit ' .. n .. ' has a newer format') end
  -- A bucket without state is full, and so is one whose state cannot be read.
  local is_live, has_state = stored[1] == '1', stored.err or stored[2] or stored[3]
  local held, written = is_live and whole(stored[2], -MOST, MOST), whole(stored[3], 0, LAST_US)
  local is_read = held and written
  -- The clock stepped back so far that waiting for it to catch up would lock the key out.
  local is_rebased = is_read and written - now > REBASE_AFTER_US
  held, written = is_read and held or capacity, is_read and not is_rebased and written or now
  local available, asked = min(held + floor(max(now - written, 0) * rate), capacity), cost > 0 and cost or quantum
  is_allowed, seen[bucket] = is_allowed and available >= asked, true
  is_broken[key] = is_broken[key] or not is_live and (has_state or stored[1]) or nil
  -- Runs when all limits are known: all is read before the first write, because a script is atomic but is not rolled back.
  steps[n] = function()
    local is_charged = is_allowed and cost > 0
    if is_charged then available, held, written = available - cost, available - cost, max(written, now) end
    if is_charged or is_rebased then
      redis.call('HSET', key, t, format('%d', held), ts, format('%d', written), 'v', '1')
    elseif is_live and has_state and not is_read then
      is_shorter[key] = redis.call('HDEL', key, t, ts)
    end
    if is_charged or is_read then
      -- A new hash gets a time to live, however soon it is full.
      full_at[key] = max(full_at[key] or 0, is_live and 0 or now + 1, written + (capacity - held) / rate)
      keep_ms[key] = max(keep_ms[key] or 0, 2000 * max(ceil(wait_for(capacity, 0, now, rate) / 1e6), 1))
    end
    local wait = not is_allowed and available < asked and wait_for(asked, held, written, rate) or 0
    reply[3], reply[4] = wait > reply[4] and n or reply[3], max(wait, reply[4])
    reply[2 * n + 3], reply[2 * n + 4] = available, available < capacity and wait_for(capacity, held, written, rate) or 0
  end
end
reply[1] = is_allowed and 1 or 0
for key in pairs(is_broken) do redis.call('DEL', key) end
for _, step in ipairs(steps) do step() end
for key in pairs(is_shorter) do if redis.call('HLEN', key) == 1 then redis.call('DEL', key) end end
for key, full in pairs(full_at) do
  local needed_ms = (full - now) / 1000 + 2
  if full > now and redis.call('PTTL', key) < needed_ms then
    redis.call('PEXPIRE', key, format('%d', min(max(keep_ms[key], ceil(needed_ms)), CENTURY_MS)))
  end
end
return reply
