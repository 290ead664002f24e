
-- For each set of permits: how many are held, how many ended ones are not removed yet, and whether late ones were shortened.
local counts, ended, shortened, is_held, refusal = {}, {}, {}, {}, nil

-- Runs a command on a set of permits. Returns nothing if the key has another type or Redis refuses the command.
local function ask(...)
  local reply = pcall(...)
  if type(reply) == 'table' and reply.err then
    if not string.find(reply.err, 'WRONGTYPE', 1, true) then
      refusal = refusal or reply.err
    end
    return nil
  end
  return reply
end

-- The charges of each question are sorted by shape: rates, quotas, concurrencies. `end.lua` ends the loop.
while i < args[4] do
  local op, first = args[i], i + 4
  local rates_past = first + 3 * args[i + 1]
  local buckets_past = rates_past + 3 * args[i + 2]
  local past = buckets_past + 3 * args[i + 3]
  local permit, permit_step, marker_op, marker
  starts, ends, outside, spent = nil, nil, nil, nil
  if args[i + 2] > 0 then
    starts, ends = {}, {}
  end
  i = past
  if op >= ACQUIRE then
    permit, permit_step = args[i], op
    op = op == RELEASE and REFUND or op == RENEW and PEEK or SPEND
    i = i + 1
  elseif op >= REFUND_ONCE then
    marker_op = op
    op = op == REFUND_ONCE and REFUND or op == SETTLE and PEEK or SPEND
  end
  if op == REFUND then
    -- When the refunded amounts were spent: a moment, `true` for this window, or `false` if that is unknown.
    spent = args[i]
    if spent == true then
      spent = now
    end
    i = i + 1
  end
  if marker_op then
    -- Its bucket and its value.
    marker = i
    i = i + 2
  end
