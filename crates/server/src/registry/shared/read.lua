-- Reads the registry: a page of all that is there, or what has changed since a version. Changes nothing.
--
-- KEYS: entries  a hash: name to document
--       order    a sorted set: the names of the entries, by the version that last changed them
--       history  a sorted set: "stamp name" of the latest changes, by version
-- ARGV: the version and its stamp that the reader has ("0" and "" for none); where pages go on ("" for changes
--       instead of pages); how many bytes a page may hold
-- Returns the head's version and stamp; "done", "more" or "lost"; the version and stamp that this page leads to; how many
-- documents there are; how many of those and of the names in the order, whichever are fewer; then each name with its document, or with nothing where it is gone. "lost" means that the reader's version is not
-- part of this history, or too far back: start over.
local entries, order, history = KEYS[1], KEYS[2], KEYS[3]
local since, stamp, after, most_bytes = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local most_items = 1000

local head = redis.call('ZREVRANGE', history, 0, 0, 'WITHSCORES')
local head_version, head_stamp = head[2] or '0', string.match(head[1] or '', '^%S*')
local documents = redis.call('HLEN', entries)
local count = documents
-- A user who may not count the order still reads: documents are counted in any case.
local ordered = redis.pcall('ZCARD', order)
if type(ordered) == 'number' and ordered < count then
  count = ordered
end
documents, count = string.format('%.0f', documents), string.format('%.0f', count)
local function lost()
  return {head_version, head_stamp, 'lost', '0', '', documents, count}
end

if since ~= '0' then
  local there = redis.call('ZRANGEBYSCORE', history, since, since)[1]
  if not there or string.match(there, '^%S*') ~= stamp then
    return lost()
  end
elseif head_version ~= '0' then
  return lost()
elseif redis.call('EXISTS', entries) == 1 then
  return redis.error_reply('SPILE ' .. entries .. ' is there and ' .. history .. ' is not')
end

local from = after == '' and since or after
local source = after == '' and history or order
local found = redis.call('ZRANGEBYSCORE', source, '(' .. from, '+inf', 'WITHSCORES', 'LIMIT', 0, most_items)
local state = #found == 2 * most_items and 'more' or 'done'
local page = {head_version, head_stamp, state, from, stamp, documents, count}
local bytes = 0
for i = 1, #found, 2 do
  local name, version = found[i], found[i + 1]
  if after == '' then
    page[5], name = string.match(name, '^(%S+) (.*)$')
    if name == '*' then
      return lost()
    end
  end
  local document = redis.call('HGET', entries, name)
  if not document and after ~= '' then
    return redis.error_reply('SPILE ' .. order .. ' lists ' .. name .. ', which ' .. entries .. ' lacks')
  end
  if document and #document > most_bytes then
    return redis.error_reply('SPILE ' .. name .. ' has ' .. #document .. ' bytes')
  end
  page[4] = version
  page[#page + 1] = name
  page[#page + 1] = document
  bytes = bytes + #name + (document and #document or 0)
  if bytes > most_bytes and i + 1 < #found then
    page[3] = 'more'
    break
  end
end
return page
