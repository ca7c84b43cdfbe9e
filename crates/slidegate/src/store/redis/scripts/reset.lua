-- Empties counters. A tick log stays as an empty one for a window, with a higher epoch: ledgers from before
-- must not be restored. The others leave nothing that a receipt could hit but their epoch.

for part = 1, parts do
  local limit = limit_at(unpack('<B', blob, at))
  at = at + 1
  local name = KEYS[part]
  local kind, fault, raw = read(name)
  local old = kind and ops_of(kind).load(name, raw)
  -- More than one word: else servers put ERR in front.
  if fault == NEWER_FORMAT then return redis.error_reply('NEWERFORMAT a newer release wrote this key') end
  if fault or kind and not old then return redis.error_reply('FOREIGNKEY another program wrote this key') end
  if kind == SORTED_LOG then
    call('UNLINK', name)
  elseif old then
    local fresh = ops_of(limit.kind).load(name)
    fresh.epoch, fresh.changed = (old.epoch + EPOCH_STRIDE) % U32, true
    if limit.kind == TICK_LOG then fresh.reset_epoch = max((old.reset_epoch or 0) + 1, now_floor) end
    ops_of(limit.kind).settle(fresh, limit)
    if limit.kind == SORTED_LOG then call('UNLINK', name) else ops_of(limit.kind).save(fresh, limit) end
  end
end
return '\1' .. pack('>I8', now)
