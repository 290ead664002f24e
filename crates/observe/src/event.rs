//! What is worth telling somebody, and the last of it.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use spile_core::Micros;
use tokio::sync::broadcast;

/// Events that are kept to be looked at.
const KEPT: usize = 100;
/// Events that a slow listener may lag behind before it misses some.
const LAG: usize = 1_024;

/// Something that happened.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Counts up from one.
    pub id: u64,
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// What can happen.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum What {
    /// A key was denied for the first time in a window.
    KeyDenied {
        /// The key, as the operator lets it be shown.
        key: String,
        /// The rule that asked.
        rule: String,
        /// The limit that denied.
        limit: String,
        /// When it may come back.
        retry_after_ms: u64,
    },
    /// A tenant has used most of a limit.
    TenantNear {
        /// Which tenant.
        tenant: String,
        /// Which limit.
        limit: String,
        /// How much of it, in percent.
        used_percent: u32,
    },
    /// A tenant has used all of a limit and was denied.
    TenantOver {
        /// Which tenant.
        tenant: String,
        /// Which limit.
        limit: String,
    },
    /// The store stopped answering.
    StoreLost {
        /// What it said last.
        why: String,
    },
    /// The store answers again.
    StoreRecovered {
        /// How long it did not.
        lost_for_ms: u64,
    },
    /// A new configuration is in force.
    ConfigReloaded,
    /// A new configuration was bad; the old one stays.
    ConfigRefused {
        /// What is wrong with it.
        why: String,
    },
}

impl What {
    /// The word that webhooks and the API use.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::KeyDenied { .. } => "key_denied",
            Self::TenantNear { .. } => "tenant_near",
            Self::TenantOver { .. } => "tenant_over",
            Self::StoreLost { .. } => "store_lost",
            Self::StoreRecovered { .. } => "store_recovered",
            Self::ConfigReloaded => "config_reloaded",
            Self::ConfigRefused { .. } => "config_refused",
        }
    }
}

/// The last events, and whoever listens for the next.
#[derive(Debug)]
pub(crate) struct Events {
    ring: Mutex<Ring>,
    listeners: broadcast::Sender<Event>,
}

#[derive(Debug, Default)]
struct Ring {
    count: u64,
    /// Denials are many: they must not push out the one line that explains them.
    denials: VecDeque<Event>,
    others: VecDeque<Event>,
}

impl Events {
    pub(crate) fn new() -> Self {
        Self { ring: Mutex::default(), listeners: broadcast::Sender::new(LAG) }
    }

    pub(crate) fn tell(&self, now: Micros, what: What) {
        let mut ring = self.ring.lock();
        ring.count += 1;
        let event = Event { id: ring.count, at_ms: now.get() / 1_000, what };
        let kept =
            if matches!(event.what, What::KeyDenied { .. }) { &mut ring.denials } else { &mut ring.others };
        if kept.len() == KEPT / 2 {
            kept.pop_front();
        }
        kept.push_back(event.clone());
        // An event that nobody listens for is still in the ring.
        let _listened = self.listeners.send(event);
    }

    /// The last events, the latest first.
    pub(crate) fn latest(&self) -> Vec<Event> {
        let ring = self.ring.lock();
        let mut all: Vec<_> = ring.denials.iter().chain(&ring.others).cloned().collect();
        all.sort_by_key(|event| std::cmp::Reverse(event.id));
        all
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<Event> {
        self.listeners.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_denials_leaves_the_loss_of_the_store_in_sight() {
        let events = Events::new();
        events.tell(Micros::from_secs(1), What::StoreLost { why: "refused".into() });
        for key in 0..10_000 {
            let (rule, limit) = (String::new(), "free".into());
            events.tell(
                Micros::from_secs(2),
                What::KeyDenied { key: key.to_string(), rule, limit, retry_after_ms: 1 },
            );
        }
        let latest = events.latest();
        assert_eq!(latest.len(), KEPT / 2 + 1);
        assert_eq!(latest.last().map(|event| event.what.kind()), Some("store_lost"));
    }
}
