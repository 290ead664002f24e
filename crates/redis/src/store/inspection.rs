//! Inspection of stored state, for operators: holders of permits, and times to live.

use std::sync::LazyLock;
use std::time::Duration;

use spile_core::{Charge, Charges, HeldPermit, Inspect, Kept, Micros, PermitId, Shape, StoreError};
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

/// The time to live of a hash or a set, -2 if it has not the field that is asked for.
static KEPT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local held = ARGV[1] == '' and 1 or redis.pcall('HEXISTS', KEYS[1], ARGV[1])
         return held == 0 and -2 or redis.call('PTTL', KEYS[1])",
    )
});

/// Asks for each charge by itself, over a separate connection: this is rare, and must not delay decisions.
impl Inspect for RedisStore {
    async fn kept(&self, charges: &Charges<'_>) -> Result<Vec<Kept>, StoreError> {
        let mut kept = Vec::with_capacity(charges.len());
        for charge in charges.iter() {
            kept.push(
                match self.inspect(charge, &KEPT, |wire| field_of(wire).into_bytes()).await?.as_int() {
                    Some(ms @ 0..) => Kept::For(Duration::from_millis(ms.unsigned_abs())),
                    // The store never writes a key without a time to live.
                    Some(-1) => Kept::UntilFull,
                    _ => Kept::Absent,
                },
            );
        }
        Ok(kept)
    }

    async fn holders(&self, charges: &Charges<'_>) -> Result<Vec<Vec<HeldPermit>>, StoreError> {
        let mut holders = Vec::with_capacity(charges.len());
        for charge in charges.iter() {
            let mut held = Vec::new();
            if charge.needs_permit() {
                let now = self.inner.context.time.now_us().to_string();
                let reply = self.inspect(charge, &HOLDERS, |_| now.into_bytes()).await?;
                let (pairs, _) = reply.as_array().unwrap_or_default().as_chunks();
                held.extend(pairs.iter().filter_map(held_permit));
            }
            holders.push(held);
        }
        Ok(holders)
    }
}

impl RedisStore {
    /// Runs a script on the key of a charge.
    async fn inspect(
        &self,
        charge: &Charge<'_>,
        script: &Script,
        argument: impl FnOnce(&WireCharge) -> Vec<u8>,
    ) -> Result<Value, StoreError> {
        let wire = WireCharge::new(&self.inner.context.prefix, charge);
        // Keys are percent-encoded only where that is needed, and so are text.
        let key = String::from_utf8_lossy(wire.key.hash()).into_owned();
        let session = Session::new(key.clone(), &self.inner);
        let reply = session.run(script, &[key], &[&argument(&wire)], self.inner.context.timeout).await;
        reply.map_err(|why| not_run(why.to_string()))
    }
}

/// The first field of a bucket. Empty for permits.
fn field_of(wire: &WireCharge) -> String {
    let field = match wire.limit.limit.shape() {
        Shape::Rate(_) => "t",
        Shape::Quota(_) => "u",
        Shape::Concurrency(_) => return String::new(),
    };
    let name = String::from_utf8_lossy(wire.key.name());
    if name.is_empty() { field.to_owned() } else { format!("{name}:{field}") }
}

/// Skips members that are not permits of this store.
fn held_permit([id, until]: &[Value; 2]) -> Option<HeldPermit> {
    let until: f64 = until.as_str()?.parse().ok()?;
    Some(HeldPermit { id: PermitId::parse(id.as_str()?).ok()?, until: Micros::new(until as u64) })
}
