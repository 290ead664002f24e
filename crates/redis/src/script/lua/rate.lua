
  -- The amount that each rate has before the question is decided.
  local allowed, refused_by_format, rebased, n = true, nil, nil, 0
  for at = first, rates_past - 1, 3 do
    local bucket, limit, cost = args[at], args[at + 1], args[at + 2]
    local amount, there = held[bucket], args[limit]
    if amount then
      local elapsed = now - written[bucket]
      if elapsed > 0 then
        -- Rounded down, without a call.
        local gained = elapsed * args[limit + 1]
        amount = amount + (gained - gained % 1)
      elseif elapsed < -REBASE_AFTER_US then
        -- The clock stepped back so far that waiting for it to catch up would lock the key out.
        rebased = rebased or {}
        rebased[bucket] = now
      end
      if amount < there then
        there = amount
      end
    elseif newer and newer[bucket] then
      refused_by_format = true
    end
    n = n + 1
    available[n] = there
    if there < cost or cost == 0 and there < args[limit + 4] then
      allowed = false
    end
  end
