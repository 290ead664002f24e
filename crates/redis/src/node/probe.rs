//! A probe shows whether a node decides: it runs the script, with at most one key.

use std::sync::Arc;

use spile_runtime::Runtime;
use tokio::sync::oneshot;

use crate::connection::{Connection, ConnectionError};
use crate::script::call::{RefusedCall, ScriptCall};
use crate::script::key::KeyPrefix;
use crate::script::request::{BatchGroup, PendingRequest, Request, ScriptOp};
use crate::topology::slot::suffix_for_slot;

/// A script call that decides nothing. It shows more than `PING`: a paused, busy or loading node does not run the
/// script, and a cluster that is down runs it only without a key.
pub(crate) struct Probe {
    /// About a key of a slot that the node serves. `None` outside a cluster.
    request: Option<Arc<Request>>,
}

impl Probe {
    /// A probe for the node that serves `slot`, or for one outside a cluster.
    pub(crate) fn new(prefix: &KeyPrefix, slot: Option<u16>) -> Self {
        let ending = slot.and_then(|slot| suffix_for_slot(slot, b":probe-"));
        let name = ending.map(|ending| format!("probe-{}", String::from_utf8_lossy(&ending)));
        let key = name.map(|name| prefix.key_space(&name).into_bytes());
        Self { request: key.and_then(|key| Request::probe(ScriptOp::Peek, key, 0)).map(Arc::new) }
    }

    /// Runs the probe. A node that redirects it answers, and so counts as healthy.
    pub(crate) async fn run(
        &self,
        connection: &mut Connection,
        runtime: &Runtime,
    ) -> Result<(), ConnectionError> {
        let waiting = self.request.iter().map(|request| PendingRequest {
            request: Arc::clone(request),
            group: BatchGroup::Alone,
            answer: oneshot::channel().0,
            deadline: None,
        });
        let call = ScriptCall::new(runtime.random() >> 12, waiting.collect()).with_source();
        let mut command = Vec::new();
        call.write(1, &mut command);
        connection.send(&command).await?;
        match call.read(&connection.receive().await?)? {
            Err(RefusedCall { text, .. })
                if !["MOVED ", "ASK "].iter().any(|code| text.starts_with(code)) =>
            {
                Err(ConnectionError::Refused(text))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::slot::SLOTS;

    #[test]
    fn a_probe_has_a_key_of_its_slot() {
        let prefix = KeyPrefix::new("spile").unwrap();
        for slot in (0..SLOTS).step_by(37) {
            let request = Probe::new(&prefix, Some(slot)).request;
            assert_eq!(request.map(|request| request.slot()), Some(slot));
        }
    }
}
