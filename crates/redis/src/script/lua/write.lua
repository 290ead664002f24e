
if not writes then
  return out
end

-- Writes each hash once. `expire.lua` ends the loops. Numbers are formatted by `%d`: Redis's conversion of a Lua number takes longer
-- than the write.
local sets = { nil, nil, nil, nil }
i, k, b = 6, 0, 0
for _ = 1, args[5] do
  local first = i + 1
  i = first + args[i]
  for key = k + 1, k + args[i] do
    local name, is_live, n, full, keep_ms, repairs, removed = KEYS[key], state[key] == LIVE, 0, 0, 0, false, nil
    for f = first, i - 2, 2 do
      b = b + 1
      local bucket_full, amount = full_at[b], held[b]
      if bucket_full then
        full = bucket_full > full and bucket_full or full
        keep_ms = keep_ms_of[b] > keep_ms and keep_ms_of[b] or keep_ms
      end
      if dirty[b] then
        repairs = repairs or broken[b]
        if amount then
          sets[n + 1], sets[n + 2] = args[f], format('%d', amount)
          sets[n + 3], sets[n + 4] = args[f + 1], written[b] == now and now_text or format('%d', written[b])
          n = n + 4
          if settled_at and settled_at[b] then
            sets[n + 1], sets[n + 2] = args[f + 2], settled_at[b]
            n = n + 2
          end
        else
          removed = removed or {}
          removed[#removed + 1], removed[#removed + 2] = args[f], args[f + 1]
        end
      end
    end
    if repairs or removed then
      local reply = 0
      if repairs then
        out[3] = out[3] + 1
      end
      if repairs and state[key] == BROKEN then
        reply = pcall('DEL', name)
      elseif removed and is_live then
        reply = pcall('HDEL', name, unpack(removed))
        if reply ~= 0 and n == 0 and pcall('HLEN', name) == 1 then
          -- Only the version is left.
          reply = pcall('DEL', name)
        end
      end
      if type(reply) == 'table' then
        return { args[1], reply.err, wrote }
      end
      wrote = reply > 0 and 1 or wrote
    end
    if n > 0 then
      if not is_live then
        sets[n + 1], sets[n + 2] = 'v', '1'
        n = n + 2
      end
      local reply = n == 4 and pcall('HSET', name, sets[1], sets[2], sets[3], sets[4]) or pcall('HSET', name, unpack(sets, 1, n))
      -- A hash that has the fields gains none. To ask for the type takes longer.
      if reply ~= 0 and type(reply) == 'table' then
        return { args[1], reply.err, wrote }
      end
      wrote = 1
    end
