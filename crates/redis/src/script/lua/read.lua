
-- Reads each hash once, however many questions are about it. Hashes with the same fields form one list: `v`, then two numbers per
-- bucket. `held` is nil for a bucket without state, and `broken` marks one whose state cannot be read.
local ABSENT, LIVE, BROKEN = 0, 1, 2
local lists, last_hash, state = {}, {}, {}
local held, written, broken, newer = {}, {}, {}, nil
local i, k, b = 6, 0, 0
-- Buckets of a hash were mostly written at the same time, and a number of sixteen digits takes a while to read.
local last_text, last_time
for list = 1, args[5] do
  local fields = { 'v' }
  for n = 1, args[i] do
    fields[n + 1] = args[i + n]
  end
  i = i + args[i] + 1
  for key = k + 1, k + args[i] do
    -- Most hashes have one bucket.
    local values = fields[4] and pcall('HMGET', KEYS[key], unpack(fields)) or pcall('HMGET', KEYS[key], 'v', fields[2], fields[3])
    local version = values[1]
    if version == '1' then
      state[key] = LIVE
      for f = 2, #fields, 2 do
        b = b + 1
        local amount, time = values[f], values[f + 1]
        if amount or time then
          if time ~= last_text then
            last_text, last_time = time, tonumber(time)
          end
          amount, time = tonumber(amount), last_time
          if amount and time and amount >= -MOST and amount <= MOST and amount % 1 == 0 and time >= 0 and time <= LAST_US and time % 1 == 0 then
            held[b], written[b] = amount, time
          else
            broken[b] = true
          end
        end
      end
    else
      if values.err and not string.find(values.err, 'WRONGTYPE', 1, true) then
        return { args[1], values.err, 0 }
      end
      local number = tonumber(version)
      local is_newer = number and number > 1 and number % 1 == 0
      local is_broken = version or values.err
      for f = 2, #fields do
        is_broken = is_broken or values[f]
      end
      state[key] = is_broken and BROKEN or ABSENT
      for _ = 2, #fields, 2 do
        b = b + 1
        if is_newer then
          newer = newer or {}
          newer[b] = true
        end
        broken[b] = is_broken and true or nil
      end
    end
  end
  k = k + args[i]
  i = i + 1
  lists[list], last_hash[list] = fields, k
end
