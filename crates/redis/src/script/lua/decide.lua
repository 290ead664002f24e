
  -- The verdict, and the amount that the reply reports for a partial or a late charge.
  local verdict, step, amount = DONE, LOOK, nil
  -- Whether each cost is a difference: what is above zero is charged late, what is below is refunded.
  local settles = false
  if outside or refused_by_format then
    -- Nothing is done: no operation is left.
    verdict, op = refused_by_format and NEWER_FORMAT or OUTSIDE_WINDOWS, nil
  elseif op == SPEND then
    verdict, step = allowed and DONE or DENIED, allowed and TAKE or ASK
  elseif op == PEEK then
    verdict = allowed and DONE or DENIED
  elseif op == REFUND then
    step = GIVE
  elseif op == CHARGE then
    step, amount = LATE, 0
  elseif op == SPEND_UP_TO then
    -- A grant is a multiple of the largest quantum.
    local quantum = 1
    amount, n = MOST, 0
    for at = first, past - 1, 3 do
      n = n + 1
      amount, quantum = min(amount, available[n], args[at + 2]), max(quantum, args[args[at + 1] + 4])
    end
    amount = max(amount, 0)
    amount = amount - amount % quantum
    verdict, step = amount > 0 and DONE or DENIED, amount > 0 and TAKE or ASK
  end
