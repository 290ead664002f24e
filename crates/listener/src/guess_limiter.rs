//! Limits how often an address may present a wrong credential.
//!
//! Each wrong credential costs one attempt, and attempts are refilled with time. While an address has none left, its
//! credentials are not checked at all, because otherwise a correct guess would show. A wrong credential that is
//! repeated costs nothing: a client with an old token repeats it, and an attacker does not.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrayvec::ArrayVec;
use foldhash::HashMap;
use parking_lot::Mutex;
use spile_core::{Clock, SystemClock};

/// How many wrong credentials an address may present at once.
const BURST: u32 = 30;
/// How long it takes until one more attempt is refilled.
const INTERVAL: Duration = Duration::from_secs(2);
/// How many wrong credentials of an address are remembered.
const REMEMBERED: usize = 64;
/// How many addresses each of the two generations holds. When the recent one is full, it replaces the older one.
const MAX_ADDRESSES: usize = 16 * 1024;

/// The wrong credentials of all addresses.
#[derive(Debug)]
pub struct GuessLimiter {
    clock: SystemClock,
    hashes: RandomState,
    addresses: Mutex<Addresses>,
    /// Until when at least one address has no attempts left, in milliseconds of the clock. Usually in the past, so that
    /// no lookup is needed.
    closed_until: AtomicU64,
}

#[derive(Debug, Default)]
struct Addresses {
    recent: HashMap<IpAddr, AddressGuesses>,
    older: HashMap<IpAddr, AddressGuesses>,
}

#[derive(Debug, Default)]
struct AddressGuesses {
    /// When all attempts will be refilled.
    free_at: Duration,
    wrong: ArrayVec<u64, REMEMBERED>,
}

/// An address has presented too many wrong credentials.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("too many wrong credentials came from this address; it may present another in {} s", self.wait_seconds())]
pub struct TooManyGuesses(Duration);

impl TooManyGuesses {
    /// Seconds until the next attempt, rounded up.
    pub fn wait_seconds(self) -> u64 {
        self.0.as_millis().div_ceil(1000) as u64
    }
}

impl Default for GuessLimiter {
    fn default() -> Self {
        let (clock, hashes) = (SystemClock::new(), RandomState::new());
        Self { clock, hashes, addresses: Mutex::default(), closed_until: AtomicU64::new(0) }
    }
}

impl GuessLimiter {
    /// Checks a credential of this address by `is_right`, unless the address has no attempts left.
    pub fn check(
        &self,
        address: IpAddr,
        presented: &[u8],
        is_right: impl FnOnce() -> bool,
    ) -> Result<bool, TooManyGuesses> {
        self.check_at(Duration::from_micros(self.clock.now().get()), address, presented, is_right)
    }

    fn check_at(
        &self,
        now: Duration,
        address: IpAddr,
        presented: &[u8],
        is_right: impl FnOnce() -> bool,
    ) -> Result<bool, TooManyGuesses> {
        let address = block_of(address);
        if now.as_millis() < self.closed_until.load(Ordering::Relaxed).into()
            && let Some(wait) = self.addresses.lock().get(address).and_then(|guesser| guesser.closed_for(now))
        {
            return Err(TooManyGuesses(wait));
        }
        if is_right() {
            return Ok(true);
        }
        let hash = self.hashes.hash_one(presented);
        let closed_until = self.addresses.lock().entry(address).record_wrong(now, hash);
        self.closed_until.fetch_max(closed_until.as_millis() as u64, Ordering::Relaxed);
        Ok(false)
    }
}

impl Addresses {
    fn get(&self, address: IpAddr) -> Option<&AddressGuesses> {
        self.recent.get(&address).or_else(|| self.older.get(&address))
    }

    fn entry(&mut self, address: IpAddr) -> &mut AddressGuesses {
        if self.recent.len() >= MAX_ADDRESSES && !self.recent.contains_key(&address) {
            self.older = std::mem::take(&mut self.recent);
        }
        let older = &mut self.older;
        self.recent.entry(address).or_insert_with(|| older.remove(&address).unwrap_or_default())
    }
}

impl AddressGuesses {
    /// How long the address has no attempts left. `None` if it has some.
    fn closed_for(&self, now: Duration) -> Option<Duration> {
        Some(self.closed_until().saturating_sub(now)).filter(|wait| !wait.is_zero())
    }

    /// When the next attempt is refilled.
    fn closed_until(&self) -> Duration {
        self.free_at.saturating_sub(INTERVAL * (BURST - 1))
    }

    /// Spends an attempt for a wrong credential. Returns until when no attempt is left.
    fn record_wrong(&mut self, now: Duration, hash: u64) -> Duration {
        if !self.wrong.contains(&hash) {
            if self.wrong.is_full() {
                self.wrong.remove(0);
            }
            self.wrong.push(hash);
            self.free_at = self.free_at.max(now) + INTERVAL;
        }
        self.closed_until()
    }
}

/// An IPv4 address, or the /64 network that an IPv6 client commonly has.
fn block_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// How many of these are looked at, out of wrong ones that are all different.
    fn looked_at(limiter: &GuessLimiter, now: Duration, address: &str, tries: std::ops::Range<u32>) -> usize {
        let judged = tries.map(|n| limiter.check_at(now, ip(address), &n.to_be_bytes(), || false));
        judged.flatten().count()
    }

    #[test]
    fn an_address_that_guesses_is_not_listened_to_until_places_come_back() {
        let limiter = GuessLimiter::default();
        assert_eq!(looked_at(&limiter, SECOND, "192.0.2.1", 0..1000), BURST as usize);
        let right = |now| limiter.check_at(now, ip("192.0.2.1"), b"right", || true);
        assert_eq!(right(SECOND), Err(TooManyGuesses(INTERVAL)), "the right one would show itself");
        assert_eq!(right(SECOND + INTERVAL), Ok(true));
        assert_eq!(looked_at(&limiter, SECOND + INTERVAL, "192.0.2.1", 2000..3000), 1);
        assert_eq!(looked_at(&limiter, 100 * SECOND, "192.0.2.1", 3000..4000), BURST as usize);
    }

    #[test]
    fn other_addresses_do_not_pay_for_it() {
        let limiter = GuessLimiter::default();
        looked_at(&limiter, SECOND, "192.0.2.1", 0..1000);
        assert_eq!(limiter.check_at(SECOND, ip("192.0.2.2"), b"right", || true), Ok(true));
        assert_eq!(looked_at(&limiter, SECOND, "192.0.2.2", 0..1000), BURST as usize);
    }

    #[test]
    fn a_network_of_one_client_is_one_address() {
        let limiter = GuessLimiter::default();
        let each = (0..1000).map(|n| looked_at(&limiter, SECOND, &format!("2001:db8::{n:x}"), n..n + 1));
        assert_eq!(each.sum::<usize>(), BURST as usize);
        assert_eq!(looked_at(&limiter, SECOND, "2001:db8:0:1::", 0..1), 1);
        assert_eq!(looked_at(&limiter, SECOND, "::ffff:192.0.2.1", 0..20), 20);
        assert_eq!(
            looked_at(&limiter, SECOND, "192.0.2.1", 20..40),
            10,
            "the same address, written otherwise"
        );
    }

    #[test]
    fn clients_that_repeat_an_old_credential_do_not_close_the_door() {
        let limiter = GuessLimiter::default();
        let present = |now, old: usize| limiter.check_at(now, ip("192.0.2.1"), &old.to_be_bytes(), || false);
        // The first time each of them takes a place.
        for old in 0..REMEMBERED {
            assert_eq!(present(INTERVAL * old as u32, old), Ok(false));
        }
        let now = INTERVAL * REMEMBERED as u32;
        for n in 0..10_000 {
            assert_eq!(present(now, n % REMEMBERED), Ok(false));
        }
        assert_eq!(limiter.check_at(now, ip("192.0.2.1"), b"right", || true), Ok(true));
    }

    #[test]
    fn many_addresses_take_bounded_memory_and_the_latest_are_known() {
        let limiter = GuessLimiter::default();
        looked_at(&limiter, SECOND, "192.0.2.1", 0..1000);
        for n in 0..3 * MAX_ADDRESSES as u32 {
            let address = IpAddr::from((0x0a00_0000 + n).to_be_bytes());
            limiter.check_at(SECOND, address, b"wrong", || false).unwrap();
            if (n as usize).is_multiple_of(MAX_ADDRESSES / 2) {
                looked_at(&limiter, SECOND, "192.0.2.1", n..n + 1);
            }
        }
        let addresses = limiter.addresses.lock();
        assert!(addresses.recent.len() + addresses.older.len() <= 2 * MAX_ADDRESSES);
    }
}
