//! Events that an operator should know about: the most recent ones, and subscriptions to new ones.

mod emission_limit;

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use spile_core::Clock;
use tokio::sync::broadcast;

pub(crate) use self::emission_limit::EmissionLimit;

/// How many recent events are kept.
const KEPT: usize = 100;
/// How many events a slow subscriber may lag behind before it misses some.
const LAG: usize = 1_024;

/// Something that happened.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Unique across all processes, so that a receiver can recognise repeats.
    pub id: String,
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// The kind of event, with its fields.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// The kinds of events.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "dashboard", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// A key was denied for the first time in a minute.
    #[serde(rename_all = "camelCase")]
    KeyDenied {
        /// The key, or a hash of it unless the operator allows keys in plain text.
        key: String,
        /// The rule that applied.
        rule: String,
        /// The limit that denied.
        limit: String,
        /// When the next request may be allowed.
        retry_after_ms: u64,
    },
    /// A tenant has used most of a limit: at most once a minute, of a quota once in each window.
    #[serde(rename_all = "camelCase")]
    TenantNear {
        /// The id of the tenant.
        tenant: String,
        /// The full name of the limit.
        limit: String,
        /// How much of it, in percent.
        used_percent: u32,
        /// When the window of the quota ends, in milliseconds since the epoch. `None` if the limit is a rate.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window_end_ms: Option<u64>,
    },
    /// A tenant was denied by a rate, at most once a minute; or has used all of a quota, once in each window.
    #[serde(rename_all = "camelCase")]
    TenantOver {
        /// The id of the tenant.
        tenant: String,
        /// The full name of the limit.
        limit: String,
        /// When the window of the quota ends, in milliseconds since the epoch. `None` if the limit is a rate.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window_end_ms: Option<u64>,
    },
    /// Some decisions got no answer from the store in time.
    StoreSlow {
        /// The number of such decisions, and the total.
        why: String,
    },
    /// The store stopped answering.
    StoreLost {
        /// The last error of the store.
        why: String,
    },
    /// The store answers again.
    #[serde(rename_all = "camelCase")]
    StoreRecovered {
        /// How long it did not answer.
        lost_for_ms: u64,
    },
    /// A new configuration is in force.
    ConfigReloaded,
    /// A new configuration was refused; the old one stays in force.
    ConfigRefused {
        /// The fault, in one sentence.
        why: String,
    },
    /// More events of a kind happened in a minute than its limit allows.
    EventsSuppressed {
        /// The kind of event that was suppressed.
        kind: String,
        /// A lower bound on the number of keys or tenants without an event.
        count: u64,
    },
}

impl EventKind {
    /// The name that webhooks and the API use.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::KeyDenied { .. } => "key_denied",
            Self::TenantNear { .. } => "tenant_near",
            Self::TenantOver { .. } => "tenant_over",
            Self::StoreSlow { .. } => "store_slow",
            Self::StoreLost { .. } => "store_lost",
            Self::StoreRecovered { .. } => "store_recovered",
            Self::ConfigReloaded => "config_reloaded",
            Self::ConfigRefused { .. } => "config_refused",
            Self::EventsSuppressed { .. } => "events_suppressed",
        }
    }

    /// The lane of the event. Callers can cause any number of denials, which must not delay or displace other events.
    pub(crate) const fn lane(&self) -> EventLane {
        match self {
            Self::KeyDenied { .. } | Self::TenantNear { .. } | Self::TenantOver { .. } => EventLane::Denials,
            Self::StoreSlow { .. }
            | Self::StoreLost { .. }
            | Self::StoreRecovered { .. }
            | Self::ConfigReloaded
            | Self::ConfigRefused { .. }
            | Self::EventsSuppressed { .. } => EventLane::Server,
        }
    }
}

/// Events of one lane share a queue. A lane that is full does not affect the other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum EventLane {
    /// Events that callers cause: keys and tenants at their limits.
    Denials,
    /// Events of the server: its store and its configuration.
    Server,
}

impl EventLane {
    #[cfg(feature = "webhooks")]
    pub(crate) const ALL: [Self; 2] = [Self::Denials, Self::Server];
}

/// The most recent events and the subscribers to new ones.
pub(crate) struct Events {
    clock: Arc<dyn Clock>,
    /// The prefix of every event id.
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
    /// Events have the wall time of this clock.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let sender = || broadcast::Sender::new(LAG);
        let (listeners, lanes) = (sender(), [sender(), sender()]);
        Self { clock, instance: unique_id(), ring: Mutex::default(), listeners, lanes }
    }

    pub(crate) fn emit(&self, kind: EventKind) {
        let lane = kind.lane() as usize;
        let mut ring = self.ring.lock();
        ring.count += 1;
        let count = ring.count;
        let id = format!("{}-{count}", self.instance);
        let event = Event { id, at_ms: self.clock.wall().get() / 1_000, kind };
        let kept = &mut ring.lanes[lane];
        if kept.len() == KEPT / 2 {
            kept.pop_front();
        }
        kept.push_back((count, event.clone()));
        // Sending fails if there is no subscriber. The event is in the ring in any case.
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

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.listeners.subscribe()
    }

    /// Subscribes to one lane, so that events of the other lane cannot make this subscriber lag.
    #[cfg(feature = "webhooks")]
    pub(crate) fn subscribe_to(&self, lane: EventLane) -> broadcast::Receiver<Event> {
        self.lanes[lane as usize].subscribe()
    }
}

/// A unique id of 24 hexadecimal digits: 96 bits of a hash whose key is random.
pub(crate) fn unique_id() -> String {
    let random = RandomState::new();
    format!("{:016x}{:08x}", random.hash_one(0_u8), random.hash_one(1_u8) as u32)
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
            events.emit(EventKind::StoreLost { why: "refused".into() });
            for name in 0..10_000 {
                let (name, limit) = (name.to_string(), "free".into());
                events.emit(match kind {
                    "key_denied" => {
                        EventKind::KeyDenied { key: name, rule: String::new(), limit, retry_after_ms: 1 }
                    }
                    "tenant_near" => {
                        EventKind::TenantNear { tenant: name, limit, used_percent: 80, window_end_ms: None }
                    }
                    _ => EventKind::TenantOver { tenant: name, limit, window_end_ms: None },
                });
            }
            let latest = events.latest();
            assert_eq!(latest.len(), KEPT / 2 + 1);
            assert_eq!(latest.last().map(|event| event.kind.name()), Some("store_lost"));
        }
    }

    #[test]
    fn two_instances_give_no_two_events_the_same_id() {
        let mut ids = std::collections::HashSet::new();
        for instance in [events(), events(), events()] {
            for _ in 0..3 {
                instance.emit(EventKind::ConfigReloaded);
            }
            ids.extend(instance.latest().into_iter().map(|event| event.id));
        }
        assert_eq!(ids.len(), 9);
    }
}
