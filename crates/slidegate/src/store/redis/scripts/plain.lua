-- The common case written out: a check of one sliding_window counter that meets nothing unusual.
--
-- No functions and no tables here, since each costs about as much as a command. Whatever is unusual (another
-- algorithm, several counters, a lease, a lost reply, a clock that went back, a full ring, ...) leaves the loop
-- before anything of its check is written, and check.lua decides the rest of the call. What is decided here is
-- what tick_log.lua would decide.

local limit_read, permits, window, r
local told = parts > 1 and {}
while done < parts do
  local kind, limit, times, cost, ack, _, after = unpack('<BBI4I4I8I8', blob, at)
  if kind > 2 then break end
  if limit ~= limit_read then
    _, permits, window, _, r = unpack('<BI4I6I6I4', blob, limits_at + limit * 21)
    limit_read = limit
  end
  local key = KEYS[done + 1]
  local raw = redis.pcall('GETRANGE', key, '0', '375')
  local new = raw == ''
  if new then
    raw = pack('>I4I4I8I8I4I8I8I8I8I4', FORMAT * 16777216, now_floor % 4294967296, 0, 0, r, 0, 0, 0, 0, 0)
  elseif type(raw) ~= 'string' or #raw < 64 then
    break
  end
  local kind_is, rows, rows_capacity, epoch = unpack('>I2BBI4', raw)
  local r_is, lease, capacity, tail_tick, tail, head, used, newest, last = unpack('>I4I4I4I4I4I4I4I4I8', raw, 25)
  local natural = ceil(now_ceil / r)
  if kind_is ~= FORMAT * 256 or r_is ~= r or lease > 0 or last > natural or used == 0 and last == natural then break end
  local long, ring_at = #raw >= 376, 64 + rows_capacity * 24
  if not long and #raw < ring_at + head * 8 then break end

  -- What became of this instance's last call.
  local own_at
  if kind < 2 then
    own_at = string.find(raw, identity, 65, true)
    if own_at then
      if (own_at - 65) % 24 > 0 or own_at > 64 + rows * 24 or unpack('>I8', raw, own_at + 16) ~= ack then break end
    elseif long or rows >= 8 or ack > 0 and kind == 0 then
      break
    end
  end

  -- Expire.
  local unusual, tail_was, head_was = false, tail, head
  if last * r + window <= now_floor then
    if long then break end
    used, newest, tail = 0, 0, head
  elseif tail < head and (last - (last - tail_tick) % 4294967296) * r + window <= now_floor then
    local entries, base = raw, ring_at + 1
    if long then
      entries, base = call('GETRANGE', key, ring_at + tail * 8, ring_at + tail * 8 + 127), 1 - tail * 8
    end
    repeat
      local at = base + tail * 8
      used, tail = used - unpack('>I4', entries, at), tail + 1
      if tail == head then break end
      if at + 15 > #entries then
        unusual = true
        break
      end
      local count
      count, tail_tick = unpack('>I4I4', entries, at + 8)
    until count > 0 and (last - (last - tail_tick) % 4294967296) * r + window > now_floor
  end

  -- Decide. What is told of the next permit to leave needs no look at the ring, since the oldest entry
  -- always holds permits; a longer wait does.
  local granted = min(floor((permits - used) / cost), times)
  local taken = granted * cost
  if unusual or granted < 0 or granted < times and used + taken + cost ~= permits + 1 then break end
  local ttl, turned = -2, natural > last
  if granted > 0 then
    local pushed = ''
    if turned then
      if newest > 0 then
        if head - tail >= 8192 or long and head - tail >= capacity then break end
        if head == tail then tail_tick = last end
        pushed = pack('>I4I4', newest, last % 4294967296)
        head = head + 1
      end
      last, newest = natural, 0
    end
    used, newest = used + taken, newest + taken
    if head == tail then tail_tick = last end

    -- Write: from what has changed on to the end of this instance's row, or to the end of a short value.
    local before, own, own_end = '', '', 65
    if own_at then
      before, own_end = sub(raw, 65, own_at + 7), own_at + 24
      own = pack('>I4I4I8', last % 4294967296, taken, seq)
    elseif kind < 2 then
      before, own_end, rows = sub(raw, 65, ring_at), ring_at + 1, rows + 1
      own = identity .. pack('>I4I4I8', last % 4294967296, taken, seq)
    end
    if turned or tail ~= tail_was or own_end > ring_at then
      if not new then ttl = call('PTTL', key) end
      if long then
        if pushed ~= '' then call('SETRANGE', key, ring_at + (head - 1) % capacity * 8, pushed) end
        if tail >= capacity then tail, head = tail - capacity, head - capacity end
        call('SETRANGE', key, '32', pack('>I4I4I4I4I4I4I8', capacity, tail_tick % 4294967296, tail, head, used,
          newest, last) .. before .. own)
      else
        if head - tail > capacity then capacity = math.max(capacity * 2, 8) end
        local rest, entries = '', ''
        if tail == 0 then
          rest = sub(raw, own_end, ring_at + head_was * 8)
        else
          if own_end <= ring_at then rest = sub(raw, own_end, ring_at) end
          if tail < head_was then entries = sub(raw, ring_at + 1 + tail * 8, ring_at + head_was * 8) end
        end
        local hot = pack('>I4I4I4I4I4I4I8', capacity, tail_tick % 4294967296, 0, head - tail, used, newest, last)
        if own_at or kind > 1 and not new then
          call('SETRANGE', key, '32', hot .. before .. own .. rest .. entries .. pushed)
        else
          local value = sub(raw, 1, 2) .. string.char(rows, rows) .. sub(raw, 5, 32)
            .. hot .. before .. own .. rest .. entries .. pushed
          call('SET', key, value, 'PX', ARGV[limit + 2])
          ttl = nil
        end
      end
    else
      call('SETRANGE', key, '48', pack('>I4I4I8', used, newest, last) .. before .. own)
      ttl = r > 1 and call('PTTL', key)
    end
  else
    if tail ~= tail_was then break end
    ttl = call('PTTL', key)
  end
  if ttl then
    local spare = ttl - (last * r + window - now_floor)
    if spare < 0 or spare > ARGV[limit + 2] - window then call('PEXPIRE', key, ARGV[limit + 2]) end
  end
  if head == tail then tail_tick = last end
  local free = (last - (last - tail_tick) % 4294967296) * r + window - now_floor
  if parts == 1 then
    return pack('>BBI4I6I4I8I4I8', 1, granted < times and 1 or 0, granted, free, epoch, last * r, used, now)
  end
  done, at = done + 1, after
  told[done] = pack('>BI4I6I4I8I4', granted < times and 1 or 0, granted, free, epoch, last * r, used)
end
if done == parts then
  told[done + 1] = pack('>I8', now)
  return '\1' .. table.concat(told)
end
