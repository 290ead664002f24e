
-- For each bucket: whether it has to be written, when it will be full at the latest, and the longest time to live of its limits.
local dirty, full_at, keep_ms_of = { nil }, { nil }, { nil }
local available, starts, ends, outside, spent = { nil }, nil, nil, nil, nil
-- Whether a question may change a hash or its time to live.
local writes = false
i = args[3]
-- Each question is about rates only. `answer.lua` ends the loop.
while i < args[4] do
  local op, first, past = args[i], i + 2, i + 2 + 3 * args[i + 1]
  local rates_past, buckets_past = past, past
  i = past
