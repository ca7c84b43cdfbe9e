  until true
  if hot then
    if left > 0 then
      waiting = waiting or {}
      waiting[#waiting + 1] = { key, bytes, offset, ttl, pushed, pushed_at }
      tellings, passed = tellings .. hot, passed + 1
    else
      if passed > 0 then
        for _, earlier in ipairs(waiting) do write(spread(earlier, 1, 6)) end
        hot, tellings, passed, waiting = tellings .. hot, '', 0, nil
      end
      write(key, bytes, offset, ttl, pushed, pushed_at)
      if parts == 1 then return '\1' .. hot .. pack('>I8', now) end
      told[done + 1], done, grant = hot, done + 1, nil
    end
    at, key_at = at + 17, key_at + 1
  elseif hot == false then
    -- Fewer are granted than the counters before this one were asked for.
    at, key_at = at - passed * 17, key_at - passed
    tellings, passed, waiting = '', 0, nil
  else
    skipped = skipped or {}
    skipped[#skipped + 1] = { place = done, at = at - passed * 17, key_at = key_at - passed }
    at, key_at, done = at + left * 17 + 17, key_at + left + 1, done + 1
    tellings, passed, waiting, grant = '', 0, nil, nil
  end
end
if done == parts and not skipped then
  told[done + 1] = pack('>I8', now)
  return '\1' .. table.concat(told)
end
