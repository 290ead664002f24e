
  -- Takes, keeps or releases the permit, and reports the free places.
  for at = buckets_past, past - 1, 3 do
    local set, hold_ms = args[at], args[args[at + 1] + 1]
    local key, done = KEYS[k + set], nil
    n = n + 1
    local there = available[n]
    if verdict == DONE and permit_step == RELEASE and is_held[n] then
      done = ask('ZREM', key, permit)
      counts[set] = counts[set] and counts[set] - 1
    elseif verdict == DONE and permit and permit_step ~= RELEASE then
      done = ask('ZADD', key, format('%d', now + hold_ms * 1000), permit)
      shortened[set] = nil
      if permit_step ~= RENEW then
        there = there - TOKEN
        counts[set] = counts[set] + (done or 0)
      end
    end
    if takes and ended[set] > 0 and not refusal then
      -- After the permit was written, because Redis checks its memory only before the first write. One that had ended may be held again.
      counts[set] = counts[set] + ended[set] - (ask('ZREMRANGEBYSCORE', key, '-inf', now_text) or 0)
      ended[set] = 0
    end
    -- The only permit of a set needs no other time to live. Permits that were taken under a longer hold time are not cut short.
    if done and permit_step ~= RELEASE and (counts[set] == 1 and not is_held[n] or (ask('PTTL', key) or -1) < hold_ms + 2) then
      ask('PEXPIRE', key, 2 * hold_ms + 2)
    end
    wrote = done and 1 or wrote
    if refusal then
      return { args[1], refusal, wrote }
    end
    out[o + 1], out[o + 2] = there, now
    o = o + 2
  end
