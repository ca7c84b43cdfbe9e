-- sliding_log: the twin of slidegate_core::algorithm::sorted_log, as a sorted set that redis-cli can read.
--
-- One member for each unit, `<seq of the call>:<instance>:<n>`, unique by construction (seq modulo 2^32); its score is the
-- millisecond of its charge. What this call adds is written when it is saved. A receipt's epoch is the seq,
-- so a refund finds its own members or none.
local function sorted_log()
  local ops = { room = windowed_room, delay = no_delay }
  local PER_CALL = 1000 -- members in one command: Lua's stack holds some 8000
  local TRIM_MIN = 1000 -- expired members that a call removes: half a millisecond's worth

  function ops.load(key, exists)
    local state = { key = key, new = not exists, kind = SORTED_LOG, used = 0, epoch = seq % U32, added = 0, shift = 0 }
    if exists then
      local newest = call('ZREVRANGE', key, '0', '0', 'WITHSCORES')
      if not find(newest[1], '^%d+:%x+:%d+$') then return nil end -- another program's
      state.last = tonumber(newest[2])
    end
    return state
  end

  -- What was charged later than a window ago, as ZRANGEBYSCORE takes it.
  local function alive_from(state, limit)
    return '(' .. text(now_floor - limit.window + state.shift)
  end

  -- Moves the whole history back if the clock went back far.
  function ops.follow(state, limit)
    if not state.last or state.shift ~= 0 then return end
    if must_shift(state.last - state.shift, now_ceil, limit.window) then
      local oldest = call('ZRANGE', state.key, '0', '0', 'WITHSCORES')
      local one = tonumber(oldest[2]) == state.last
      state.shift, state.changed = state.last - now_ceil - (one and 0 or 1), true
    end
  end

  function ops.settle(state, limit)
    if not state.last then return end
    ops.follow(state, limit)
    state.stored = call('ZCOUNT', state.key, alive_from(state, limit), '+inf')
    state.expired = call('ZCARD', state.key) - state.stored
    state.changed = state.changed or state.expired > 0
    state.used = state.stored + state.added
  end

  function ops.charge(state, _, units)
    if state.added == 0 then
      state.at = now_ceil
      if state.used > 0 then state.at = max(state.last - state.shift, now_ceil) end
    end
    state.added, state.used, state.changed = state.added + units, state.used + units, true
    return state.at
  end

  function ops.refund(state, limit, receipt, units)
    if not state.last or receipt.at <= now_floor - limit.window or state.shift ~= 0 then return 0 end
    local score = text(receipt.at)
    local members = call('ZRANGEBYSCORE', state.key, score, score)
    local own, prefix = {}, text(receipt.epoch) .. ':'
    for _, member in ipairs(members) do
      if #own < units and sub(member, 1, #prefix) == prefix then own[#own + 1] = member end
    end
    for from = 1, #own, PER_CALL do
      call('ZREM', state.key, spread(own, from, min(from + PER_CALL - 1, #own)))
    end
    state.used, state.stored = state.used - #own, state.stored - #own
    state.last = tonumber(call('ZREVRANGE', state.key, '0', '0', 'WITHSCORES')[2])
    return #own
  end

  local function freed_after(state, limit, units)
    if units == 0 then return 0 end
    local at = state.at
    if units <= (state.stored or 0) then
      local found = call('ZRANGEBYSCORE', state.key, alive_from(state, limit), '+inf', 'WITHSCORES', 'LIMIT',
        text(units - 1), '1')
      at = found[2] - state.shift
    elseif not at then
      return 0
    end
    return max(at + limit.window - now_floor, 0)
  end

  function ops.retry_after(state, limit, cost)
    return freed_after(state, limit, max(state.used + cost - limit.permits, 0))
  end

  function ops.reset_after(state, limit)
    return freed_after(state, limit, max(state.used - limit.permits, 0) + 1)
  end

  -- Moves every member back by the shift.
  local function move(state)
    local all = call('ZRANGE', state.key, '0', '-1', 'WITHSCORES')
    for from = 1, #all, 2 * PER_CALL do
      local moved = {}
      for n = from, min(from + 2 * PER_CALL, #all) - 1, 2 do
        moved[#moved + 1] = text(max(all[n + 1] - state.shift, 0))
        moved[#moved + 1] = all[n]
      end
      call('ZADD', state.key, 'XX', spread(moved))
    end
  end

  function ops.needed(state, limit)
    if state.used == 0 then return 0 end
    local last = state.at or (state.last or 0) - state.shift
    return max(last + limit.window - now_floor, 0)
  end

  function ops.save(state, limit)
    local needed = ops.needed(state, limit)
    if not state.changed then return heal(state, limit, needed) end
    local ttl = ttl_of(state, limit, needed)
    if state.replaces then
      call('SETRANGE', state.key, '0', '') -- Nothing, but a full server refuses it: before anything is lost.
      call('UNLINK', state.key)
    end
    if state.shift ~= 0 and state.last then move(state) end
    local by = ''
    for n = 1, 8 do by = by .. format('%02x', string.byte(identity, n)) end
    local prefix, score, members = text(state.epoch) .. ':' .. by .. ':', state.at and text(state.at), {}
    for n = 1, state.added do
      members[#members + 1] = score
      members[#members + 1] = prefix .. text(n)
      if #members >= 2 * PER_CALL or n == state.added then
        call('ZADD', state.key, spread(members))
        members = {}
      end
    end
    -- Only after something was added: a store without memory refuses that first, and has lost nothing.
    -- More than was added, and not all at once: a million members would keep the server from everybody else.
    if not state.keep and (state.expired or 0) > 0 then
      call('ZREMRANGEBYRANK', state.key, '0', text(min(state.expired, TRIM_MIN + 2 * state.added) - 1))
    end
    if ttl then call('PEXPIRE', state.key, text(ttl)) end
  end

  return ops
end
