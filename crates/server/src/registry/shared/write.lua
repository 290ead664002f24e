-- Changes one entry of the registry, if nothing was changed or lost since the writer looked. Running it once more with
-- the same stamp changes nothing and says the same.
--
-- KEYS: entries, order, history: see read.lua
-- ARGV: the version and stamp that the writer has; the stamp of this change; the channel to notify; how many documents
--       there are as far as the writer knows; the name; and its document, which is left out where the entry goes
-- Returns "done" and the version of this change, or "stale".
local entries, order, history = KEYS[1], KEYS[2], KEYS[3]
local since, stamp, own, channel, known, name = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
local document = ARGV[7]
local most_history = 1024
local change = own .. ' ' .. name

local done = redis.call('ZSCORE', history, change)
if done then
  return {'done', done}
end
local head = redis.call('ZREVRANGE', history, 0, 0, 'WITHSCORES')
if (head[2] or '0') ~= since or string.match(head[1] or '', '^%S*') ~= stamp then
  return {'stale'}
end
-- A key of another type fails here, where nothing is written yet.
redis.call('HEXISTS', entries, name)
redis.call('ZSCORE', order, name)
-- Documents that others deleted are put back before a change builds on the rest.
local ordered = redis.pcall('ZCARD', order)
if redis.call('HLEN', entries) < known or (type(ordered) == 'number' and ordered < known) then
  return {'stale'}
end

local version = string.format('%.0f', tonumber(since) + 1)
if document then
  redis.call('HSET', entries, name, document)
  redis.call('ZADD', order, version, name)
else
  redis.call('HDEL', entries, name)
  redis.call('ZREM', order, name)
end
redis.call('ZADD', history, version, change)
redis.call('ZREMRANGEBYRANK', history, 0, -(most_history + 1))
-- A user who may not publish still writes: instances also poll.
redis.pcall('PUBLISH', channel, version)
return {'done', version}
