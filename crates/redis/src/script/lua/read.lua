
-- Reads each hash once, however many questions are about it. Hashes with the same fields form one list: `v`, then two numbers per
-- bucket. `held` is nil for a bucket without state, and `broken` marks one whose state cannot be read. `state` is nil for an absent hash.
-- `settled_at` has the amounts beside the marker of a settled reservation.
local LIVE, BROKEN = 1, 2
local state = { nil }
local held, written, broken, newer, settled_at = { nil }, { nil }, {}, nil, nil
local i, k, b = 6, 0, 0
-- Buckets of a hash were mostly written at the same time, and a number of sixteen digits takes a while to read.
local last_text, last_time
for _ = 1, args[5] do
  local first, count = i + 1, args[i]
  i = first + count
  local amount_field, time_field = args[first], args[first + 1]
  for key = k + 1, k + args[i] do
    local values
    if count == 2 then
      -- Most hashes have one bucket.
      values = pcall('HMGET', KEYS[key], 'v', amount_field, time_field)
    else
      values = pcall('HMGET', KEYS[key], 'v', unpack(args, first, i - 1))
      if count == 3 then
        settled_at = settled_at or {}
        settled_at[b + 1] = values[4]
      end
    end
    local version = values[1]
    if version == '1' then
      state[key] = LIVE
      for f = 2, count, 2 do
        b = b + 1
        local amount, time = values[f], values[f + 1]
        if amount or time then
          if time ~= last_text then
            last_text, last_time = time, tonumber(time)
            if last_time and (last_time < 0 or last_time > LAST_US or last_time % 1 ~= 0) then
              last_time = nil
            end
          end
          amount = tonumber(amount)
          if amount and last_time and amount >= -MOST and amount <= MOST and amount % 1 == 0 then
            held[b], written[b] = amount, last_time
          else
            broken[b] = true
          end
        end
      end
    else
      if values.err and not string.find(values.err, 'WRONGTYPE', 1, true) then
        return { args[1], values.err, 0 }
      end
      local number = version and tonumber(version)
      local is_newer = number and number > 1 and number % 1 == 0
      local is_broken = version or values.err
      for f = 2, count + 1 do
        is_broken = is_broken or values[f]
      end
      state[key] = is_broken and BROKEN or nil
      for _ = 2, count, 2 do
        b = b + 1
        if is_newer then
          newer = newer or {}
          newer[b] = true
        end
        if is_broken then
          broken[b] = true
        end
      end
    end
  end
  k = k + args[i]
  i = i + 1
end

-- For each bucket: whether it has to be written, when it will be full at the latest, and the longest time to live of its limits.
local dirty, full_at, keep_ms_of = { nil }, { nil }, { nil }
local available, starts, ends, outside, spent = { nil }, nil, nil, nil, nil
-- Whether a question may change a hash or its time to live.
local writes = false
i = args[3]
