-- The token bucket as it is usually written: one key, plain arguments, an expiry on every write.
local stored = redis.call('HMGET', KEYS[1], 't', 'ts')
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local capacity, rate, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local held, written = tonumber(stored[1]) or capacity, tonumber(stored[2]) or now
local available = math.min(capacity, held + math.floor(math.max(0, now - written) * rate))
if available < cost then
  return { 0, available }
end
redis.call('HSET', KEYS[1], 't', available - cost, 'ts', math.max(written, now))
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return { 1, available - cost }
