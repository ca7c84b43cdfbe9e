-- The common case written out: a check of one sliding_window counter that meets nothing unusual.
--
-- No functions and no tables here, since each costs about as much as a command, and few strings and C calls, since
-- each costs as much as ten of Lua's own instructions. Whatever is unusual (another algorithm, several counters, a
-- lease, a lost reply, a clock that went back, a full ring, ...) is left to check.lua before anything of its check is
-- written; the others go on here, as no two plain checks of a call name the same counter. What is decided here is what
-- tick_log.lua would decide.

local told, skipped = {}, nil
local raws = together > 0 and call('MGET', spread(KEYS, 1, parts))
local shape_read, limit, ledger, times, cost, permits, window, r, all, most, natural, edge, row
while done < parts do
  local shape, ack = unpack('<BI8', blob, at)
  if shape ~= shape_read then
    if shape == 0 then break end
    limit, ledger, times, cost, permits, window, r = unpack('<BBI4I4I4I6I4', blob, shapes_at + shape * 24)
    -- What is granted when all is; the most in use then; the tick of a charge; the last that has left.
    all = times * cost
    most, natural, edge, row, shape_read = permits - all, now_ceil, now_floor - window, nil, shape
    if r > 1 then natural, edge = ceil(now_ceil / r), floor(edge / r) end
  end
  repeat -- left by whatever is unusual
    local key = KEYS[done + 1]
    local raw = raws and raws[done + 1] or redis.pcall('GETRANGE', key, '0', '375')
    local new = raw == ''
    if new then
      raw = pack('>I4I8I8I4I8I8I8I8I8', FORMAT * 16777216, r, now_floor % 4294967296, 0, 0, 0, 0, 0, 0)
    elseif #raw < 64 then
      break
    end
    -- Neighbours that are below 2^53 together are read as one number: lease and r; capacity and epoch; tail and head.
    local formats, lease_r, capacity_epoch, tail_tick, head, used, newest, last = unpack('>I4I8I8I4I8I4I4I8', raw)
    local rows_capacity = formats % 256
    local rows = (formats - rows_capacity) / 256 - FORMAT * 65536
    if lease_r ~= r or rows < 0 or rows > rows_capacity or last > natural or used == 0 and last == natural
      or capacity_epoch >= 281479271677952 then -- no ring is that large
      break
    end
    local long, ring_at, tail, capacity, tail_was = #raw >= 376, 64 + rows_capacity * 24, 0, 0, 0
    if long then
      tail = floor(head / 4294967296)
      head, capacity, tail_was = head % 4294967296, floor(capacity_epoch / 4294967296), tail
    elseif ring_at + head * 8 > #raw then
      break
    end

    -- What became of this instance's last call.
    local own_at
    if ledger < 2 then
      own_at = string.find(raw, identity, 65, true)
      if own_at then
        if (own_at - 65) % 24 > 0 or own_at > 64 + rows * 24 or unpack('>I8', raw, own_at + 16) ~= ack then break end
      elseif long or rows >= 8 or ack > 0 and ledger == 0 then
        break
      end
    end

    -- Expire.
    local head_was = head
    if last <= edge then
      if long then break end
      used, newest, tail = 0, 0, head
    elseif tail < head and last - (last - tail_tick) % 4294967296 <= edge then
      local entries, entry_at = raw, ring_at + tail * 8 + 1
      if long and not raws then
        entries, entry_at = call('GETRANGE', key, entry_at - 1, entry_at + 126), 1
      end
      if #entries < entry_at + 7 then break end
      local count = unpack('>I4', entries, entry_at)
      repeat
        used, tail, entry_at = used - count, tail + 1, entry_at + 8
        if tail == head then break end
        if entry_at + 7 > #entries then
          local from = ring_at + tail % capacity * 8
          entries, entry_at = call('GETRANGE', key, from, from + 1023), 1
          if #entries < 8 then
            used = -1
            break
          end
        end
        count, tail_tick = unpack('>I4I4', entries, entry_at)
      until count > 0 and last - (last - tail_tick) % 4294967296 > edge
      -- Or the log has run empty under the clock of its last tick: a new epoch is due.
      if used < 0 or used == 0 and last == natural then break end
    end

    -- Decide. What is told of the next permit to leave needs no look at the ring, since the oldest entry
    -- always holds permits; a longer wait does.
    local granted, taken = times, all
    if used > most then
      granted = floor((permits - used) / cost)
      taken = granted * cost
      if granted < 0 or used + taken + cost ~= permits + 1 then break end
    end
    local hot, ttl
    if granted > 0 then
      local turned, pushed = natural > last, ''
      if turned then
        if newest > 0 then
          if long and head - tail >= capacity or head - tail >= 8192 then break end
          tail_tick = head == tail and last % 4294967296 or tail_tick
          pushed, head = pack('>I4I4', newest, last % 4294967296), head + 1
        end
        newest, last = 0, natural
      end
      if head == tail then tail_tick = last % 4294967296 end
      used, newest = used + taken, newest + taken

      -- Write: from what has changed on to the end of this instance's row, or to the end of a short value.
      local own, own_end = '', 65
      if ledger < 2 then
        if granted < times then
          own = pack('>I4I4I8', last % 4294967296, taken, seq)
        else
          row = row or pack('>I4I4I8', last % 4294967296, taken, seq)
          own = row
        end
        own_end = own_at and own_at + 24 or ring_at + 1
      end
      if long then
        if pushed ~= '' then call('SETRANGE', key, ring_at + (head - 1) % capacity * 8, pushed) end
        -- A whole ring that left has its tail where it was: it has moved all the same.
        if tail >= capacity then tail, head, tail_was = tail - capacity, head - capacity, -1 end
        hot = pack('>I8I4I8I4I4I8', capacity_epoch, tail_tick, tail * 4294967296 + head, used, newest, last)
        if own_at then
          call('SETRANGE', key, '12', hot .. sub(raw, 49, own_at + 7) .. own)
        else
          call('SETRANGE', key, '12', hot)
        end
      else
        head = head - tail
        -- A value that gets long is changed in place from then on: it needs room for that.
        if (ring_at + head * 8 < 376 and head or head * 2) * 4294967296 > capacity_epoch then
          local epoch = capacity_epoch % 4294967296
          capacity_epoch = (capacity_epoch > epoch and capacity_epoch * 2 - epoch or 34359738368 + epoch)
        end
        hot = pack('>I8I4I8I4I4I8', capacity_epoch, tail_tick, head, used, newest, last)
        local rest, entries = '', ''
        if tail == 0 then
          rest = sub(raw, own_end, ring_at + head_was * 8)
        else
          if own_end <= ring_at then rest = sub(raw, own_end, ring_at) end
          if tail < head_was then entries = sub(raw, ring_at + 1 + tail * 8, ring_at + head_was * 8) end
        end
        if own_at then
          call('SETRANGE', key, '12', hot .. sub(raw, 49, own_at + 7) .. own .. rest .. entries .. pushed)
        elseif not new and ledger > 1 then
          call('SETRANGE', key, '12', hot .. sub(raw, 49, 64) .. rest .. entries .. pushed)
        else
          local begin = sub(raw, 1, 12)
          local middle = sub(raw, 49, 64)
          if ledger < 2 then
            begin, middle = sub(raw, 1, 2) .. string.char(rows + 1, rows + 1) .. sub(raw, 5, 12), sub(raw, 49, ring_at) .. identity
          end
          call('SET', key, begin .. hot .. middle .. own .. rest .. entries .. pushed, 'PX', ARGV[limit + 2])
          turned, new = false, true
        end
      end
      if turned or tail ~= tail_was or r > 1 and not new then ttl = call('PTTL', key) end
    else
      if tail ~= tail_was then break end
      hot, ttl = sub(raw, 13, 48), call('PTTL', key)
    end
    if ttl then
      local spare = ttl - (last * r + window - now_floor)
      if spare < 0 or spare > ARGV[limit + 2] - window then call('PEXPIRE', key, ARGV[limit + 2]) end
    end
    if granted < times then hot = pack('>BI4', 1, granted) .. hot end
    if parts == 1 then return '\1' .. hot .. pack('>I8', now) end
    told[done + 1] = hot
  until true
  if not told[done + 1] then
    skipped = skipped or {}
    skipped[#skipped + 1] = { place = done, at = at }
  end
  done, at = done + 1, at + 17
end
if done == parts and not skipped then
  told[done + 1] = pack('>I8', now)
  return '\1' .. table.concat(told)
end
