
-- Each question is about rates only. `end.lua` ends the loop.
while i < args[4] do
  local op, first, past = args[i], i + 2, i + 2 + 3 * args[i + 1]
  local rates_past, buckets_past = past, past
  i = past
