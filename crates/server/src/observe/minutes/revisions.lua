-- Reads the revision of each minute, so that unchanged ones need not be read. Changes nothing.
--
-- KEYS: the hash of each minute
-- Returns a number for each: 0 if there is no such minute. A minute that only an older version of Spile has written has no
-- revision; its revision is the negative number of its fields.
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
