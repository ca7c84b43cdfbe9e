-- The common case written out: checks whose counters all meet nothing unusual, decided counter by counter, and
-- written once the last one of the check is.
--
-- No tables here and hardly a function, since each costs about as much as a command, and few strings and C calls, since
-- each costs as much as ten of Lua's own instructions. Whatever is unusual (a converted counter, a lease, a lost reply,
-- a clock that went back, a full ring, ...) leaves its check to check.lua before anything of it is written; the others
-- go on here, as no two plain checks of a call name the same counter. What is decided here is what the twins of core
-- would decide.
--
-- The loop's body goes through plain/each.lua, one of plain/tick_log.lua, plain/sorted_log.lua and plain/values.lua, and
-- plain/done.lua: one function, in parts for the reader's sake. Out of it comes
--
--   hot       what is told of the counter; nil: something unusual; false: once more from the first counter on
--   grant     how many of the check are granted, as far as its counters are known
--   bytes, offset, ttl, pushed, pushed_at   what is to be written: see `write`

local told, skipped = {}, nil
local raws = together > 0 and call('MGET', spread(KEYS))
local shape_read, limit, kind, left, times, cost, permits, window, param, natural, edge, row
-- Of the check at hand: how many counters are decided, for how many checks they and what is left have room, what is told
-- of them, and their writes, which wait for the last one; its next key.
local passed, grant, tellings, waiting, key_at = 0, nil, '', nil, 1

-- Writes a value whole, or from an offset on, and before that the ring's new entry; or only a TTL.
local function write(key, bytes, offset, ttl, pushed, pushed_at)
  if pushed then call('SETRANGE', key, pushed_at, pushed) end
  if bytes and not offset then return call('SET', key, bytes, 'PX', ttl) end
  if bytes then call('SETRANGE', key, offset, bytes) end
  if ttl then call('PEXPIRE', key, ttl) end
end

while done < parts do
  local shape, ack = unpack('<BI8', blob, at)
  if shape ~= shape_read then
    if shape == 0 then break end
    limit, kind, left, times, cost, permits, window, param = unpack('<BBBI4I4I4I6I4', blob, shapes_at + shape * 25)
    -- The tick of a charge; the last that has left.
    natural, edge, row, shape_read = now_ceil, now_floor - window, nil, shape
    if kind < 3 and param > 1 then natural, edge = ceil(now_ceil / param), floor(edge / param) end
  end
  grant = grant or times
  local key, hot, bytes, offset, ttl, pushed, pushed_at = KEYS[key_at]
  repeat -- left by whatever is unusual
    local raw = raws and raws[key_at] or kind ~= 3 and redis.pcall('GETRANGE', key, '0', '375')
    if kind < 3 then
