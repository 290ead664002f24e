
  if marker_op and op then
    local bucket, value = args[marker], args[marker + 1]
    local state = held[bucket] and now < written[bucket] and held[bucket] or nil
    if newer and newer[bucket] then
      verdict, step, amount = NEWER_FORMAT, LOOK, nil
    elseif marker_op == SETTLE then
      verdict, amount = state == 0 and BEFORE or UNKNOWN, 0
      if state and state > 0 then
        local ends_at = written[bucket] - MARKER_US
        verdict, spent = now < ends_at and DONE or EXPIRED, ends_at - state
      end
      if verdict == DONE then
        settles, held[bucket], dirty[bucket], settled_at[bucket] = true, 0, true, value
      end
    elseif state then
      verdict, step = BEFORE, LOOK
      if marker_op == RESERVE then
        verdict, step = DENIED, ASK
      end
    elseif verdict == DONE then
      -- A reservation writes the time in which it can be settled, and a refund one token.
      written[bucket] = now + (marker_op == RESERVE and value or 0) + MARKER_US
      held[bucket], dirty[bucket], full_at[bucket], keep_ms_of[bucket] = value, true, written[bucket], 0
    end
  elseif op == RESET then
    writes = true
    for at = first, buckets_past - 1, 3 do
      held[args[at]], written[args[at]], dirty[args[at]] = nil, nil, true
    end
    for at = buckets_past, past - 1, 3 do
      ask('DEL', KEYS[k + args[at]])
      counts[args[at]], wrote = 0, 1
      available[(at - first) / 3 + 1] = args[args[at + 1]]
    end
  end
