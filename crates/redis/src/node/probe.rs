//! The question that shows whether a node decides: the script, on next to nothing.

use std::sync::Arc;

use smallvec::smallvec;
use spile_core::Limit;
use spile_resp::Value;
use tokio::sync::oneshot;

use crate::connection::{Connection, ConnectionError};
use crate::script::call::ScriptCall;
use crate::script::key::KeyPrefix;
use crate::script::request::{BatchGroup, PendingRequest, Request, ScriptOp, WireCharge, WireLimit};
use crate::topology::slot::suffix_for_slot;

/// What a node is asked to prove that it decides. This shows more than `PING` would: a paused, stuck or loading node
/// does not run the script, and a cluster that is down runs it without a key only.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probe {
    /// A key of a slot that the node serves, in a cluster.
    key: Option<Vec<u8>>,
}

impl Probe {
    /// A probe for the node that serves `slot`.
    pub(crate) fn for_slot(prefix: &KeyPrefix, slot: u16) -> Self {
        let ending = suffix_for_slot(slot, b":probe-");
        let name = ending.map(|ending| format!("probe-{}", String::from_utf8_lossy(&ending)));
        Self { key: name.map(|name| prefix.key_space(&name).into_bytes()) }
    }

    /// Asks, and says whether the node answered as one that decides. A node whose slot has moved answers as well as any.
    pub(crate) async fn run(&self, connection: &mut Connection) -> Result<(), ConnectionError> {
        let call = ScriptCall::new(fastrand::u64(..1 << 52), self.waiting()).with_source();
        let mut command = Vec::new();
        call.write(1, &mut command);
        connection.send(&command).await?;
        match connection.receive().await? {
            Value::Error(refusal) if refusal.starts_with("MOVED ") || refusal.starts_with("ASK ") => Ok(()),
            Value::Error(refusal) => Err(ConnectionError::Refused(refusal)),
            reply => Ok(call.read(&reply).map(drop)?),
        }
    }

    fn waiting(&self) -> Vec<PendingRequest> {
        let Some((key, limit)) = self.key.clone().zip(Limit::per_second(1).build().ok()) else {
            return Vec::new();
        };
        let charge = WireCharge { key, limit: WireLimit::from(&limit), cost_micro: 0 };
        let request = Request::new(ScriptOp::Peek, smallvec![charge]);
        let (answer, _) = oneshot::channel();
        vec![PendingRequest::new(Arc::new(request), BatchGroup::Alone, answer, None)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::slot::{SLOTS, slot_of};

    #[test]
    fn a_probe_has_a_key_of_its_slot() {
        let prefix = KeyPrefix::new("spile").unwrap();
        for slot in (0..SLOTS).step_by(37) {
            assert_eq!(Probe::for_slot(&prefix, slot).key.map(|key| slot_of(&key)), Some(slot));
        }
    }
}
