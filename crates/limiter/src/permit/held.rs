//! The places that one permit holds, and how long they are known to be held.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use spile_core::{Charge, Charges, Cost, Key, LimitName, Micros, NamedLimit, PermitId};
use spile_runtime::Spawner;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Where the places are counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum PlacesIn {
    /// In the store.
    Store = 0,
    /// In the embedded store that replaces a failed one.
    Local = 1,
    /// Nowhere: the store failed, and the policy lets requests pass.
    Nowhere = 2,
}

/// A fact about a permit that any task may change.
#[derive(Debug, Default)]
pub(crate) struct Flag(AtomicBool);

impl Flag {
    /// Returns whether that is new.
    pub(crate) fn set(&self, is_set: bool) -> bool {
        self.0.swap(is_set, Ordering::AcqRel) != is_set
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The places that one permit holds.
#[derive(Debug)]
pub(crate) struct HeldPlaces {
    pub(crate) id: PermitId,
    places: Vec<(Box<str>, NamedLimit)>,
    /// The shortest hold time of its limits.
    pub(crate) hold: Duration,
    valid_until: AtomicU64,
    /// When it is to be renewed next.
    renew_at: AtomicU64,
    counted_in: AtomicU8,
    /// Set until the store's answer has come: the question may reach it after the release.
    pub(crate) unanswered: Flag,
    /// Set if the store was asked for it more than once.
    pub(crate) asked_again: Flag,
    /// Cleared if no question about it has reached the store, so that there is nothing to release.
    pub(crate) in_store: Flag,
    /// Set once it was not renewed in time.
    pub(crate) lost: Flag,
    /// Set once it was released or dropped.
    pub(crate) ended: Flag,
    loss: Notify,
    /// The runtime that it was taken on. A permit may be dropped elsewhere.
    pub(crate) spawner: Option<Spawner>,
}

impl HeldPlaces {
    /// The places of a chain's concurrencies, asked for at `sent`. The store counts the hold time from later than that.
    pub(crate) fn new(id: PermitId, charges: &Charges<'_>, sent: Micros, spawner: Option<Spawner>) -> Self {
        let permits = charges.iter().filter(|charge| charge.needs_permit());
        let places = permits.map(|charge| (charge.key().as_str().into(), charge.limit().clone())).collect();
        let hold = charges.hold().unwrap_or_default();
        Self {
            id,
            places,
            hold,
            valid_until: AtomicU64::new((sent + hold).get()),
            renew_at: AtomicU64::new((sent + hold / 3).get()),
            counted_in: AtomicU8::new(PlacesIn::Store as u8),
            unanswered: Flag::default(),
            asked_again: Flag::default(),
            in_store: Flag(AtomicBool::new(true)),
            lost: Flag::default(),
            ended: Flag::default(),
            loss: Notify::new(),
            spawner,
        }
    }

    /// The key and the limit of each place.
    pub(crate) fn places(&self) -> impl Iterator<Item = (&str, &LimitName)> {
        self.places.iter().map(|(key, limit)| (&**key, limit.name()))
    }

    /// The keys of its places, each once.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        let is_new = |at: usize, key: &str| self.places[..at].iter().all(|(other, _)| &**other != key);
        self.places
            .iter()
            .enumerate()
            .filter(move |(at, (key, _))| is_new(*at, key))
            .map(|(_, (key, _))| &**key)
    }

    /// Its charges. `None` if it has none, which cannot be.
    pub(crate) fn charges(&self) -> Option<Charges<'_>> {
        let charges = self
            .places
            .iter()
            .filter_map(|(key, limit)| Some(Charge::late(Key::new(key).ok()?, limit.clone(), Cost::ONE)));
        Charges::distinct(charges).ok()
    }

    pub(crate) fn valid_until(&self) -> Micros {
        Micros::new(self.valid_until.load(Ordering::Acquire))
    }

    /// The time for which it is still held. `None` if it is lost.
    pub(crate) fn time_left(&self, now: Micros) -> Option<Duration> {
        let left_us = self.valid_until().since_us(now);
        (left_us > 0 && !self.lost.is_set()).then(|| Duration::from_micros(left_us))
    }

    pub(crate) fn is_held(&self, now: Micros) -> bool {
        self.time_left(now).is_some()
    }

    /// It was renewed by a question that was sent then, and is counted there.
    pub(crate) fn renewed(&self, sent: Micros, counted_in: PlacesIn) {
        self.counted_in.store(counted_in as u8, Ordering::Release);
        self.valid_until.fetch_max((sent + self.hold).get(), Ordering::AcqRel);
        self.renew_after(sent, self.hold / 3);
    }

    /// Schedules its next renewal.
    pub(crate) fn renew_after(&self, then: Micros, pause: Duration) {
        self.renew_at.store((then + pause).get(), Ordering::Release);
    }

    pub(crate) fn is_due(&self, now: Micros) -> bool {
        self.renew_at.load(Ordering::Acquire) <= now.get()
    }

    pub(crate) fn counted_in(&self) -> PlacesIn {
        match self.counted_in.load(Ordering::Acquire) {
            0 => PlacesIn::Store,
            1 => PlacesIn::Local,
            _ => PlacesIn::Nowhere,
        }
    }

    /// True if a question for it may still reach the store after a release, which reported whether it was held. If it was held and asked
    /// for once, that question has arrived; but one for several places may have arrived at one of several nodes.
    pub(crate) fn may_arrive_late(&self, was_held: bool) -> bool {
        let has_arrived = was_held && self.places.len() == 1 && !self.asked_again.is_set();
        self.unanswered.is_set() && !has_arrived
    }

    /// Notes that it was not renewed in time. Returns whether that is new.
    pub(crate) fn lose(&self) -> bool {
        let is_new = self.lost.set(true);
        self.loss.notify_waiters();
        is_new
    }

    /// Resolves when it is lost after this call.
    pub(crate) fn loss(&self) -> Notified<'_> {
        self.loss.notified()
    }
}
