-- Decides the checks that plain/ has left, in order: the twin of slidegate_core::check::decide.
--
-- A counter that several checks name is read once. Nothing is written before the last check is decided, so a
-- call that fails in here has changed nothing of theirs.

local PLAIN, LAPSED = 0, 1 -- shapes of counters with ledgers; the others have none
local SHADOW, COUNT_DENIED, WITH_LEDGER, HAS_LAPSED, PUT_BACK = 1, 2, 4, 8, 16 -- flags of charges, in this order
local PROBE, RECEIPTS, REMEMBER = 1, 2, 4 -- flags of checks

local states = {}
-- The charges of the check at hand.
local charges, n = {}, 0

-- Reads one charge and brings its counter up to now; returns the status of the check that it belongs to.
local function prepare(i, key, limit, group, flags, cost, ack, reset_epoch, probe, back)
  limit = limit_at(limit)
  local name = KEYS[key]
  local state, fault = states[name], nil
  if not state then
    state, fault = open_state(name, limit)
    if fault then return fault end
  elseif state.kind ~= limit.kind then
    state = convert(state, limit)
  else
    ops_of(limit.kind).settle(state, limit)
  end
  states[name], state.limit = state, limit
  local status, stored = nil, 0
  if floor(flags / WITH_LEDGER) % 2 == 1 and limit.kind == TICK_LOG and not probe then
    -- Once for a call: what a stale one asks of this counter after that is as stale.
    if not state.compared then
      local lapsed = floor(flags / HAS_LAPSED) % 2 == 1
      if back then
        state.status, state.known = ops_of(TICK_LOG).put_back(state, limit, ack, reset_epoch, lapsed, back)
      else
        state.status, state.known = ops_of(TICK_LOG).compare(state, ack, reset_epoch, lapsed)
      end
      -- Without the permits of a lost reply it may be empty, or one tick: `decide` settles what it is given.
      if not state.status and (back or state.used == 0 or state.row_changed) then
        ops_of(TICK_LOG).settle(state, limit)
      end
    end
    status, stored = state.status, state.known
  end
  charges[i] = {
    state = state, limit = limit, ops = ops_of(limit.kind), group = group, shadow = flags % 2 == SHADOW,
    count_denied = floor(flags / COUNT_DENIED) % 2 == 1, cost = cost, room = 0,
  }
  return status or DECIDED, stored
end

-- How many of the checks the enforced counters have room for, or those of a group.
local function common_room(times, group)
  for i = 1, n do
    local charge = charges[i]
    if charge.group == group or not group and not charge.shadow then times = min(times, charge.room) end
  end
  return times
end

-- Whether a cost among them can't pass, whatever is in use.
local function never(group)
  for i = 1, n do
    local charge = charges[i]
    if (charge.group == group or not charge.shadow) and charge.limit.permits > 0 and charge.cost > charge.limit.capacity then
      return true
    end
  end
  return false
end

-- Takes a counter's part of the decision, and returns what the caller is told.
local function conclude(charge, times, granted, lease, probe)
  local state, limit, ops, cost = charge.state, charge.limit, charge.ops, charge.cost
  local room = common_room(times, charge.group)
  local taken = min(granted, room)
  local refuses = room < times and room <= granted
  local delay = taken > 0 and ops.delay(state, limit) or 0
  local at_ms, units = 0, 0
  if not probe then
    at_ms, units = take(state, limit.kind, limit, min(taken * cost, U32 - 1))
    if units > 0 and state.granted then state.granted = state.granted + units end
    if units > 0 and lease > 0 and limit.kind == TICK_LOG then ops.extend_lease(state, at_ms, lease) end
  end
  charge.receipt, charge.took = pack('<I4I8I4', state.epoch, at_ms, units), units > 0 or cost == 0
  if refuses and charge.count_denied and not probe and not never(charge.group) then
    take(state, limit.kind, limit, min((times - taken) * cost, U32 - 1))
  end
  local refused = refuses and charge.room == room
  local flags, retry = refused and 1 or 0, 0
  if refused and cost <= limit.capacity and limit.permits > 0 then
    flags, retry = 3, ops.retry_after(state, limit, cost)
  end
  local reset = state.used > 0 and limit.permits > 0 and ops.reset_after(state, limit) or 0
  return pack('<BI4I4I6I6I6I8', flags, min(state.used, limit.capacity), min(ops.room(state, limit, 1), limit.capacity),
    min(reset, U48 - 1), min(retry, U48 - 1), min(delay, U48 - 1), state.reset_epoch or 0)
end

local function decide(times, lease, flags)
  local probe = flags % 2 == PROBE
  for i = 1, n do
    local charge = charges[i]
    charge.room = times
    if charge.cost > 0 then charge.room = min(charge.ops.room(charge.state, charge.limit, charge.cost), times) end
  end
  local granted = common_room(times, nil)
  local answer = { pack('<BBI4', 2, DECIDED, granted) }
  for i = 1, n do
    answer[#answer + 1] = conclude(charges[i], times, granted, lease, probe)
    if floor(flags / RECEIPTS) % 2 == 1 then answer[#answer + 1] = charges[i].receipt end
  end
  return concat(answer), granted
end

local memories = {}

-- What is put back after a failover; its entries are left where they are.
local function read_back()
  local back = {}
  local flags
  back.stored, flags, back.lease, back.n, back.at = unpack('<I8BI4I2', blob, at)
  back.accepted, back.only = flags % 2 == 1, flags >= 2
  at = back.at + back.n * 10
  return back
end

-- Decides the part of the call that begins `at`, its keys at `key_at`.
local function answer(place)
  local shape, flags, status, stored, times, lease = string.byte(blob, at), RECEIPTS, DECIDED, 0, 0, 0
  n = 0
  if shape > 0 then
    repeat
      local limit, kind, left, cost, ack, reset_epoch
      shape, ack, reset_epoch, at = unpack('<BI8I8', blob, at)
      limit, kind, left, times, cost = unpack('<BBBI4I4', blob, shapes_at + shape * 25)
      n = n + 1
      if status == DECIDED then
        local ledger = kind == PLAIN and WITH_LEDGER or kind == LAPSED and WITH_LEDGER + HAS_LAPSED or 0
        status, stored = prepare(n, key_at, limit, 0, ledger, cost, ack, reset_epoch, false)
      end
      key_at = key_at + 1
    until left == 0
  else
    local _
    _, flags, n, times, lease, at = unpack('<BBBI4I4', blob, at)
    for i = 1, n do
      local limit, group, charge_flags, cost, ack, reset_epoch
      limit, group, charge_flags, cost, ack, reset_epoch, at = unpack('<BBBI4I8I8', blob, at)
      local back = charge_flags >= PUT_BACK and read_back() or nil
      if status == DECIDED then
        status, stored =
          prepare(i, key_at, limit, group, charge_flags, cost, ack, reset_epoch, flags % 2 == PROBE, back)
      end
      key_at = key_at + 1
    end
  end
  local granted = 0
  if status == DECIDED then
    told[place + 1], granted = decide(times, lease, flags)
  else
    told[place + 1] = pack('<BBI4I8', 2, status, 0, stored or 0)
  end
  if flags >= REMEMBER then
    local key, length = key_at, nil
    length, at = unpack('<I2', blob, at)
    key_at = key_at + 1
    if granted > 0 then
      local memory, ttl, lingers = { sub(blob, at, at + length - 1) }, 1, 0
      for i = 1, n do
        local charge = charges[i]
        memory[#memory + 1] = charge.receipt
        if charge.took then ttl = max(ttl, charge.limit.window, charge.ops.needed(charge.state, charge.limit)) end
        lingers = max(lingers, charge.limit.lingers)
      end
      memory[#memory + 1] = pack('<I8', now_floor + ttl)
      memories[#memories + 1] = { KEYS[key], concat(memory), text(ttl + lingers) }
    end
    at = at + length
  end
end

local rest_at, rest_key_at = at, key_at
for _, part in ipairs(skipped or {}) do
  at, key_at = part.at, part.key_at
  answer(part.place)
end
at, key_at = rest_at, rest_key_at
for place = done, parts - 1 do answer(place) end

for _, state in pairs(states) do ops_of(state.kind).save(state, state.limit) end
for _, memory in ipairs(memories) do call('SET', memory[1], memory[2], 'PX', memory[3]) end
told[parts + 1] = pack('>I8', now)
return '\1' .. concat(told)
