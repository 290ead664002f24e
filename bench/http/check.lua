-- One question per request, from 1,000 callers in turn: each pays under a limit that none of them can drain.
local questions = {}
for caller = 1, 1000 do
  local body = '{"ruleId":"bench","identity":"user:' .. caller .. '","capacity":1000000000,"refillPerSecond":1000000000}'
  questions[caller] = wrk.format("POST", "/v1/check", { ["Content-Type"] = "application/json" }, body)
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
