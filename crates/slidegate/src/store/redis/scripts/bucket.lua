-- token_bucket and leaky_bucket: the twin of slidegate_core::algorithm::bucket.
--
-- A value: format, kind, two zeros, epoch 4, window of the remainder 8, backlog 4, remainder 8, drained up to in
-- ms 8. Products of permits and windows reach 2^67, which a double can't hold: they are kept as pairs
-- (whole permits, rest in units of 1/W).
local function bucket()
  local ops = {}
  local WINDOW_MAX = 31622400000

  function ops.load(key, raw)
    local state = {
      key = key, new = true, kind = BUCKET, used = 0, drained = 0, remainder = 0, window = 1, epoch = now_floor % U32,
    }
    if raw then
      if #raw ~= 36 then return nil end
      local _
      _, state.epoch, state.window, state.used, state.remainder, state.drained = unpack('>I4I4I8I4I8I8', raw)
      if state.window < 1 or state.remainder >= state.window then return nil end
      state.new = false
    end
    return state
  end

  function ops.settle(state, limit)
    if must_shift(state.drained, now_ceil, limit.window) then
      state.epoch, state.drained, state.changed = (state.epoch + 1) % U32, now_ceil, true
    end
    if state.window ~= limit.window then
      state.remainder = muldiv(state.remainder, limit.window, 0, state.window)
      state.window = limit.window
    end
    local elapsed = min(max(now_floor - state.drained, 0), WINDOW_MAX)
    local permits, rest = muldiv(elapsed, limit.permits, state.remainder, state.window)
    if permits >= state.used then
      state.used, state.remainder = 0, 0
    else
      state.used, state.remainder = state.used - permits, rest
    end
    if state.used == 0 and state.drained > now_floor then
      state.epoch, state.drained, state.changed = (state.epoch + 1) % U32, 0, not state.new
    end
    if state.drained < now_floor then
      state.drained, state.changed = now_floor, not state.new or state.changed
    end
  end

  -- What of `permits` of the backlog has not drained yet, as a pair.
  local function parts(state, permits)
    if permits == 0 then return 0, 0 end
    if state.remainder == 0 then return permits, 0 end
    return permits - 1, state.window - state.remainder
  end

  local function runs_dry_within_a_millisecond(state, limit)
    local whole, rest = parts(state, state.used)
    return whole * state.window + rest < limit.permits
  end

  local function time_to_drain(state, limit, permits)
    local time, rest = muldiv(state.window, permits, 0, limit.permits)
    return time + ceil((rest - state.remainder) / limit.permits)
  end

  local function drained_after(state, limit, permits)
    if permits == 0 or limit.permits == 0 then return 0 end
    return max(state.drained + time_to_drain(state, limit, permits) - now_floor, 0)
  end

  local function waits(state, limit)
    return drained_after(state, limit, state.used)
  end

  local function queue_room(state, limit, cost)
    local max_delay = limit.param
    if cost > limit.permits or waits(state, limit) > max_delay then return 0 end
    local behind = state.drained
    if runs_dry_within_a_millisecond(state, limit) then behind = max(behind, now_ceil) end
    local left, left_rest = muldiv(max(max_delay - (behind - now_floor), 0), limit.permits, 0, state.window)
    local used, used_rest = parts(state, state.used)
    local more = left - used
    if left_rest < used_rest then more = more - 1 end
    return min(floor(max(more, 0) / cost) + 1, floor((U32 - 1 - state.used) / cost), U32 - 1)
  end

  function ops.room(state, limit, cost)
    if limit.algorithm == 4 then return queue_room(state, limit, cost) end
    return max(floor((limit.capacity - state.used) / cost), 0)
  end

  function ops.delay(state, limit)
    return limit.algorithm == 4 and waits(state, limit) or 0
  end

  ops.follow = ops.settle

  function ops.charge(state, limit, units)
    if runs_dry_within_a_millisecond(state, limit) then state.drained = max(state.drained, now_ceil) end
    -- A queue can only be shortened at its end: each charge makes the receipts of earlier ones void.
    if limit.algorithm == 4 then state.epoch = (state.epoch + 1) % U32 end
    state.used, state.changed = state.used + units, true
    return state.drained
  end

  local function minus(a, a_rest, b, b_rest, window)
    if a_rest < b_rest then a, a_rest = a - 1, a_rest + window end
    if a < b then return 0, 0 end
    return a - b, a_rest - b_rest
  end

  local function less(a, a_rest, b, b_rest)
    return a < b or a == b and a_rest < b_rest
  end

  function ops.refund(state, limit, receipt, units)
    local elapsed = min(max(max(state.drained, now_ceil) - receipt.at, 0), 2 * WINDOW_MAX)
    local gone, gone_rest = muldiv(elapsed, limit.permits, 0, state.window)
    local kept, kept_rest = minus(receipt.units, 0, gone, gone_rest, state.window)
    local used, used_rest = parts(state, state.used)
    local given, given_rest = units, 0
    if less(kept, kept_rest, given, given_rest) then given, given_rest = kept, kept_rest end
    if less(used, used_rest, given, given_rest) then given, given_rest = used, used_rest end
    local left, left_rest = minus(used, used_rest, given, given_rest, state.window)
    state.used = left + (left_rest > 0 and 1 or 0)
    state.remainder = left_rest > 0 and state.window - left_rest or 0
    state.changed = true
    return given + (given_rest > 0 and 1 or 0)
  end

  -- Time until a check of `cost` behind `ahead` permits waits no longer than max_delay, and can be counted.
  local function queues_after(state, limit, ahead, cost)
    local wait = max(drained_after(state, limit, ahead) - limit.param, 0)
    local over = min(max(ahead + cost - (U32 - 1), 0), U32 - 1)
    return max(drained_after(state, limit, over), wait)
  end

  function ops.retry_after(state, limit, cost)
    if limit.algorithm == 4 then return queues_after(state, limit, state.used, cost) end
    return drained_after(state, limit, min(max(state.used + cost - limit.capacity, 0), U32 - 1))
  end

  local function queue_reset_after(state, limit)
    local room = queue_room(state, limit, 1)
    if room >= limit.permits then return 0 end
    local soonest = queues_after(state, limit, min(state.used + room, U32 - 1), 1)
    local floor_then, ceil_then = now_floor, now_ceil
    local found = 0
    for wait = soonest, soonest + 1 do
      local later = {}
      for name, value in pairs(state) do later[name] = value end
      now_floor, now_ceil = floor_then + wait, ceil_then + wait
      ops.settle(later, limit)
      local grown = queue_room(later, limit, 1) > room
      now_floor, now_ceil = floor_then, ceil_then
      if grown then
        found = wait
        break
      end
    end
    return found
  end

  function ops.reset_after(state, limit)
    if limit.algorithm == 4 then return queue_reset_after(state, limit) end
    return drained_after(state, limit, min(max(state.used - limit.capacity, 0) + 1, U32 - 1))
  end

  function ops.needed(state, limit)
    if state.used == 0 then return 0 end
    local drains = limit.permits == 0 and WINDOW_MAX or time_to_drain(state, limit, state.used)
    return min(max(state.drained + drains - now_floor, 0), U48)
  end

  function ops.save(state, limit)
    local needed = ops.needed(state, limit)
    if not state.changed then return heal(state, limit, needed) end
    set(state, limit, pack('>BBI2I4I8I4I8I8', FORMAT, BUCKET, 0, state.epoch, state.window, state.used,
      state.remainder, state.drained), needed)
  end

  return ops
end
