
  -- The amount that each quota has left in the window that holds now. The call brings four windows around the time that its sender
  -- expected: if now is in none of the first three, nothing is done and the sender asks again.
  for at = rates_past, buckets_past - 1, 3 do
    local bucket, limit, cost = args[at], args[at + 1], args[at + 2]
    local bounds, window_start, window_end, next_end = args[limit + 1], now, now, LAST_US
    for bound = bounds, bounds + 2 do
      if now >= args[bound] and now < args[bound + 1] then
        window_start, window_end, next_end = args[bound], args[bound + 1], args[bound + 2]
      end
    end
    outside = outside or window_end == now
    local used, used_until, there = held[bucket], written[bucket], args[limit]
    if used then
      if used_until > next_end then
        -- The clock stepped back, or the windows have changed.
        rebased = rebased or {}
        used_until, rebased[bucket] = window_end, window_end
      end
      if now < used_until and used > 0 then
        there = there - used
      end
    elseif newer and newer[bucket] then
      refused_by_format = true
    end
    n = n + 1
    available[n], starts[n], ends[n] = there, window_start, window_end
    if there < cost or cost == 0 and there < args[limit + 4] then
      allowed = false
    end
  end
