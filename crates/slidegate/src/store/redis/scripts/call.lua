-- What a call brings: its head, and the store's clock. The layout is that of store/redis/wire.rs.
--
-- Times are whole milliseconds, as in core: `now_ceil` where something is charged, `now_floor` where something
-- ends. Nothing here calls tostring or `..` on a number: Lua would write large ones as 1.7e+15.

local call, unpack, pack, sub, spread = redis.call, struct.unpack, struct.pack, string.sub, unpack
local floor, ceil, min = math.floor, math.ceil, math.min

local blob = ARGV[1]
-- The format that counters are written in: this release's, or the one before.
local FORMAT, explicit, together, limits, shapes, parts, now, seq, identity, at = unpack('<BBBBBI2I8I8c8', blob)
if explicit == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local now_floor, now_ceil = floor(now / 1000), ceil(now / 1000)
-- Shapes are counted from 1, limits from 0.
local limits_at, shapes_at, done = at, at + limits * 21 - 25, 0
at = shapes_at + shapes * 25 + 25
