
if not writes then
  return out
end

-- Writes each hash once. Its time to live covers the time until all buckets that were asked about are full, and is never shortened.
-- It is read with PTTL and not worked out from the fields, because the last writer may have used other limits. Numbers are
-- formatted by `%d`: Redis's conversion of a Lua number takes longer than the write.
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
    if full > now or n > 0 and not is_live then
      local needed_ms = (full - now) / 1000 + 2
      local reply = is_live and pcall('PTTL', name) or -1
      local is_error = type(reply) == 'table'
      if not is_error and reply < needed_ms then
        reply = pcall('PEXPIRE', name, format('%d', min(max(keep_ms, ceil(needed_ms)), CENTURY_MS)))
        wrote, is_error = reply == 1 and 1 or wrote, type(reply) == 'table'
      end
      if is_error then
        return { args[1], reply.err, wrote }
      end
    end
  end
  k = k + args[i]
  i = i + 1
end
return out
