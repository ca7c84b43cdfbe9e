-- fixed_window: the twin of slidegate_core::algorithm::fixed_window.
--
-- A value: format, kind, two zeros, epoch 4, permits in use 4, time of the last charge in ms 8.
local function fixed_window()
  local ops = { room = windowed_room, delay = no_delay }

  local function window_start(at, limit)
    return at - at % limit.window
  end

  function ops.load(key, raw)
    local state = { key = key, new = true, kind = FIXED_WINDOW, used = 0, charged = 0, epoch = now_floor % U32 }
    if raw then
      if #raw ~= 20 then return nil end
      local _
      _, state.epoch, state.used, state.charged = unpack('>I4I4I4I8', raw)
      state.new = false
    end
    return state
  end

  -- The time that counts: a clock that went back a little stands still until it has caught up.
  local function time(state)
    return max(now_floor, state.charged)
  end

  function ops.settle(state, limit)
    if must_shift(state.charged, now_floor, limit.window) then
      state.epoch, state.charged, state.changed = (state.epoch + 1) % U32, now_floor, true
    end
    if state.used > 0 and state.charged < window_start(time(state), limit) then
      state.epoch, state.used, state.charged, state.changed = (state.epoch + 1) % U32, 0, time(state), true
    end
  end

  ops.follow = ops.settle

  function ops.charge(state, _, units)
    state.charged, state.used, state.changed = time(state), state.used + units, true
    return state.charged
  end

  function ops.refund(state, _, _, units)
    units = min(units, state.used)
    state.used, state.changed = state.used - units, true
    return units
  end

  local function ends_after(state, limit)
    return max(window_start(time(state), limit) + limit.window - now_floor, 0)
  end

  function ops.retry_after(state, limit, cost)
    return state.used + cost <= limit.permits and 0 or ends_after(state, limit)
  end

  ops.reset_after = ends_after

  function ops.needed(state, limit)
    if state.used == 0 then return 0 end
    return max(window_start(state.charged, limit) + limit.window - now_floor, 0)
  end

  function ops.save(state, limit)
    local needed = ops.needed(state, limit)
    if not state.changed then return heal(state, limit, needed) end
    set(state, limit, pack('>BBI2I4I4I8', FORMAT, FIXED_WINDOW, 0, state.epoch, state.used, state.charged), needed)
  end

  return ops
end
