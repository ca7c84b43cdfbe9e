-- Keys as states: what a key holds decides which algorithm reads it, and the limit which one goes on.

local modules = { [TICK_LOG] = tick_log, [FIXED_WINDOW] = fixed_window, [BUCKET] = bucket, [SORTED_LOG] = sorted_log }
local loaded = {}
local function ops_of(kind)
  if not loaded[kind] then loaded[kind] = modules[kind]() end
  return loaded[kind]
end

-- What a key holds: a kind and, for those that are strings, the value's beginning; nothing if it is not there.
-- A fault as second result.
local function read(key)
  local raw = pcall('GETRANGE', key, '0', '375')
  if raw == '' then return nil end
  if type(raw) ~= 'string' then
    local is = pcall('TYPE', key)
    if type(is) == 'table' and is.ok == 'zset' then return SORTED_LOG, nil, true end
    return nil, FOREIGN
  end
  local formats, kind = string.byte(raw, 1, 2)
  if formats > NEWEST and formats < 16 then return nil, NEWER_FORMAT end
  if formats < max(NEWEST - 1, 1) or formats > NEWEST or not kind or kind > BUCKET then return nil, FOREIGN end
  return kind, nil, raw
end

-- The state in what was read. One in another format than is written is written whole, changed or not.
local function load(kind, key, raw)
  local state = ops_of(kind).load(key, raw)
  if state and type(raw) == 'string' and string.byte(raw) ~= FORMAT then
    state.changed = kind == TICK_LOG and 3 or true
  end
  return state
end

-- A changed algorithm starts from the old count, dated now; leased permits, when the last can be spent.
local function convert(state, limit)
  ops_of(state.kind).settle(state, limit)
  local old_floor, old_ceil = now_floor, now_ceil
  local fresh = ops_of(limit.kind).load(state.key)
  fresh.epoch, fresh.replaces = (state.epoch + 1) % U32, not state.new
  if fresh.replaces then fresh.changed = true end
  ops_of(limit.kind).settle(fresh, limit)
  if state.used > 0 then
    if state.kind == TICK_LOG and state.lease_end > now_ceil then now_floor, now_ceil = state.lease_end, state.lease_end end
    -- A member for each unit: as many as any sliding_log limit has permits, so that it is full either way.
    local most = limit.kind == SORTED_LOG and 1000000 or U32 - 1
    ops_of(limit.kind).charge(fresh, limit, min(state.used, most))
    now_floor, now_ceil = old_floor, old_ceil
  end
  return fresh
end

-- Reads a key into a state that fits the limit, and brings it up to now.
local function open_state(key, limit)
  local kind, fault, raw = read(key)
  if fault then return nil, fault end
  local state = load(kind or limit.kind, key, raw)
  if not state then return nil, FOREIGN end
  if kind and kind ~= limit.kind then return convert(state, limit) end
  ops_of(limit.kind).settle(state, limit)
  return state
end

-- Takes units, whether they fit or not, up to what can be counted; returns when, and how many.
local function take(state, kind, limit, units)
  units = min(units, (kind == SORTED_LOG and 1000000 or U32 - 1) - state.used)
  if units <= 0 then return 0, 0 end
  return ops_of(kind).charge(state, limit, units), units
end
