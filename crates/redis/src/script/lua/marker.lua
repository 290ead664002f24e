
  if op == REFUND_ONCE then
    -- The first charge is the marker, which the first refund spends.
    local is_new = available[1] >= args[first + 2]
    verdict, step = is_new and DONE or BEFORE, is_new and GIVE or LOOK
    steps, costs = { is_new and TAKE or ASK }, NONE
  elseif op == SETTLE then
    -- The first charge is the marker, at the actual cost, and the second the count of open reservations.
    local marker, actual = args[first], args[first + 2]
    amount, verdict = 0, BEFORE
    if held[marker] and available[1] < args[args[first + 1]] then
      steps, costs, verdict = { LOOK, GIVE }, { 0 }, DONE
      for index = 3, n do
        local more = actual - args[first + 3 * index - 1]
        steps[index], costs[index] = more > 0 and LATE or GIVE, max(more, -more)
        if more < 0 and starts[index] and written[marker] < starts[index] then
          -- An earlier window of a quota gets nothing back.
          costs[index] = 0
        end
      end
      held[marker], written[marker], dirty[marker] = nil, nil, true
    end
  elseif op == RESET then
    for at = first, buckets_past - 1, 3 do
      held[args[at]], written[args[at]], dirty[args[at]] = nil, nil, true
    end
    for at = buckets_past, past - 1, 3 do
      ask('DEL', KEYS[k + args[at]])
      counts[args[at]], wrote = 0, 1
    end
  end
