-- Puts a whole registry back where Redis has lost all of it or a part, if no other instance has yet.
--
-- KEYS: entries, order, history: see read.lua
-- ARGV: the version and stamp of the head that is there ("0" and "" for none); the version to restore; its stamp; the
--       channel to notify; how many documents there should be; then each name with its document
-- Returns "done", or "stale" if the head is another one, or nothing is missing.
local entries, order, history = KEYS[1], KEYS[2], KEYS[3]
local since, since_stamp, version, stamp, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local known = tonumber(ARGV[6])
local chunk = 1000

local head = redis.call('ZREVRANGE', history, 0, 0, 'WITHSCORES')
if (head[2] or '0') ~= since or string.match(head[1] or '', '^%S*') ~= since_stamp then
  return {'stale'}
end
if since ~= '0' then
  local ordered = redis.pcall('ZCARD', order)
  if redis.call('HLEN', entries) >= known and (type(ordered) ~= 'number' or ordered >= known) then
    return {'stale'}
  end
end
redis.call('DEL', entries, order)
for first = 7, #ARGV, 2 * chunk do
  local last = math.min(first + 2 * chunk - 1, #ARGV)
  local places = {}
  for i = first, last, 2 do
    places[#places + 1] = (i - 5) / 2
    places[#places + 1] = ARGV[i]
  end
  redis.call('HSET', entries, unpack(ARGV, first, last))
  redis.call('ZADD', order, unpack(places))
end
redis.call('ZADD', history, version, stamp .. ' *')
redis.pcall('PUBLISH', channel, version)
return {'done'}
