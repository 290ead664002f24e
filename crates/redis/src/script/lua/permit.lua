
  if op and permit_step == RENEW then
    verdict = held_by_all and DONE or DENIED
  elseif op and permit_step == RELEASE then
    -- A permit that is not held refunds nothing: it was released before, or its acquisition never ran.
    verdict, step = held_by_any and DONE or DENIED, held_by_any and GIVE or LOOK
  end
