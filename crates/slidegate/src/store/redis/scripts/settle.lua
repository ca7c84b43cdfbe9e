-- Settles what was charged: gives units of known admissions back, or charges more, even past the limit. Whoever
-- calls has taken the reservation's record before, or otherwise made sure that no receipt is used twice.
--
-- The limits are those that were charged under. The counters may be under others by now, with longer windows: so
-- nothing that only the old ones would drop is dropped.
--
-- Each part: limit, units to give back, units to charge, receipt. Replies with what was given back and charged.

local states = {}

local function state_of(name, limit)
  local kind, fault, raw = read(name)
  if fault then return nil end
  local state = load(kind or limit.kind, name, raw)
  if not state then return nil end
  state.keep, state.limit = true, limit
  local ops = ops_of(state.kind)
  if state.used == 0 and state.kind == limit.kind then ops.settle(state, limit) else ops.follow(state, limit) end
  return state
end

local told = { '' }
for part = 1, parts do
  local receipt = {}
  local limit, give, more
  limit, give, more, receipt.epoch, receipt.at, receipt.units, at = unpack('<BI4I4I4I8I4', blob, at)
  limit = limit_at(limit)
  local name = KEYS[part]
  local state = states[name] or state_of(name, limit)
  local given, charged = 0, 0
  if state then
    states[name] = state
    if give > 0 and state.kind == limit.kind and (receipt.epoch == state.epoch or state.kind == SORTED_LOG) then
      given = ops_of(state.kind).refund(state, limit, receipt, min(give, receipt.units))
    end
    local _
    _, charged = take(state, state.kind, limit, more)
  end
  told[#told + 1] = pack('<I4I4', given, charged)
end
for _, state in pairs(states) do ops_of(state.kind).save(state, state.limit) end
told[1], told[#told + 1] = '\1', pack('>I8', now)
return concat(told)
