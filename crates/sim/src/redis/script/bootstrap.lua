-- Makes the interpreter look like that of Redis, and returns the function that runs a script.
local invoke, unpack_msgpack, sha1hex = ...
local error, pcall, tostring, type = error, pcall, tostring, type

dofile, loadfile, print, newproxy, require, module, package = nil, nil, nil, nil, nil, nil, nil
-- Their numbers would differ from run to run.
math.random, math.randomseed = nil, nil

-- An error without a code gets one.
local function with_code(text)
  text = text:gsub('^%-', '')
  return text:find(' ', 1, true) and text or 'ERR ' .. text
end

redis = {
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
  pcall = invoke,
  call = function(...)
    local reply = invoke(...)
    if type(reply) == 'table' and reply.err then
      error(reply, 0)
    end
    return reply
  end,
  error_reply = function(text) return { err = with_code(text) } end,
  status_reply = function(text) return { ok = text } end,
  log = function() end,
  replicate_commands = function() return true end,
  sha1hex = sha1hex,
}
cmsgpack = { unpack = unpack_msgpack }
KEYS, ARGV = {}, {}

setmetatable(_G, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
  __newindex = function()
    error('Attempt to modify a readonly table', 2)
  end,
})

-- Returns the reply, and the text of the error or status that it is.
return function(script, keys, arguments)
  KEYS, ARGV = keys, arguments
  local is_done, reply = pcall(script)
  if is_done then
    if type(reply) == 'table' then
      return reply, reply.err, reply.ok
    end
    return reply
  end
  if type(reply) == 'table' and reply.err then
    return nil, reply.err, nil, true
  end
  return nil, 'ERR ' .. tostring(reply), nil, true
end
