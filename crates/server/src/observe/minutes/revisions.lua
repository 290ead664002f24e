-- Says how often each minute was added to, so that those that have not changed need not be read. Changes nothing.
--
-- KEYS: the hash of each minute
-- Returns a number for each: 0 if there is no such minute. One that an older version alone has added to does not count its
-- changes; the number of its fields, negative, is the next best.
local revisions = {}
for i = 1, #KEYS do
  local revision = redis.pcall('HGET', KEYS[i], 'v')
  if type(revision) == 'table' then
    revision = 0
  else
    revision = tonumber(revision) or -redis.call('HLEN', KEYS[i])
  end
  revisions[i] = revision
end
return revisions
