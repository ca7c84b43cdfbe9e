-- An instance says that it is there, and hears who else is. KEYS[1] is the sorted set of all, KEYS[2] a hash of the
-- masters that each is in sync with. ARGV[1] is this one's member, ARGV[2] for how many ms it counts as alive, ARGV[3]
-- the most that are told, ARGV[4] the masters that this one is in sync with.
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function text(number) return string.format('%.0f', number) end
call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now - ARGV[2]))
-- Those from a time that is yet to come: the clock was put back.
call('ZREMRANGEBYSCORE', KEYS[1], text(now + ARGV[2]), '+inf')
call('ZADD', KEYS[1], text(now), ARGV[1])
-- Nobody takes out what the gone have left there. Everybody alive says it anew with the next beat.
if call('HLEN', KEYS[2]) > 2 * call('ZCARD', KEYS[1]) + 16 then call('UNLINK', KEYS[2]) end
call('HSET', KEYS[2], ARGV[1], ARGV[4])
for _, key in ipairs(KEYS) do call('PEXPIRE', key, text(2 * ARGV[2])) end
local members = call('ZRANGE', KEYS[1], '0', text(ARGV[3] - 1))
local scores, in_sync = {}, {}
for at, member in ipairs(members) do
  scores[at] = call('ZSCORE', KEYS[1], member)
  in_sync[at] = call('HGET', KEYS[2], member) or ''
end
return { members, scores, in_sync, text(now) }
