-- Adds what one instance has counted to the minutes of all. A batch that was added before adds nothing.
--
-- KEYS: the instance's, which holds the number of its last batch; then the hash of each minute
-- ARGV: the number of this batch; the seconds that all keys live; the most fields of a minute; then for each count which
--       minute it belongs to (1 for KEYS[2]), its field and the number
local number, ttl, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local overflow = '__overflow__'

if (tonumber(redis.call('GET', KEYS[1])) or 0) >= number then
  return 0
end
local room = {}
for i = 2, #KEYS do
  local kind = redis.call('TYPE', KEYS[i]).ok
  if kind ~= 'hash' and kind ~= 'none' then
    redis.call('DEL', KEYS[i])
  end
  room[i] = most - redis.call('HLEN', KEYS[i])
end
for i = 4, #ARGV, 3 do
  local at, field, count = tonumber(ARGV[i]) + 1, ARGV[i + 1], ARGV[i + 2]
  if room[at] <= 0 and redis.call('HEXISTS', KEYS[at], field) == 0 then
    -- What is beyond the bound is counted as one: the first four bytes say by what and which way.
    field = string.sub(field, 1, 4) .. overflow
  end
  local sum = redis.pcall('HINCRBY', KEYS[at], field, count)
  if type(sum) == 'table' then
    redis.call('HSET', KEYS[at], field, count)
  elseif tostring(sum) == count then
    room[at] = room[at] - 1
  end
end
for i = 2, #KEYS do
  -- Whoever has read the minute sees by this that it has changed since.
  if type(redis.pcall('HINCRBY', KEYS[i], 'v', 1)) == 'table' then
    redis.call('HSET', KEYS[i], 'v', 1)
  end
  redis.call('EXPIRE', KEYS[i], ttl)
end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ttl)
return 1
