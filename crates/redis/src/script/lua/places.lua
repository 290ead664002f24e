
  -- The free places of each concurrency. A step that takes a permit also removes ended ones; RENEW and RELEASE report all as free.
  local held_by_all, held_by_any = true, false
  local counts_places, takes = permit_step ~= RENEW and permit_step ~= RELEASE, permit and op == SPEND
  for at = buckets_past, past - 1, 3 do
    local set, limit, cost = args[at], args[at + 1], args[at + 2]
    local key, there = KEYS[k + set], args[limit]
    n = n + 1
    local ends_at = permit and permit_step ~= ACQUIRE and ask('ZSCORE', key, permit)
    is_held[n] = ends_at and tonumber(ends_at) > now
    held_by_all, held_by_any = held_by_all and is_held[n], held_by_any or is_held[n]
    if takes and not ended[set] then
      local count = ask('ZCARD', key)
      if not count and not refusal then
        -- Tries a write that needs memory before the deletion, because Redis checks its memory only before the first write.
        ask('ZADD', key, 0, permit)
        if not refusal then
          ask('DEL', key)
          out[3] = out[3] + 1
        end
      end
      counts[set] = count and count > 0 and ask('ZCOUNT', key, '(' .. now_text, '+inf') or 0
      ended[set] = (count or 0) - counts[set]
      out[4] = out[4] + ended[set]
    elseif counts_places and not counts[set] then
      counts[set] = ask('ZCOUNT', key, '(' .. now_text, '+inf') or 0
    end
    if refusal then
      return { args[1], refusal, wrote }
    end
    if counts_places then
      there = max(there - counts[set] * TOKEN, 0)
    end
    if takes and there == 0 and shortened[set] ~= args[limit + 1] then
      -- If the clock has stepped back, permits would be held far beyond their hold time, which their ids have as a power of two.
      local hold_ms = args[limit + 1]
      local late = ask('ZRANGEBYSCORE', key, format('(%d', now + hold_ms * 1000 + REBASE_AFTER_US), '+inf', 'WITHSCORES')
      for index = 1, #(late or NONE), 2 do
        local own_ms = 2 ^ min(tonumber(late[index]:sub(13, 14), 16) or 0, 27)
        local latest = now + max(hold_ms, own_ms) * 1000
        if tonumber(late[index + 1]) > latest + REBASE_AFTER_US then
          ask('ZADD', key, format('%d', latest), late[index])
        end
      end
      shortened[set] = args[limit + 1]
    end
    if permit_step == RETAKE and is_held[n] then
      there = there + TOKEN
    end
    available[n] = there
    if there < cost or cost == 0 and there < args[limit + 4] then
      allowed = false
    end
  end
