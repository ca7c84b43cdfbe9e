    elseif kind == 3 then
      -- sliding_log: the twin of sorted_log.lua. Alone in its check, so it is written at once.
      local newest = redis.pcall('ZREVRANGE', key, '0', '0', 'WITHSCORES')
      local last, used, expired, reset = tonumber(newest[2]), 0, 0, nil
      if newest.err or last and (last > now_ceil or not string.find(newest[1], '^%d+:%x+:%d+$')) then break end
      if last then
        used = call('ZCOUNT', key, '(' .. string.format('%.0f', edge), '+inf')
        expired = call('ZCARD', key) - used
      end

      -- Decide. A longer wait than for the oldest to leave needs another look.
      local room = floor((permits - used) / cost)
      if room < 0 then break end
      if room < grant then grant = room end
      local taken, score = grant * cost, string.format('%.0f', now_ceil)
      if grant < times and used + taken + cost ~= permits + 1 or taken > 1000 then break end
      local oldest = now_ceil
      if used > 0 then
        local rank = string.format('%.0f', expired)
        oldest = call('ZRANGE', key, rank, rank, 'WITHSCORES')[2]
      end
      reset = oldest + window - now_floor

      -- Only after something was added what has expired: a store without memory has then lost nothing.
      local lives, needed = last and call('PTTL', key), (taken > 0 and now_ceil or last) + window - now_floor
      if taken > 0 then
        local prefix = string.format('%.0f:%02x%02x%02x%02x%02x%02x%02x%02x:', seq % 4294967296, string.byte(identity, 1, 8))
        local members = {}
        for n = 1, taken do members[2 * n - 1], members[2 * n] = score, prefix .. string.format('%.0f', n) end
        call('ZADD', key, spread(members))
      end
      if expired > 0 then
        call('ZREMRANGEBYRANK', key, '0', string.format('%.0f', min(expired, 1000 + 2 * taken) - 1))
      end
      local most = needed + ARGV[limit + 2] - window
      if not lives or lives < needed or lives > most then ttl = string.format('%.0f', most) end
      hot = pack('<BBI4BI4I4I6I6I6I8I4I8I4', 2, 0, grant, grant < times and 3 or 0, used + taken, permits - used - taken,
        reset, grant < times and reset or 0, 0, 0, seq % 4294967296, taken > 0 and now_ceil or 0, taken)
