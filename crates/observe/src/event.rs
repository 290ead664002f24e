//! What is worth telling somebody, and the last of it.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use spile_core::Clock;
use tokio::sync::broadcast;

use crate::unique::unique_id;

/// Events that are kept to be looked at.
const KEPT: usize = 100;
/// Events that a slow listener may lag behind before it misses some.
const LAG: usize = 1_024;

/// Something that happened.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Like that of no other event, of this process or another: what a receiver can tell repeats by.
    pub id: String,
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
    /// More happened in a minute than events are told of.
    EventsSuppressed {
        /// The kind of event that was left out.
        kind: String,
        /// How many keys or tenants were left out, at least.
        count: u64,
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
            Self::EventsSuppressed { .. } => "events_suppressed",
        }
    }

    /// Which lane it goes in: callers decide how many denials there are, and nothing else may suffer from them.
    pub(crate) const fn lane(&self) -> Lane {
        match self {
            Self::KeyDenied { .. } | Self::TenantNear { .. } | Self::TenantOver { .. } => Lane::Denials,
            Self::StoreLost { .. }
            | Self::StoreRecovered { .. }
            | Self::ConfigReloaded
            | Self::ConfigRefused { .. }
            | Self::EventsSuppressed { .. } => Lane::Server,
        }
    }
}

/// Events that share a place to wait in. One lane that is full costs the other nothing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Lane {
    /// What callers cause: keys and tenants at their limits.
    Denials,
    /// What happens to the server: its store and its configuration.
    Server,
}

impl Lane {
    #[cfg(feature = "webhooks")]
    pub(crate) const ALL: [Self; 2] = [Self::Denials, Self::Server];
}

/// The last events, and whoever listens for the next.
pub(crate) struct Events {
    clock: Arc<dyn Clock>,
    /// What the id of each event begins with.
    instance: String,
    ring: Mutex<Ring>,
    listeners: broadcast::Sender<Event>,
    lanes: [broadcast::Sender<Event>; 2],
}

#[derive(Default)]
struct Ring {
    count: u64,
    lanes: [VecDeque<(u64, Event)>; 2],
}

impl Events {
    /// Events carry the wall time of the clock.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let sender = || broadcast::Sender::new(LAG);
        let (listeners, lanes) = (sender(), [sender(), sender()]);
        Self { clock, instance: unique_id(), ring: Mutex::default(), listeners, lanes }
    }

    pub(crate) fn tell(&self, what: What) {
        let lane = what.lane() as usize;
        let mut ring = self.ring.lock();
        ring.count += 1;
        let count = ring.count;
        let id = format!("{}-{count}", self.instance);
        let event = Event { id, at_ms: self.clock.wall().get() / 1_000, what };
        let kept = &mut ring.lanes[lane];
        if kept.len() == KEPT / 2 {
            kept.pop_front();
        }
        kept.push_back((count, event.clone()));
        // An event that nobody listens for is still in the ring.
        let _listened = self.lanes[lane].send(event.clone());
        let _listened = self.listeners.send(event);
    }

    /// The last events, the latest first.
    pub(crate) fn latest(&self) -> Vec<Event> {
        let ring = self.ring.lock();
        let mut all: Vec<_> = ring.lanes.iter().flatten().cloned().collect();
        all.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        all.into_iter().map(|(_, event)| event).collect()
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<Event> {
        self.listeners.subscribe()
    }

    /// Hears of one lane alone: however much happens in the other, this one does not fall behind.
    #[cfg(feature = "webhooks")]
    pub(crate) fn listen_to(&self, lane: Lane) -> broadcast::Receiver<Event> {
        self.lanes[lane as usize].subscribe()
    }
}

#[cfg(test)]
mod tests {
    use spile_core::FakeClock;

    use super::*;

    fn events() -> Events {
        Events::new(Arc::new(FakeClock::default()))
    }

    #[test]
    fn a_flood_of_denials_leaves_the_loss_of_the_store_in_sight() {
        for kind in ["key_denied", "tenant_near", "tenant_over"] {
            let events = events();
            events.tell(What::StoreLost { why: "refused".into() });
            for name in 0..10_000 {
                let (name, limit) = (name.to_string(), "free".into());
                events.tell(match kind {
                    "key_denied" => {
                        What::KeyDenied { key: name, rule: String::new(), limit, retry_after_ms: 1 }
                    }
                    "tenant_near" => What::TenantNear { tenant: name, limit, used_percent: 80 },
                    _ => What::TenantOver { tenant: name, limit },
                });
            }
            let latest = events.latest();
            assert_eq!(latest.len(), KEPT / 2 + 1);
            assert_eq!(latest.last().map(|event| event.what.kind()), Some("store_lost"));
        }
    }

    #[test]
    fn two_instances_give_no_two_events_the_same_id() {
        let mut ids = std::collections::HashSet::new();
        for instance in [events(), events(), events()] {
            for _ in 0..3 {
                instance.tell(What::ConfigReloaded);
            }
            ids.extend(instance.latest().into_iter().map(|event| event.id));
        }
        assert_eq!(ids.len(), 9);
    }
}
