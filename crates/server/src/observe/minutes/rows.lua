-- Reads as many minutes as fit into one reply. Changes nothing.
--
-- KEYS: the hash of each minute, in order
-- ARGV: the most bytes of the reply; at least one minute is read
-- Returns the fields and counts of the first minutes, a list for each.
local most, bytes, minutes = tonumber(ARGV[1]), 0, {}
for i = 1, #KEYS do
  local fields = redis.pcall('HGETALL', KEYS[i])
  if fields.err then
    -- Another program has written another type to this key.
    fields = {}
  end
  minutes[i] = fields
  for j = 1, #fields do
    bytes = bytes + #fields[j]
  end
  if bytes > most then
    break
  end
end
return minutes
