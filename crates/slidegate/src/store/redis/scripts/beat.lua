-- An instance says that it is there, and hears who else is. KEYS[1] is the sorted set of all, ARGV[1] this one's
-- member, ARGV[2] for how many ms it counts as alive, ARGV[3] the most that are told.
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - ARGV[2]))
-- Those from a time that is yet to come: the clock was put back.
call('ZREMRANGEBYSCORE', KEYS[1], string.format('%.0f', now + ARGV[2]), '+inf')
call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
call('PEXPIRE', KEYS[1], string.format('%.0f', 2 * ARGV[2]))
return call('ZRANGE', KEYS[1], '0', string.format('%.0f', ARGV[3] - 1))
