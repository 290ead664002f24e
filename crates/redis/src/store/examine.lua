-- Reads the mark, or leaves a new one, and reports how Redis evicts keys.
-- KEYS[1]: the mark. ARGV: a new mark, and its time to live in milliseconds.
-- Returns the mark, empty if there was none or it may not be read; then the eviction policy, empty if there is no memory limit or the
-- user may not run INFO.
local mark = redis.pcall('GET', KEYS[1])
if type(mark) ~= 'string' then
  mark = ''
end
redis.pcall('SET', KEYS[1], mark == '' and ARGV[1] or mark, 'PX', ARGV[2])
local memory = redis.pcall('INFO', 'memory')
if type(memory) ~= 'string' or string.match(memory, 'maxmemory:(%d+)') == '0' then
  return { mark, '' }
end
return { mark, string.match(memory, 'maxmemory_policy:(%S+)') or '' }
