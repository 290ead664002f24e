-- Puts a whole registry back where Redis has lost it, if nobody else has yet.
--
-- KEYS: entries, order, history: see read.lua
-- ARGV: the version to stand at; its stamp; the channel to tell; then each name with its document
-- Returns "done", or "stale" where there is a registry.
local entries, order, history = KEYS[1], KEYS[2], KEYS[3]
local version, stamp, channel = ARGV[1], ARGV[2], ARGV[3]
local chunk = 1000

if redis.call('EXISTS', history) == 1 then
  return {'stale'}
end
redis.call('DEL', entries, order)
for first = 4, #ARGV, 2 * chunk do
  local last = math.min(first + 2 * chunk - 1, #ARGV)
  local places = {}
  for i = first, last, 2 do
    places[#places + 1] = (i - 2) / 2
    places[#places + 1] = ARGV[i]
  end
  redis.call('HSET', entries, unpack(ARGV, first, last))
  redis.call('ZADD', order, unpack(places))
end
redis.call('ZADD', history, version, stamp .. ' *')
redis.pcall('PUBLISH', channel, version)
return {'done'}
