      -- sliding_window: the twin of tick_log.lua.
      local ledger, r, new = kind, param, raw == ''
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
      local head_was, used_was = head, used
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
      local taken = grant * cost
      if used + taken > permits then
        grant = floor((permits - used) / cost)
        if grant < 0 then break end
        if passed > 0 then
          hot = false
          break
        end
        taken = grant * cost
      end
      local refused = grant < times and used + taken + cost > permits
      if refused and used + taken + cost ~= permits + 1 then break end

      -- What is to be written: from what has changed on to the end of this instance's row, or to the end of a short value.
      if grant > 0 then
        local turned = natural > last
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

        local own, own_end = '', 65
        if ledger < 2 then
          if grant < times then
            own = pack('>I4I4I8', last % 4294967296, taken, seq)
          else
            row = row or pack('>I4I4I8', last % 4294967296, taken, seq)
            own = row
          end
          own_end = own_at and own_at + 24 or ring_at + 1
        end
        offset = '12'
        if long then
          if pushed then pushed_at = ring_at + (head - 1) % capacity * 8 end
          -- A whole ring that left has its tail where it was: it has moved all the same.
          if tail >= capacity then tail, head, tail_was = tail - capacity, head - capacity, -1 end
          hot = pack('>I8I4I8I4I4I8', capacity_epoch, tail_tick, tail * 4294967296 + head, used, newest, last)
          bytes = own_at and hot .. sub(raw, 49, own_at + 7) .. own or hot
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
          pushed = pushed or ''
          if own_at then
            bytes = hot .. sub(raw, 49, own_at + 7) .. own .. rest .. entries .. pushed
          elseif not new and ledger > 1 then
            bytes = hot .. sub(raw, 49, 64) .. rest .. entries .. pushed
          else
            local begin, middle = sub(raw, 1, 12), sub(raw, 49, 64)
            if ledger < 2 then
              begin, middle = sub(raw, 1, 2) .. string.char(rows + 1, rows + 1) .. sub(raw, 5, 12), sub(raw, 49, ring_at) .. identity
            end
            bytes, offset, ttl = begin .. hot .. middle .. own .. rest .. entries .. pushed, nil, ARGV[limit + 2]
          end
          pushed = nil
        end
        turned = turned or tail ~= tail_was or r > 1
        if offset and turned then ttl = call('PTTL', key) end
      else
        -- What has left is taken out when something is charged, or else by check.lua.
        if used ~= used_was then break end
        hot = sub(raw, 13, 48)
        if not new then ttl = call('PTTL', key) end
      end
      if ttl and (offset or grant == 0) then
        local spare = ttl - (last * r + window - now_floor)
        ttl = (spare < 0 or spare > ARGV[limit + 2] - window) and ARGV[limit + 2]
      end
      if grant < times then hot = pack('>BI4', refused and 1 or 3, grant) .. hot end
