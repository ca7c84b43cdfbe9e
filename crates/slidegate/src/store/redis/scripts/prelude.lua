-- What the algorithms share. Each is a table of functions on a state:
--
--   load(key, raw)             the state in a value that `kind_of` has recognised, or an empty one; nil if corrupt
--   settle(state, limit)       up to now
--   follow(state, limit)       as far as nothing is lost that a longer window still counts
--   room(state, limit, cost)   how many times a cost of at least 1 fits
--   charge(state, limit, units)            returns when, in ms
--   refund(state, limit, receipt, units)   returns how many were given back
--   retry_after(state, limit, cost), reset_after(state, limit), delay(state, limit)
--   needed(state, limit)       for how many ms it still says something
--   save(state, limit)         writes what has changed, and puts the TTL right
--
-- A state has at least: key, new (not in the store yet), used, epoch, changed.

local pcall, find, format, concat = redis.pcall, string.find, string.format, table.concat
local max = math.max
local U32, U48 = 4294967296, 281474976710656
local CLAMP_MAX = 10000 -- core's backstep
local EPOCH_STRIDE = 2654435761 -- core's algorithm::EPOCH_STRIDE
local NEWEST = 1 -- the format that this release introduced; it reads the one before as well
local TICK_LOG, FIXED_WINDOW, BUCKET, SORTED_LOG = 0, 1, 2, 3 -- the first three are a value's second byte
-- What becomes of a check.
local DECIDED, STALE, BEHIND, FOREIGN, NEWER_FORMAT = 0, 1, 2, 3, 4

local limits_read = {}
local function limit_at(n)
  local limit = limits_read[n]
  if not limit then
    local algorithm, permits, window, param, r = unpack('<BI4I6I6I4', blob, limits_at + n * 21)
    limit = { algorithm = algorithm, permits = permits, window = window, param = param, r = r }
    limit.kind = algorithm == 0 and TICK_LOG or algorithm == 1 and SORTED_LOG or algorithm == 2 and FIXED_WINDOW or BUCKET
    limit.capacity = algorithm == 3 and param or permits
    limit.lingers = ARGV[n + 2] - window - r - min(window, 60000)
    limits_read[n] = limit
  end
  return limit
end

-- A whole number as text.
local function text(number)
  return format('%.0f', number)
end

local function must_shift(newest, natural, window)
  return newest - natural > min(window, CLAMP_MAX)
end

-- The TTL that a key has to be given, or nothing if it has a fitting one. `needed` is the time for which the
-- state still says something.
local function ttl_of(state, limit, needed)
  local most = max(needed, state.used > 0 and 0 or limit.window) + (state.r or 0) + min(limit.window, 60000)
  if not state.new then
    local ttl = call('PTTL', state.key)
    -- What is settled under an old limit may be counted under one with a longer window: never sooner.
    if ttl >= needed + limit.lingers and (ttl <= most + limit.lingers or state.keep) then return nil end
  end
  return most + limit.lingers
end

-- Writes a value whole. `new` also stands for a key that held something of another kind.
local function set(state, limit, value, needed)
  local ttl = ttl_of(state, limit, needed)
  if ttl then
    call('SET', state.key, value, 'PX', text(ttl))
  else
    call('SET', state.key, value, 'KEEPTTL')
  end
end

local function heal(state, limit, needed)
  if state.new then return end
  local ttl = ttl_of(state, limit, needed)
  if ttl then call('PEXPIRE', state.key, text(ttl)) end
end

-- e * n + add in units of w: quotient and remainder, exact below 2^53 though the product is not.
-- Takes n in digits of 12 bits. e < 2^40, n < 2^36, add < w < 2^40.
local function muldiv(e, n, add, w)
  local q, rest = 0, 0
  for _, digit in ipairs({ floor(n / 16777216), floor(n / 4096) % 4096, n % 4096 }) do
    local sum = rest * 4096 + e * digit
    q = q * 4096 + floor(sum / w)
    rest = sum % w
  end
  rest = rest + add
  if rest >= w then q, rest = q + 1, rest - w end
  return q, rest
end

local function windowed_room(state, limit, cost)
  return max(floor((limit.permits - state.used) / cost), 0)
end

local function no_delay()
  return 0
end
