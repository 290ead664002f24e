-- What the scripts for wrk share: one question per request, from 1,000 callers in turn, and a line with the results.
local questions, turn = {}, 0

-- Asks at `path`, with the body that `body_of` makes for the number of a caller.
function ask(path, body_of)
  -- Not before `init`: until then wrk does not know the host, which every request names.
  function init()
    for caller = 1, 1000 do
      questions[caller] = wrk.format("POST", path, { ["Content-Type"] = "application/json" }, body_of(caller))
    end
  end
end

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
