
    -- The time to live covers the time until all buckets that were asked about are full, and is never shortened. It is read with PTTL and
    -- not worked out from the fields, because the last writer may have used other limits.
    if full > now or n > 0 and not is_live then
      local needed_ms = (full - now) / 1000 + 2
      local reply = is_live and pcall('PTTL', name) or -1
      local is_error = type(reply) == 'table'
      if not is_error and reply < needed_ms then
        reply = pcall('PEXPIRE', name, format('%d', min(max(keep_ms, ceil(needed_ms)), CENTURY_MS)))
        wrote, is_error = reply == 1 and 1 or wrote, type(reply) == 'table'
      end
      if is_error then
        return { args[1], reply.err, wrote }
      end
    end
  end
  k = k + args[i]
  i = i + 1
end
return out
