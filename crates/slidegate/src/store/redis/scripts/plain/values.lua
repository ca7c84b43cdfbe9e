    else
      -- fixed_window and the buckets, twins of fixed_window.lua and bucket.lua: a few numbers, which are written
      -- whole, and told as they are then. What a caller is told of them, core's algorithms say to whoever asked.
      local new, used, epoch, changed = raw == '', 0, now_floor % 4294967296, false
      local formats, room, value, needed = FORMAT * 16777216, 0, '', 0
      -- When it was charged, or has drained up to. Of buckets in units of 1/W permit, whole numbers as long as they are
      -- below 2^53: what has not drained; and of that, what is missing from whole permits.
      local dated, backlog, remainder, delay = 0, 0, 0, nil
      if kind == 4 then
        formats = formats + 65536
        if not new then
          if #raw ~= 20 then break end
          local found
          found, epoch, used, dated = unpack('>I4I4I4I8', raw)
          if found ~= formats or dated > now_floor then break end
          if used > 0 and dated < now_floor - now_floor % window then
            epoch, used, dated, changed = (epoch + 1) % 4294967296, 0, now_floor, true
          end
        end
        room = floor((permits - used) / cost)
      else
        formats, dated = formats + 131072, now_floor
        if not new then
          if #raw ~= 36 then break end
          local found, found_window, drained
          found, epoch, found_window, used, remainder, drained = unpack('>I4I4I8I4I8I8', raw)
          local drains = drained < now_floor and now_floor - drained or 0
          if found ~= formats or found_window ~= window or remainder >= window or drained > now_ceil
            or drains > 31622400000 or drains * permits >= 9007199254740992 or used * window >= 9007199254740992 then
            break
          end
          backlog = used * window - remainder - drains * permits
          if backlog <= 0 then
            if drained > now_floor then break end
            backlog = 0
          end
          used = ceil(backlog / window)
          remainder = used * window - backlog
          if drained < now_floor then changed = true else dated = drained end
        end
        if kind == 5 then
          room = floor((param - used) / cost)
        else
          if param * permits >= 9007199254740992 then break end
          delay = backlog > 0 and dated + ceil(backlog / permits) - now_floor or 0
          if delay <= param then
            -- The first one fits; the others wait behind it, and behind a charge that is dated at the ceiling.
            local behind = (backlog < permits and now_ceil or dated) - now_floor
            local more = floor(((param - behind) * permits - backlog) / window)
            room = min(floor((more > 0 and more or 0) / cost) + 1, floor((4294967295 - used) / cost))
          end
        end
      end

      -- Decide. More than fits may be in use: a limit was lowered, or something settled.
      if room < 0 then room = 0 end
      if room < grant then
        grant = room
        if passed > 0 then
          hot = false
          break
        end
      end
      local refused = grant < times and room <= grant

      -- Charge.
      if kind == 4 then
        if grant > 0 then used, dated = used + grant * cost, now_floor end
        if used > 0 then needed = window - now_floor % window end
        value = pack('>I4I4I4I8', formats, epoch, used, dated)
      else
        if grant > 0 then
          -- About to run dry, it would drain for the part of this millisecond that is over.
          if backlog < permits then dated = now_ceil end
          -- A queue can only be shortened at its end: each charge makes the receipts of earlier ones void.
          if kind == 6 then epoch = (epoch + 1) % 4294967296 end
          used, backlog = used + grant * cost, backlog + grant * cost * window
          if backlog >= 9007199254740992 then break end
        end
        if used > 0 then needed = min(dated + ceil(backlog / permits) - now_floor, 281474976710656) end
        value = pack('>I4I4I8I4I8I8', formats, epoch, window, used, remainder, dated)
      end
      local most = (used > 0 and needed or window) + ARGV[limit + 2] - window
      if grant > 0 or changed then
        bytes, ttl = value, string.format('%.0f', most)
      elseif not new then
        local lives = call('PTTL', key)
        if lives < needed or lives > most then ttl = string.format('%.0f', most) end
      end
      hot = grant == times and '\4' .. value or pack('>BI4', refused and 5 or 6, grant) .. value
      if delay then hot = hot .. pack('>I8', grant > 0 and delay or 0) end
    end
