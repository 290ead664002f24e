
  -- The amounts at which a reservation was settled, now or before.
  if marker_op == SETTLE and (verdict == DONE or verdict == BEFORE) then
    for at = marker + 2, i - 2, 2 do
      o = o + 1
      out[o] = max(held[args[at]] or 0, 0)
    end
  end
