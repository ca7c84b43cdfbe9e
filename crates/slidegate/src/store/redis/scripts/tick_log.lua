-- sliding_window: the twin of slidegate_core::algorithm::tick_log, on the bytes of tick_log::layout.
--
-- A log lies in one string: header, ledger rows, ring of (tick, count) entries. A short one is read and
-- written whole, its entries in order from the front. A long one is read as far as its rows and changed in
-- place. What has to move entries (shift, raise_r, squeeze, growth) opens the log into arrays first.

local function tick_log()
  local ops = { room = windowed_room, delay = no_delay }
  local HEADER = '>BBBBI4I4I4I4I4I4I4I4I4I8I8I8'
  local HEADER_LEN, ROW_LEN, ENTRY_LEN = 64, 24, 8
  local SHORT_MAX, SHORT_LAST = 376, '375' -- read at once; every byte costs about 1 ns
  local RING_MIN, ROWS_MIN, ROWS_MAX = 8, 4, 64
  local ENTRIES_TARGET, ENTRIES_MAX, RESOLUTION_ENTRIES_MAX = 4096, 8192, 65536
  local AGE_TICKS_MAX, R_ASKED_MAX, WINDOW_MAX, LEASE_MAX = 2147483648, 2147483648, 31622400000, 632448000
  local ROWS_SHORT = 8 -- rows that a short log takes before it drops those that have left
  local READ_MIN, READ_MAX = 8, 1024 -- entries of a long log that are read at once

  -- The tick length that a limit asks for, in milliseconds.
  local function wanted_r(limit, lease)
    local span, by_age, r = limit.window + lease, 1, 1
    while by_age < floor(span / AGE_TICKS_MAX) + 1 do by_age = by_age * 2 end
    if limit.param > 0 then return min(max(limit.param, by_age), R_ASKED_MAX) end
    if min(span, limit.permits) <= ENTRIES_TARGET then return by_age end
    while r * 2 <= span / ENTRIES_TARGET do r = r * 2 end
    return r
  end

  function ops.load(key, raw)
    local log = {
      key = key, new = true, kind = TICK_LOG, raw = '', short = true, rows = 0, rows_capacity = 0,
      epoch = now_floor % U32, reset_epoch = 0, lease_end = 0, r = 1, lease = 0, capacity = 0, tail = 0, head = 0,
      tail_tick = 0, last = 0, used = 0, newest = 0, granted = 0, changed = false, limit = false, pushed_tick = false,
      pushed_count = 0, row_at = false, row_changed = false, compared = false, ticks = false,
    }
    if not raw then return log end
    if #raw < HEADER_LEN then return nil end
    local _
    log.raw, log.new, log.short = raw, false, #raw < SHORT_MAX
    _, _, log.rows, log.rows_capacity, log.lease, log.r, log.capacity, log.epoch, log.tail_tick, log.tail, log.head,
      log.used, log.newest, log.last, log.reset_epoch, log.lease_end = unpack(HEADER, raw)
    local ring_at = HEADER_LEN + log.rows_capacity * ROW_LEN
    if log.r == 0 or log.rows > log.rows_capacity or log.head - log.tail > log.capacity or log.head < log.tail
      or log.short and #raw < ring_at + log.head * ENTRY_LEN then
      return nil
    end
    if not log.short and log.head > 0 then
      local last_byte = text(ring_at + min(log.head, log.capacity) * ENTRY_LEN - 1)
      if call('GETRANGE', key, last_byte, last_byte) == '' then return nil end
    end
    if not log.short and ring_at > SHORT_MAX then log.raw = call('GETRANGE', key, '0', text(ring_at - 1)) end
    return log
  end

  -- --- entries ------------------------------------------------------------------------------------------

  -- Reads the entry at a place between tail and head: its age in ticks, and its count.
  local function entry(log, place)
    if log.ticks then return log.last - log.ticks[place], log.counts[place] end
    if log.pushed_tick and place == log.head - 1 then
      return (log.last - log.pushed_tick) % U32, log.pushed_count
    end
    local ring_at, slot = HEADER_LEN + log.rows_capacity * ROW_LEN, place % log.capacity
    local tick, count
    if log.short then
      count, tick = unpack('>I4I4', log.raw, ring_at + slot * ENTRY_LEN + 1)
    else
      if not log.read or slot < log.read_from or slot >= log.read_to then
        log.reads = log.reads and min(log.reads * 2, READ_MAX) or READ_MIN
        log.read_from, log.read_to = slot, min(slot + log.reads, log.capacity)
        log.read = call('GETRANGE', log.key, text(ring_at + slot * ENTRY_LEN),
          text(ring_at + log.read_to * ENTRY_LEN - 1))
      end
      count, tick = unpack('>I4I4', log.read, (slot - log.read_from) * ENTRY_LEN + 1)
    end
    return (log.last - tick) % U32, count
  end

  -- Turns ring and rows into arrays, of absolute ticks: the entry at place 0 is the one that was at the tail.
  -- Returns how far places have moved.
  local function open(log)
    if log.ticks then return 0 end
    local raw, ticks, counts, rows = log.raw, {}, {}, {}
    if not log.short then raw = call('GETRANGE', log.key, '0', '-1') end
    local place, ring_at = 0, HEADER_LEN + log.rows_capacity * ROW_LEN
    for at = log.tail, log.head - (log.pushed_tick and 2 or 1) do
      local count, tick = unpack('>I4I4', raw, ring_at + at % log.capacity * ENTRY_LEN + 1)
      ticks[place], counts[place] = log.last - (log.last - tick) % U32, count
      place = place + 1
    end
    if log.pushed_tick then
      ticks[place], counts[place] = log.last - (log.last - log.pushed_tick) % U32, log.pushed_count
      place, log.pushed_tick = place + 1, false
    end
    for row = 0, log.rows - 1 do
      local identity, tick, count, seq = unpack('>c8I4I4I8', raw, HEADER_LEN + row * ROW_LEN + 1)
      rows[row + 1] = { identity = identity, seq = seq, count = count, tick = log.last - (log.last - tick) % U32 }
    end
    local moved = log.tail
    log.ticks, log.counts, log.row_list, log.tail, log.head = ticks, counts, rows, 0, place
    log.changed = true
    return moved
  end

  local function pop(log)
    log.tail = log.tail + 1
    log.changed = true
    if log.tail < log.head then
      local age = entry(log, log.tail)
      log.tail_tick = (log.last - age) % U32
    else
      log.pushed_tick = false -- It was the last to go.
    end
  end

  -- Re-dates every entry at the end of the longer tick that it lies in, keeping those that hold permits.
  local function raise_r(log, at_least)
    open(log)
    local r = ceil(at_least / log.r) * log.r
    local factor = r / log.r
    local last, ticks, counts, n = ceil(log.last / factor), {}, {}, 0
    for place = log.tail, log.head - 1 do
      local tick, count = ceil(max(log.ticks[place], 0) / factor), log.counts[place]
      if count == 0 then
      elseif tick == last then
        log.newest = log.newest + count
      elseif n > 0 and ticks[n - 1] == tick then
        counts[n - 1] = counts[n - 1] + count
      else
        ticks[n], counts[n], n = tick, count, n + 1
      end
    end
    for _, row in ipairs(log.row_list) do row.tick = ceil(max(row.tick, 0) / factor) end
    log.ticks, log.counts, log.tail, log.head, log.last, log.r = ticks, counts, 0, n, last, r
  end

  -- A full ring first loses the entries that refunds have emptied, then its resolution.
  local function make_space(log, limit)
    local most = limit.param > 0 and RESOLUTION_ENTRIES_MAX or ENTRIES_MAX
    if log.head - log.tail < most then return end
    open(log)
    local n = 0
    for place = log.tail, log.head - 1 do
      if log.counts[place] > 0 then
        log.ticks[n], log.counts[n], n = log.ticks[place], log.counts[place], n + 1
      end
    end
    log.tail, log.head = 0, n
    while log.head > most - floor(most / 8) do raise_r(log, min(log.r * 2, U32 - 1)) end
  end

  -- When a permit of a tick that ends at `at` leaves: core's LeaseSpan::leaves_at_ms.
  local function leaves_at(log, at, window)
    local plain = at + window
    if log.lease == 0 then return plain end
    return max(plain, min(plain + log.lease, log.lease_end + window))
  end

  -- --- settle: bring the log up to now ------------------------------------------------------------------

  -- Moves the whole history back if the clock went back far: see core's backstep. What is older than the longest
  -- window goes whatever the limit: a tick is known modulo 2^32.
  function ops.follow(log, limit)
    local natural = ceil(now_ceil / log.r)
    if log.used > 0 and now_floor - log.last * log.r > WINDOW_MAX + log.lease then
      log.tail, log.newest, log.used, log.changed = log.head, 0, 0, true
    end
    if log.used == 0 or not must_shift(log.last * log.r, natural * log.r, limit.window) then return end
    local one_tick = log.used == log.newest
    local shift = log.last - natural - (one_tick and 0 or 1)
    if shift == 0 then return end
    open(log)
    log.epoch = (log.epoch + 1) % U32
    for place = log.tail, log.head - 1 do log.ticks[place] = log.ticks[place] - shift end
    for _, row in ipairs(log.row_list) do row.tick = row.tick - shift end
    log.last = log.last - shift
    if log.lease > 0 then log.lease_end = max(log.lease_end - shift * log.r, 0) end
  end

  -- What rows say of a log that has run empty is over: their ticks must not be taken for those of a new one.
  local function forget_rows(log, tick)
    if log.rows == 0 then return end
    open(log)
    for _, row in ipairs(log.row_list) do row.count, row.tick = 0, tick end
  end

  local function clear(log, r)
    log.newest, log.lease, log.lease_end, log.capacity, log.tail, log.head = 0, 0, 0, 0, 0, 0
    log.pushed_tick, log.read = false, nil
    if log.ticks then log.ticks, log.counts = {}, {} end
    if log.r ~= r then
      log.last = ceil(log.last * log.r / r)
      log.r = r
      forget_rows(log, log.last)
    end
  end

  function ops.settle(log, limit)
    ops.follow(log, limit)
    if log.used > 0 then
      local window = limit.window
      if log.lease > 0 then
        if now_floor < log.lease_end + window then
          window = window + log.lease
        else
          log.lease, log.lease_end, log.changed = 0, 0, true
        end
      end
      if log.last * log.r + window <= now_floor then
        log.used, log.changed = 0, true
      else
        local popped = false
        while log.tail < log.head do
          local age = log.ticks and log.last - log.ticks[log.tail] or (log.last - log.tail_tick) % U32
          local left = max(log.last - age, 0) * log.r + window <= now_floor
          if not left and not popped then break end
          local _, count = entry(log, log.tail)
          -- What refunds have emptied goes as soon as it is the oldest.
          if not left and count > 0 then break end
          log.used, popped = log.used - count, true
          pop(log)
        end
      end
    end
    local wanted = log.lease == 0 and limit.r or wanted_r(limit, log.lease)
    if log.used == 0 then
      clear(log, wanted)
    elseif wanted > log.r then
      raise_r(log, wanted)
    end
  end

  -- --- charge and refund --------------------------------------------------------------------------------

  local function push(log, tick, count)
    if log.pushed_tick or (not log.short and log.head - log.tail >= log.capacity) then open(log) end
    if log.ticks then
      log.ticks[log.head], log.counts[log.head] = tick, count
    else
      log.pushed_tick, log.pushed_count = tick % U32, count
    end
    if log.tail == log.head then log.tail_tick = tick % U32 end
    log.head = log.head + 1
  end

  -- Takes units, whether they fit or not, and returns the end of the tick that they went to.
  function ops.charge(log, limit, units)
    local natural = ceil(now_ceil / log.r)
    if log.used == 0 then
      -- The clock stands where it stood before the log ran empty: receipts from then must not match.
      if natural <= log.last then
        log.epoch = (log.epoch + 1) % U32
        forget_rows(log, natural)
      end
      log.tail, log.head, log.newest, log.pushed_tick, log.last, log.changed = 0, 0, 0, false, natural, true
      if log.ticks then log.ticks, log.counts = {}, {} end
    elseif natural > log.last then
      if log.newest > 0 then
        make_space(log, limit)
        natural = ceil(now_ceil / log.r)
      end
      if natural > log.last then
        if log.newest > 0 then push(log, log.last, log.newest) end
        log.newest, log.last, log.changed = 0, natural, true
      end
    end
    log.newest, log.used, log.changed = log.newest + units, log.used + units, true
    return log.last * log.r
  end

  -- Gives back up to `units` of the tick that is `age` ticks older than the last; returns how many. The oldest
  -- entry always holds permits: what is told of the next to leave needs no look at the ring.
  local function give_back(log, age, units)
    if age == 0 then
      units = min(units, log.newest)
      log.newest, log.used, log.changed = log.newest - units, log.used - units, true
      return units
    end
    local low, high = log.tail, log.head - 1
    while low <= high do -- ages fall from tail to head
      local place = floor((low + high) / 2)
      local found = entry(log, place)
      if found == age then
        place = place - open(log)
        units = min(units, log.counts[place])
        log.counts[place], log.used = log.counts[place] - units, log.used - units
        while log.tail < log.head and log.counts[log.tail] == 0 do pop(log) end
        return units
      end
      if found > age then low = place + 1 else high = place - 1 end
    end
    return 0
  end

  function ops.refund(log, limit, receipt, units)
    if receipt.epoch ~= log.epoch or receipt.at % log.r ~= 0 then return 0 end
    local age = log.last - receipt.at / log.r
    if age < 0 or leaves_at(log, receipt.at, limit.window) <= now_floor then return 0 end
    return give_back(log, age, min(units, receipt.units))
  end

  -- Takes note of a lease of permits that were just charged: core's LeaseSpan::extend.
  function ops.extend_lease(log, at, length)
    log.lease, log.lease_end, log.changed = max(log.lease, length), max(log.lease_end, at + length), true
  end

  -- --- what callers are told ----------------------------------------------------------------------------

  -- Time until at least `units` of those in use have slid out.
  local function freed_after(log, limit, units)
    if units == 0 then return 0 end
    local at, freed = log.last * log.r, 0
    if units == 1 and log.tail < log.head then
      local age = log.ticks and log.last - log.ticks[log.tail] or (log.last - log.tail_tick) % U32
      at = max(log.last - age, 0) * log.r
    else
      for place = log.tail, log.head - 1 do
        local age, count = entry(log, place)
        freed = freed + count
        if freed >= units then
          at = max(log.last - age, 0) * log.r
          break
        end
      end
    end
    return max(leaves_at(log, at, limit.window) - now_floor, 0)
  end

  function ops.retry_after(log, limit, cost)
    return freed_after(log, limit, max(log.used + cost - limit.permits, 0))
  end

  function ops.reset_after(log, limit)
    return freed_after(log, limit, max(log.used - limit.permits, 0) + 1)
  end

  -- --- ledger -------------------------------------------------------------------------------------------

  -- What is remembered of this instance's last executed call: seq, count, age of its tick.
  local function find_row(log)
    if log.row_list then
      for _, row in ipairs(log.row_list) do
        if row.identity == identity then return row.seq, row.count, (log.last - row.tick) % U32 end
      end
      return
    end
    local at = find(log.raw, identity, HEADER_LEN + 1, true)
    while at and (at - HEADER_LEN - 1) % ROW_LEN ~= 0 do at = find(log.raw, identity, at + 1, true) end
    if at and at <= HEADER_LEN + log.rows * ROW_LEN then
      local tick, count, seq = unpack('>I4I4I8', log.raw, at + 8)
      log.row_at = at
      return seq, count, (log.last - tick) % U32
    end
  end

  -- Compares sequence numbers, and takes back what was granted in a reply that never arrived. Returns nothing
  -- if the call may be decided, else STALE or BEHIND, and the last seq that the key knows of. `lapsed`: all that
  -- the instance was granted has left its window, by its own clock, so there is nothing to put back.
  function ops.compare(log, ack, reset_epoch, lapsed)
    log.compared = true
    local stored, count, age = find_row(log)
    if not stored then
      -- A key that knows of an earlier reset has lost the last one, or itself.
      if ack > 0 and not lapsed and reset_epoch >= log.reset_epoch then return BEHIND, 0 end
    elseif seq <= stored then
      return STALE, stored
    elseif stored > ack then
      if count > 0 then
        give_back(log, age, count)
        log.row_changed = true
      end
    elseif stored < ack and not lapsed then
      return BEHIND, stored
    end
  end

  -- Merges permits, whose ticks don't fall, into the entries: core's put_back::merge.
  local function merge(log, back_ticks, back_counts, back_n)
    local ticks, counts, n, place = {}, {}, 0, log.tail
    local function add(tick, count)
      if n > 0 and ticks[n - 1] == tick then
        counts[n - 1] = counts[n - 1] + count
      else
        if n > 0 and counts[n - 1] == 0 then n = n - 1 end
        ticks[n], counts[n], n = tick, count, n + 1
      end
    end
    local has_last = log.used > 0
    local function add_own(before)
      while has_last and place < log.head and log.ticks[place] <= before do
        if log.counts[place] > 0 then add(log.ticks[place], log.counts[place]) end
        place = place + 1
      end
      if has_last and log.last <= before then
        add(log.last, log.newest)
        has_last = false
      end
    end
    for i = 1, back_n do
      add_own(back_ticks[i])
      add(back_ticks[i], back_counts[i])
    end
    add_own(math.huge)
    log.ticks, log.counts, log.tail, log.head = ticks, counts, 0, n - 1
    log.last, log.newest = ticks[n - 1], counts[n - 1]
  end

  -- Puts permits back that a failover has lost: core's TickLog::put_back. They stand in the call, `back.n` of them
  -- from `back.at` on, by how many ms ago they were spent. Returns how many have not left the window.
  local function put_back(log, limit, back)
    local lease, lease_end, changed = log.lease, log.lease_end, log.changed
    if back.lease > 0 then ops.extend_lease(log, now_ceil, min(back.lease, LEASE_MAX)) end
    -- While the clock has yet to catch up with the log, its charges are dated at the log's last tick.
    local ahead = log.used > 0 and log.last > ceil(now_ceil / log.r)
    local begin = ahead and log.last * log.r or now_ceil
    local ticks, counts, n, units, from = {}, {}, 0, 0, back.at
    for _ = 1, back.n do
      local age, count
      age, count, from = unpack('<I6I4', blob, from)
      local tick = ceil(max(begin - age, 0) / log.r)
      count = min(count, U32 - 1 - log.used - units)
      if count > 0 and leaves_at(log, tick * log.r, limit.window) > now_floor then
        n, units = n + 1, units + count
        ticks[n], counts[n] = tick, count
      end
    end
    if units == 0 then
      log.lease, log.lease_end, log.changed = lease, lease_end, changed
      return 0
    end
    open(log)
    local empty = log.used == 0
    log.epoch = (log.epoch + 1) % U32
    merge(log, ticks, counts, n)
    log.used, log.changed = log.used + units, true
    if empty then
      for _, row in ipairs(log.row_list) do row.count, row.tick = 0, log.last end
    end
    local most = limit.param > 0 and RESOLUTION_ENTRIES_MAX or ENTRIES_MAX
    while log.head > most do raise_r(log, min(log.r * 2, U32 - 1)) end
    return units
  end

  -- Compares as above, and puts back what the instance says was lost, if the key still knows as little of it as
  -- `back.stored` says: core's ledger::put_back.
  function ops.put_back(log, limit, ack, reset_epoch, lapsed, back)
    local stored, count, age = find_row(log)
    local behind = ack > 0 and reset_epoch >= log.reset_epoch
    if stored then behind = seq > stored and stored < ack end
    if lapsed or not behind or (stored or 0) ~= back.stored then
      if not back.only then return ops.compare(log, ack, reset_epoch, lapsed) end
      log.compared = true
      return STALE, stored or 0
    end
    log.compared = true
    if stored and not back.accepted and count > 0 and give_back(log, age, count) > 0 and log.used == 0 then
      ops.settle(log, limit)
    end
    if put_back(log, limit, back) > 0 or stored then log.row_changed = true end
  end

  -- The rows as bytes, with this call's.
  local function rows_of(log, limit)
    local raw, own = log.raw, nil
    if log.compared and (log.granted > 0 or log.row_changed) then
      own = identity .. pack('>I4I4I8', log.last % U32, log.granted, seq)
      if not log.row_list and not log.row_at and log.rows >= (log.short and ROWS_SHORT or log.rows_capacity) then
        open(log)
      end
    end
    if not log.row_list then
      if not own then return sub(raw, HEADER_LEN + 1, HEADER_LEN + log.rows * ROW_LEN) end
      if log.row_at then
        return sub(raw, HEADER_LEN + 1, log.row_at - 1) .. own
          .. sub(raw, log.row_at + ROW_LEN, HEADER_LEN + log.rows * ROW_LEN)
      end
      log.rows = log.rows + 1
      return sub(raw, HEADER_LEN + 1, HEADER_LEN + (log.rows - 1) * ROW_LEN) .. own
    end
    local kept, oldest = {}, 1
    for _, row in ipairs(log.row_list) do
      local left = leaves_at(log, max(row.tick, 0) * log.r, limit.window) <= now_floor
      if row.identity ~= identity and not (own and left) or row.identity == identity and not own then
        kept[#kept + 1] = row
        if row.tick < kept[oldest].tick then oldest = #kept end
      end
    end
    if own and #kept >= ROWS_MAX then table.remove(kept, oldest) end
    for n, row in ipairs(kept) do
      kept[n] = row.identity .. pack('>I4I4I8', row.tick % U32, row.count, row.seq)
    end
    kept[#kept + 1] = own
    log.rows = #kept
    return concat(kept)
  end

  -- --- save ---------------------------------------------------------------------------------------------

  local function power_of_two(least, from)
    while from < least do from = from * 2 end
    return from
  end

  -- The whole value, its ring in order from the front.
  local function value_of(log, limit)
    local rows, ring, n = rows_of(log, limit), '', log.head - log.tail
    if log.ticks then
      local entries = {}
      for place = log.tail, log.head - 1 do
        entries[#entries + 1] = pack('>I4I4', log.counts[place], log.ticks[place] % U32)
      end
      ring = concat(entries)
    elseif n > 0 then
      local ring_at, stored = HEADER_LEN + log.rows_capacity * ROW_LEN, log.head - (log.pushed_tick and 1 or 0)
      ring = sub(log.raw, ring_at + log.tail * ENTRY_LEN + 1, ring_at + stored * ENTRY_LEN)
      if log.pushed_tick then ring = ring .. pack('>I4I4', log.pushed_count, log.pushed_tick) end
    end
    local capacity, rows_capacity = n == 0 and 0 or power_of_two(n, RING_MIN), log.rows
    if HEADER_LEN + #rows + #ring >= SHORT_MAX and log.rows > 0 then
      rows_capacity = power_of_two(log.rows, ROWS_MIN)
      rows = rows .. string.rep('\0', (rows_capacity - log.rows) * ROW_LEN)
    end
    local tail_tick = n == 0 and log.last or log.ticks and log.ticks[log.tail] or log.tail_tick
    return pack(HEADER, FORMAT, TICK_LOG, log.rows, rows_capacity, log.lease, log.r, capacity, log.epoch,
      tail_tick % U32, 0, n, log.used, log.newest, log.last, log.reset_epoch, log.lease_end) .. rows .. ring
  end

  -- Writes a long log in place.
  local function update(log, rows)
    if log.tail >= log.capacity then log.tail, log.head = log.tail - log.capacity, log.head - log.capacity end
    local tail_tick = log.tail == log.head and log.last or log.tail_tick
    local head = pack(HEADER, FORMAT, TICK_LOG, log.rows, log.rows_capacity, log.lease, log.r, log.capacity, log.epoch,
      tail_tick % U32, log.tail, log.head, log.used, log.newest, log.last, log.reset_epoch, log.lease_end)
    call('SETRANGE', log.key, '0', head .. rows)
    if log.pushed_tick then
      local slot = (log.head - 1) % log.capacity
      call('SETRANGE', log.key, text(HEADER_LEN + log.rows_capacity * ROW_LEN + slot * ENTRY_LEN),
        pack('>I4I4', log.pushed_count, log.pushed_tick))
    end
  end

  function ops.needed(log, limit)
    if log.used == 0 then return 0 end
    return max(leaves_at(log, log.last * log.r, limit.window) - now_floor, 0)
  end

  function ops.save(log, limit)
    local needed = ops.needed(log, limit)
    if not log.changed and not log.row_changed then return heal(log, limit, needed) end
    local rows
    if not log.new and not log.short and not log.ticks and log.head > log.tail then
      rows = rows_of(log, limit)
    end
    if not rows or log.ticks then
      set(log, limit, value_of(log, limit), needed)
    else
      update(log, rows)
      heal(log, limit, needed)
    end
  end

  return ops
end
