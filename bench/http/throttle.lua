-- The question of check.lua as throttlecrab-server takes it.
dofile("bench/http/questions.lua")
ask("/throttle", function(caller)
  return '{"key":"user:' .. caller .. '","max_burst":1000000000,"count_per_period":1000000000,"period":1}'
end)
