-- Settles what was charged: gives units of known admissions back, or charges more, even past the limit. Whoever
-- calls has taken the reservation's record before, or otherwise made sure that no receipt is used twice.
--
-- Each part: key, limit, units to give back, units to charge, receipt. Replies with what was given back and
-- charged, for each.

local told, states = { '' }, {}
for part = 1, parts do
  local limit, give, take_more, receipt = nil, nil, nil, {}
  limit, give, take_more, receipt.epoch, receipt.at, receipt.units, at = unpack('<BI4I4I4I8I4', blob, at)
  limit = limit_at(limit)
  local name = KEYS[part]
  local state = states[name] or open_state(name, limit)
  local given, charged = 0, 0
  if state then
    states[name], state.limit = state, limit
    if give > 0 and not state.new and state.kind == limit.kind and receipt.epoch == state.epoch
      or give > 0 and state.kind == SORTED_LOG then
      given = ops_of(limit.kind).refund(state, limit, receipt, min(give, receipt.units))
    end
    if take_more > 0 then
      local _
      _, charged = take(state, limit, take_more)
    end
  end
  told[#told + 1] = pack('<I4I4', given, charged)
end
for _, state in pairs(states) do ops_of(state.kind).save(state, state.limit) end
told[1] = pack('<BI8', 1, now)
return concat(told)
