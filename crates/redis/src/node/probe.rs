//! A probe shows whether a node decides: it runs the script, with at most one key.

use std::sync::Arc;

use smallvec::smallvec;
use spile_core::Limit;
use spile_resp::Value;
use spile_runtime::Runtime;
use tokio::sync::oneshot;

use crate::connection::{Connection, ConnectionError};
use crate::script::call::{CallReply, ScriptCall};
use crate::script::key::KeyPrefix;
use crate::script::request::{BatchGroup, PendingRequest, Request, ScriptOp, WireCharge};
use crate::topology::slot::suffix_for_slot;

/// A script call that decides nothing. It shows more than `PING`: a paused, busy or loading node does not run the
/// script, and a cluster that is down runs it only without a key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probe {
    /// A key of a slot that the node serves. `None` outside a cluster.
    key: Option<Vec<u8>>,
}

impl Probe {
    /// A probe for the node that serves `slot`.
    pub(crate) fn for_slot(prefix: &KeyPrefix, slot: u16) -> Self {
        let ending = suffix_for_slot(slot, b":probe-");
        let name = ending.map(|ending| format!("probe-{}", String::from_utf8_lossy(&ending)));
        Self { key: name.map(|name| prefix.key_space(&name).into_bytes()) }
    }

    /// Runs the probe. A node that redirects it answers, and so counts as healthy.
    pub(crate) async fn run(
        &self,
        connection: &mut Connection,
        runtime: &Runtime,
    ) -> Result<(), ConnectionError> {
        let call = ScriptCall::new(runtime.random() >> 12, self.waiting()).with_source();
        let mut command = Vec::new();
        call.write(1, &mut command);
        connection.send(&command).await?;
        match connection.receive().await? {
            Value::Error(refusal) if refusal.starts_with("MOVED ") || refusal.starts_with("ASK ") => Ok(()),
            Value::Error(refusal) => Err(ConnectionError::Refused(refusal)),
            reply => match call.read(&reply)? {
                CallReply::Answered(_) => Ok(()),
                CallReply::Refused { error, .. } => Err(ConnectionError::Refused(error)),
            },
        }
    }

    fn waiting(&self) -> Vec<PendingRequest> {
        let Some((key, limit)) = self.key.clone().zip(Limit::per_second(1).build().ok()) else {
            return Vec::new();
        };
        let charge = WireCharge::alone(key, &limit, 0);
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
