-- Sends an API key with every request, and prints one line that the script reads.
wrk.headers["X-API-Key"] = "k-acme"

done = function(summary, latency)
  local errors = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status + summary.errors.timeout
  io.write(string.format("RESULT %.0f %d %d %d %d\n", summary.requests / summary.duration * 1e6,
    latency:percentile(50), latency:percentile(99), errors, summary.requests))
end
