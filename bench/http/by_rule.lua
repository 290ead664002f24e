-- By a rule that every configuration has, from 1,000 tenants.
dofile("bench/http/questions.lua")
ask("/v1/check", function(caller) return '{"ruleId":"rule-0","identity":"tenant:tenant-' .. (caller - 1) .. '"}' end)
