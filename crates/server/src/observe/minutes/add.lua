-- Adds the counts of one instance to the shared minutes. A batch that was already added changes nothing.
--
-- KEYS: the key of the instance, which holds the number of its last batch; then the hash of each minute
-- ARGV: the number of this batch; the time to live of all keys in seconds; the most fields of a minute; then for each count
--       the index of its minute (1 for KEYS[2]), its field and the number
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
    -- Beyond the bound, names are counted together. The first four bytes are the group and the outcome.
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
  -- The revision shows readers that the minute has changed.
  if type(redis.pcall('HINCRBY', KEYS[i], 'v', 1)) == 'table' then
    redis.call('HSET', KEYS[i], 'v', 1)
  end
  redis.call('EXPIRE', KEYS[i], ttl)
end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ttl)
return 1
