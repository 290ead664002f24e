//! Who holds permits, for operators.

use std::sync::LazyLock;

use spile_core::{Charge, Charges, HeldPermit, Micros, PermitId, StoreError};
use spile_resp::Value;

use crate::script::Script;
use crate::script::error_reply::not_run;
use crate::script::request::WireCharge;
use crate::session::Session;
use crate::store::RedisStore;

/// The permits that end first, and when they end.
static HOLDERS: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local now = tonumber(ARGV[1])
         if now == 0 then
           local time = redis.call('TIME')
           now = time[1] * 1000000 + time[2]
         end
         local after = '(' .. string.format('%d', now)
         local held = redis.pcall('ZRANGEBYSCORE', KEYS[1], after, '+inf', 'WITHSCORES', 'LIMIT', 0, 1000)
         if held.err and string.find(held.err, 'WRONGTYPE', 1, true) then
           return {}
         end
         return held",
    )
});

impl RedisStore {
    /// Asks for each concurrency by itself, over a connection of its own: this is rare, and must not delay decisions.
    pub(crate) async fn list_holders(
        &self,
        charges: &Charges<'_>,
    ) -> Result<Vec<Vec<HeldPermit>>, StoreError> {
        let mut holders = Vec::with_capacity(charges.len());
        for charge in charges.iter() {
            holders.push(if charge.needs_permit() { self.holders_of(charge).await? } else { Vec::new() });
        }
        Ok(holders)
    }

    async fn holders_of(&self, charge: &Charge<'_>) -> Result<Vec<HeldPermit>, StoreError> {
        let wire = WireCharge::new(&self.inner.prefix, charge, self.inner.uptime());
        // Keys are percent-encoded only where that is needed, and so are text.
        let key = String::from_utf8_lossy(wire.key.hash()).into_owned();
        let now = self.inner.time.now_us();
        let session = Session::new(key.clone(), &self.inner.sessions);
        let held = session.run(&HOLDERS, &[key], &[now.to_string().as_bytes()], self.inner.timeout).await;
        let held = held.map_err(|why| not_run(why.to_string()))?;
        let (pairs, _) = held.as_array().unwrap_or_default().as_chunks();
        Ok(pairs.iter().filter_map(held_permit).collect())
    }
}

/// What is not a permit of this store is left out.
fn held_permit([id, until]: &[Value; 2]) -> Option<HeldPermit> {
    let until: f64 = until.as_str()?.parse().ok()?;
    Some(HeldPermit { id: PermitId::parse(id.as_str()?).ok()?, until: Micros::new(until as u64) })
}
