
  -- The amounts at which a reservation was settled, now or before.
  if marker_op == SETTLE and (verdict == DONE or verdict == BEFORE) then
    o = o + 1
    out[o] = settled_at[args[marker]] or ''
  end
