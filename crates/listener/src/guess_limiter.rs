//! Limits how often an address may present a wrong credential.
//!
//! Each wrong credential costs one attempt, and attempts are refilled with time. A right credential passes even while its
//! address has none left: tenants behind one address do not pay for the guesses of others there. That shows a guess that
//! happens to be right, so a secret that is short enough to be found by trying is not checked until an attempt is refilled.
//! API keys are exempt: a tenant cannot choose its neighbours.
//!
//! A wrong credential that is repeated costs nothing: a client with an old token repeats it, and an attacker does not.
//!
//! Signatures cannot be guessed, but checking one costs more than the rest of a request. Forged tokens are therefore
//! limited too, far less strictly, and tokens that were right before are checked in any case.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrayvec::ArrayVec;
use foldhash::{HashMap, quality};
use parking_lot::Mutex;
use spile_core::{Clock, SystemClock};

/// How often an address may present a wrong secret.
const GUESSES: Pace = Pace { burst: 30, interval: Duration::from_secs(2) };
/// How often the signature of a forged token is checked for an address: a hundredth of a core at most.
const FORGERIES: Pace = Pace { burst: 100, interval: Duration::from_millis(10) };
/// How many wrong credentials of an address are remembered.
const REMEMBERED: usize = 64;
/// How many addresses each of the two generations holds. When the recent one is full, it replaces the older one.
const MAX_ADDRESSES: usize = 16 * 1024;
/// How many tokens that were right are remembered.
const KNOWN_TOKENS: usize = 16 * 1024;

/// Wrong credentials that an address may present at once, and the time until one more is refilled.
#[derive(Clone, Copy, Debug)]
struct Pace {
    burst: u32,
    interval: Duration,
}

/// The wrong credentials of all addresses.
#[derive(Debug, Default)]
pub struct GuessLimiter {
    clock: SystemClock,
    hashes: RandomState,
    addresses: Mutex<Addresses>,
    /// Until when at least one address has no attempts left, in milliseconds of the clock. Usually in the past, so that
    /// no lookup is needed.
    guesses_closed_until: AtomicU64,
    /// Until when at least one address has no check of a forged token left.
    forgeries_closed_until: AtomicU64,
    known: OnceLock<KnownTokens>,
}

/// The hashes of tokens that were right, each at the place that it determines. A hash only entitles to a check, so that
/// two tokens with the same one do no harm.
#[derive(Debug)]
struct KnownTokens {
    hashes: quality::RandomState,
    places: Box<[AtomicU64]>,
}

#[derive(Debug, Default)]
struct Addresses {
    recent: HashMap<IpAddr, AddressGuesses>,
    older: HashMap<IpAddr, AddressGuesses>,
}

#[derive(Debug, Default)]
struct AddressGuesses {
    /// When all attempts will be refilled.
    guesses_free_at: Duration,
    /// When all checks of forged tokens will be refilled.
    forgeries_free_at: Duration,
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

impl GuessLimiter {
    /// Shorter secrets can be found by trying.
    pub const STRONG_BYTES: usize = 16;

    /// Checks a secret that came from this address. A wrong one is an error if the address has no attempts left. So is a
    /// short one, right or wrong.
    pub fn check(
        &self,
        address: IpAddr,
        presented: &[u8],
        is_right: impl FnOnce() -> bool,
    ) -> Result<bool, TooManyGuesses> {
        self.check_at(self.now(), address, presented, Self::STRONG_BYTES, is_right)
    }

    /// Checks an API key that came from this address. The right one passes, however short it is, because tenants share
    /// addresses with strangers. A wrong one is an error if the address has no attempts left.
    pub fn check_key(
        &self,
        address: IpAddr,
        key: &[u8],
        is_right: impl FnOnce() -> bool,
    ) -> Result<bool, TooManyGuesses> {
        self.check_at(self.now(), address, key, 0, is_right)
    }

    /// Checks a signed token that came from this address. It is an error if many forged ones came from there and this one
    /// has not been right before.
    pub fn check_signed(
        &self,
        address: IpAddr,
        token: &[u8],
        is_right: impl FnOnce() -> bool,
    ) -> Result<bool, TooManyGuesses> {
        self.check_signed_at(self.now(), address, token, is_right)
    }

    fn check_at(
        &self,
        now: Duration,
        address: IpAddr,
        presented: &[u8],
        strong_bytes: usize,
        is_right: impl FnOnce() -> bool,
    ) -> Result<bool, TooManyGuesses> {
        let address = block_of(address);
        let refuse_if_closed = || {
            let closed = |guesser: &AddressGuesses| GUESSES.closed_until(guesser.guesses_free_at);
            self.refuse_if_closed(now, address, &self.guesses_closed_until, closed)
        };
        if presented.len() < strong_bytes {
            refuse_if_closed()?;
        }
        if is_right() {
            return Ok(true);
        }
        refuse_if_closed()?;
        let hash = self.hashes.hash_one(presented);
        let closed_until = self.addresses.lock().entry(address).record_guess(now, hash);
        self.guesses_closed_until.fetch_max(closed_until.as_millis() as u64, Ordering::Relaxed);
        Ok(false)
    }

    fn check_signed_at(
        &self,
        now: Duration,
        address: IpAddr,
        token: &[u8],
        is_right: impl FnOnce() -> bool,
    ) -> Result<bool, TooManyGuesses> {
        let address = block_of(address);
        let known = self.known.get_or_init(KnownTokens::new);
        let (hash, place) = known.find(token);
        let is_known = place.load(Ordering::Relaxed) == hash;
        if !is_known {
            let closed = |guesser: &AddressGuesses| FORGERIES.closed_until(guesser.forgeries_free_at);
            self.refuse_if_closed(now, address, &self.forgeries_closed_until, closed)?;
        }
        if is_right() {
            if !is_known {
                place.store(hash, Ordering::Relaxed);
            }
            return Ok(true);
        }
        let closed_until = self.addresses.lock().entry(address).record_forgery(now);
        self.forgeries_closed_until.fetch_max(closed_until.as_millis() as u64, Ordering::Relaxed);
        Ok(false)
    }

    /// Fails until `closed_until` of the address. `any_closed_until` is the latest one of all addresses.
    fn refuse_if_closed(
        &self,
        now: Duration,
        address: IpAddr,
        any_closed_until: &AtomicU64,
        closed_until: impl FnOnce(&AddressGuesses) -> Duration,
    ) -> Result<(), TooManyGuesses> {
        if now.as_millis() >= any_closed_until.load(Ordering::Relaxed).into() {
            return Ok(());
        }
        let wait =
            self.addresses.lock().get(address).map(closed_until).unwrap_or_default().saturating_sub(now);
        if wait.is_zero() { Ok(()) } else { Err(TooManyGuesses(wait)) }
    }

    fn now(&self) -> Duration {
        Duration::from_micros(self.clock.now().get())
    }
}

impl Pace {
    /// Until when no attempt is left if all of them will be refilled at `free_at`.
    fn closed_until(self, free_at: Duration) -> Duration {
        free_at.saturating_sub(self.interval * (self.burst - 1))
    }
}

impl KnownTokens {
    fn new() -> Self {
        let places = std::iter::repeat_with(AtomicU64::default).take(KNOWN_TOKENS).collect();
        Self { hashes: quality::RandomState::default(), places }
    }

    fn find(&self, token: &[u8]) -> (u64, &AtomicU64) {
        let hash = self.hashes.hash_one(token);
        (hash, &self.places[hash as usize % KNOWN_TOKENS])
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
    /// Spends an attempt for a wrong secret. Returns until when no attempt is left.
    fn record_guess(&mut self, now: Duration, hash: u64) -> Duration {
        if !self.wrong.contains(&hash) {
            if self.wrong.is_full() {
                self.wrong.remove(0);
            }
            self.wrong.push(hash);
            self.guesses_free_at = self.guesses_free_at.max(now) + GUESSES.interval;
        }
        GUESSES.closed_until(self.guesses_free_at)
    }

    /// Counts a forged token, also one that is repeated: each costs a check. Returns until when none is checked.
    fn record_forgery(&mut self, now: Duration) -> Duration {
        self.forgeries_free_at = self.forgeries_free_at.max(now) + FORGERIES.interval;
        FORGERIES.closed_until(self.forgeries_free_at)
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
    const BURST: usize = GUESSES.burst as usize;

    const STRONG: usize = GuessLimiter::STRONG_BYTES;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// How many of these are looked at, out of wrong ones that are all different.
    fn looked_at(limiter: &GuessLimiter, now: Duration, address: &str, tries: std::ops::Range<u32>) -> usize {
        let guess = |n: u32| format!("a guess of some length: {n}");
        let judged = tries.map(|n| limiter.check_at(now, ip(address), guess(n).as_bytes(), STRONG, || false));
        judged.flatten().count()
    }

    #[test]
    fn an_address_that_guesses_has_a_few_attempts_until_more_are_refilled() {
        let limiter = GuessLimiter::default();
        assert_eq!(looked_at(&limiter, SECOND, "192.0.2.1", 0..1000), BURST);
        assert_eq!(looked_at(&limiter, SECOND + GUESSES.interval, "192.0.2.1", 2000..3000), 1);
        assert_eq!(looked_at(&limiter, 100 * SECOND, "192.0.2.1", 3000..4000), BURST);
    }

    #[test]
    fn a_right_secret_passes_whatever_others_at_its_address_guess() {
        let limiter = GuessLimiter::default();
        let right = |now, secret: &[u8]| limiter.check_at(now, ip("192.0.2.1"), secret, STRONG, || true);
        for second in 1..100 {
            looked_at(&limiter, second * SECOND, "192.0.2.1", 1000 * second..1000 * second + 100);
            assert_eq!(right(second * SECOND, b"a secret: sixteen"), Ok(true));
        }
        let now = 100 * SECOND;
        looked_at(&limiter, now, "192.0.2.1", 0..100);
        let refused = right(now, b"short").expect_err("it could be found by trying");
        assert_eq!(limiter.check_at(now, ip("192.0.2.1"), b"short", 0, || true), Ok(true), "an API key");
        assert_eq!(right(now + refused.0, b"short"), Ok(true));
    }

    #[test]
    fn forged_tokens_are_checked_so_often_and_known_ones_always() {
        let limiter = GuessLimiter::default();
        let check = |now, token: &str, is_right| {
            limiter.check_signed_at(now, ip("192.0.2.1"), token.as_bytes(), || is_right)
        };
        assert_eq!(check(SECOND, "known", true), Ok(true));
        let checked = (0..1000).filter(|_| check(SECOND, "forged", false).is_ok()).count();
        assert_eq!(checked, FORGERIES.burst as usize, "one that is repeated costs a check, too");
        assert_eq!(check(SECOND, "known", true), Ok(true));
        assert_eq!(check(SECOND, "new", true), Err(TooManyGuesses(FORGERIES.interval)));
        assert_eq!(check(SECOND + FORGERIES.interval, "new", true), Ok(true));
        assert_eq!(looked_at(&limiter, SECOND, "192.0.2.1", 0..1000), BURST, "secrets are counted apart");
    }

    #[test]
    fn other_addresses_do_not_pay_for_it() {
        let limiter = GuessLimiter::default();
        looked_at(&limiter, SECOND, "192.0.2.1", 0..1000);
        assert_eq!(limiter.check_at(SECOND, ip("192.0.2.2"), b"right", STRONG, || true), Ok(true));
        assert_eq!(looked_at(&limiter, SECOND, "192.0.2.2", 0..1000), BURST);
    }

    #[test]
    fn a_network_of_one_client_is_one_address() {
        let limiter = GuessLimiter::default();
        let each = (0..1000).map(|n| looked_at(&limiter, SECOND, &format!("2001:db8::{n:x}"), n..n + 1));
        assert_eq!(each.sum::<usize>(), BURST);
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
        let present =
            |now, old: usize| limiter.check_at(now, ip("192.0.2.1"), &old.to_be_bytes(), STRONG, || false);
        // The first time each of them takes a place.
        for old in 0..REMEMBERED {
            assert_eq!(present(GUESSES.interval * old as u32, old), Ok(false));
        }
        let now = GUESSES.interval * REMEMBERED as u32;
        for n in 0..10_000 {
            assert_eq!(present(now, n % REMEMBERED), Ok(false));
        }
        assert_eq!(limiter.check_at(now, ip("192.0.2.1"), b"right", STRONG, || true), Ok(true));
    }

    #[test]
    fn many_addresses_take_bounded_memory_and_the_latest_are_known() {
        let limiter = GuessLimiter::default();
        looked_at(&limiter, SECOND, "192.0.2.1", 0..1000);
        for n in 0..3 * MAX_ADDRESSES as u32 {
            let address = IpAddr::from((0x0a00_0000 + n).to_be_bytes());
            limiter.check_at(SECOND, address, b"wrong", STRONG, || false).unwrap();
            if (n as usize).is_multiple_of(MAX_ADDRESSES / 2) {
                looked_at(&limiter, SECOND, "192.0.2.1", n..n + 1);
            }
        }
        let addresses = limiter.addresses.lock();
        assert!(addresses.recent.len() + addresses.older.len() <= 2 * MAX_ADDRESSES);
    }
}
