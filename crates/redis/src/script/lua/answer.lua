
  -- Changes the buckets, and answers the question with how they are afterwards.
  local grant, amount_at = op == SPEND_UP_TO and amount, o + 2
  writes = writes or step ~= LOOK or settles
  out[o + 1], o = verdict, o + 1
  if amount then
    out[o + 1], o = amount, o + 1
  end
  n = 0
  for at = first, buckets_past - 1, 3 do
    local bucket, limit, step, cost = args[at], args[at + 1], step, grant or args[at + 2]
    n = n + 1
    if settles then
      step, cost = cost > 0 and LATE or GIVE, cost > 0 and cost or -cost
    end
    local capacity, there, window_end = args[limit], available[n], ends and ends[n]
    local value, time, left = held[bucket], rebased and rebased[bucket] or written[bucket], nil
    if cost > 0 and step ~= LOOK then
      if step == TAKE then
        left = there - cost
      elseif step == LATE then
        -- A debt that is deeper than the limit allows now is not forgiven.
        left = max(there - cost, min(-args[limit + 3], there))
        out[amount_at] = max(out[amount_at], cost - (there - left))
      elseif step == GIVE and value then
        -- A quota takes nothing back from another window. A clock that was slightly ahead has written one of the next.
        local from = window_end and (time > window_end and window_end or starts[n])
        if not from or spent and from <= spent and spent < time then
          left = min(there + cost, capacity)
        end
      end
    end
    if left then
      value, time = left, time and time > now and time or now
      if window_end then
        value, time = capacity - left, max(time, window_end)
      end
      held[bucket], written[bucket], dirty[bucket] = value, time, true
    elseif not value then
      value, time = window_end and 0 or capacity, now
      dirty[bucket] = dirty[bucket] or broken[bucket] and step ~= LOOK
    elseif rebased and rebased[bucket] and (step == TAKE or step == ASK) then
      written[bucket], dirty[bucket] = time, true
    end
    if step ~= LOOK and held[bucket] then
      -- A refund or late charge of nothing leaves a bucket that is ahead of the clock as it is.
      local full = written[bucket] + (window_end and 0 or (capacity - value) / args[limit + 1])
      local keep_ms, known = args[limit + 2], full_at[bucket]
      if not known or full > known then
        full_at[bucket] = full
      end
      if not known or keep_ms > keep_ms_of[bucket] then
        keep_ms_of[bucket] = keep_ms
      end
    end
    out[o + 1], out[o + 2] = value, time
    o = o + 2
  end
