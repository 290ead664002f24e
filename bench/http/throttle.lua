-- The question of check.lua as throttlecrab-server takes it.
local questions = {}
for caller = 1, 1000 do
  local body = '{"key":"user:' .. caller .. '","max_burst":1000000000,"count_per_period":1000000000,"period":1}'
  questions[caller] = wrk.format("POST", "/throttle", { ["Content-Type"] = "application/json" }, body)
end

local turn = 0
function request()
  turn = turn % #questions + 1
  return questions[turn]
end

function done(summary, latency, _)
  local errors = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status
    + summary.errors.timeout
  io.write(string.format("RESULT %.0f %d %d %d %d\n", summary.requests / (summary.duration / 1e6),
    latency:percentile(50), latency:percentile(99), errors, summary.requests))
end
