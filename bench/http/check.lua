-- Each caller pays under a limit that none of them can drain.
dofile("bench/http/questions.lua")
ask("/v1/check", function(caller)
  return '{"ruleId":"bench","identity":"user:' .. caller .. '","capacity":1000000000,"refillPerSecond":1000000000}'
end)
