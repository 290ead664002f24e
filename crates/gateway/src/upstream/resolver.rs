//! Resolves the names of upstreams, once for all workers, and again every few seconds.
//!
//! The system's resolver does not report a TTL, so names are resolved at a fixed interval. While a name cannot be
//! resolved, the last known addresses stay in use.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use foldhash::HashMap;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;

/// The shortest time between two lookups of a name. It applies if none of the addresses accepts a connection.
const MIN_REFRESH: Duration = Duration::from_secs(1);
/// The longest time after that.
const MAX_EXTRA_WAIT: Duration = Duration::from_secs(4);

/// A function that looks up the addresses of a name. The ports are ignored.
pub(crate) type Lookup =
    Box<dyn Fn(Box<str>) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// The names of all upstreams and their addresses, shared by all workers.
pub(crate) struct Resolver {
    lookup: Lookup,
    names: Mutex<HashMap<Box<str>, Arc<ResolvedHost>>>,
}

/// A name and its current addresses.
#[derive(Debug, Default)]
pub(crate) struct ResolvedHost {
    host: Box<str>,
    /// `None` until the first lookup succeeds.
    addresses: ArcSwapOption<HostAddresses>,
    /// Held during a lookup, so that all connections that wait for the name share it.
    resolving: Arc<tokio::sync::Mutex<()>>,
    lookups: AtomicU64,
    lookup_requested: Notify,
    /// Whether the last lookup failed. Only the first failure in a row is logged.
    failing: AtomicBool,
}

/// The addresses of a name.
#[derive(Debug)]
pub(crate) struct HostAddresses {
    addresses: Box<[HostAddress]>,
    turn: AtomicUsize,
}

/// One address of a name.
#[derive(Debug)]
pub(crate) struct HostAddress {
    address: SocketAddr,
    /// Whether the last connection to it failed or was slow. It is tried last until the name is resolved again.
    failing: AtomicBool,
}

/// The name and address that a connection was opened to.
#[derive(Clone, Debug)]
pub(crate) struct ConnectedAddress {
    name: Arc<ResolvedHost>,
    address: IpAddr,
}

impl Resolver {
    /// Uses the system's resolver.
    pub(crate) fn system() -> Self {
        Self::new(Box::new(|host| Box::pin(ask_system(host))))
    }

    pub(crate) fn new(lookup: Lookup) -> Self {
        Self { lookup, names: Mutex::default() }
    }

    /// The name and its addresses. Waits only if the name was never resolved.
    pub(crate) async fn resolve(
        self: &Arc<Self>,
        host: &str,
    ) -> io::Result<(Arc<ResolvedHost>, Arc<HostAddresses>)> {
        let name = self.name(host);
        if let Some(addresses) = name.addresses.load_full() {
            return Ok((name, addresses));
        }
        let before = name.lookups.load(Ordering::Acquire);
        let one_at_a_time = Arc::clone(&name.resolving).lock_owned().await;
        // Callers that waited for the lock share the result of the lookup, even if it failed.
        if name.addresses.load().is_none() && name.lookups.load(Ordering::Acquire) == before {
            let (resolver, sought) = (Arc::clone(self), Arc::clone(&name));
            // A separate task, so that a caller that gives up does not cancel a lookup that others wait for.
            let looking = tokio::spawn(async move {
                let looked_up = resolver.look_up(&sought).await;
                drop(one_at_a_time);
                looked_up
            });
            looking.await.map_err(io::Error::other)??;
        }
        let addresses = name.addresses.load_full().ok_or_else(no_address)?;
        Ok((name, addresses))
    }

    /// Keeps resolving these names until the set is dropped, and forgets all others.
    pub(crate) fn follow(self: &Arc<Self>, hosts: &HashSet<Box<str>>) -> JoinSet<()> {
        self.names.lock().retain(|host, _| hosts.contains(host));
        let mut tasks = JoinSet::new();
        for host in hosts {
            tasks.spawn(Arc::clone(self).follow_name(self.name(host)));
        }
        tasks
    }

    async fn follow_name(self: Arc<Self>, name: Arc<ResolvedHost>) {
        loop {
            let one_at_a_time = name.resolving.lock().await;
            let looked_up = self.look_up(&name).await;
            drop(one_at_a_time);
            name.log_failure(looked_up.err());
            tokio::time::sleep(MIN_REFRESH).await;
            // A notification and a timeout both lead to a lookup.
            let _why = tokio::time::timeout(MAX_EXTRA_WAIT, name.lookup_requested.notified()).await;
        }
    }

    fn name(&self, host: &str) -> Arc<ResolvedHost> {
        let mut names = self.names.lock();
        if let Some(name) = names.get(host) {
            return Arc::clone(name);
        }
        let name = Arc::new(ResolvedHost::new(host));
        names.insert(host.into(), Arc::clone(&name));
        name
    }

    async fn look_up(&self, name: &ResolvedHost) -> io::Result<()> {
        let found = (self.lookup)(name.host.clone()).await;
        name.lookups.fetch_add(1, Ordering::Release);
        let found = found?;
        if found.is_empty() {
            return Err(no_address());
        }
        name.replace(found);
        Ok(())
    }
}

impl ResolvedHost {
    fn new(host: &str) -> Self {
        Self { host: host.into(), ..Self::default() }
    }

    /// Asks for a lookup soon, because none of the addresses accepted a connection.
    pub(crate) fn request_lookup(&self) {
        self.lookup_requested.notify_one();
    }

    fn replace(&self, found: Vec<SocketAddr>) {
        let new = HostAddresses::new(found);
        let Some(old) = self.addresses.load_full() else {
            self.addresses.store(Some(Arc::new(new)));
            return;
        };
        let lost = old.addresses.iter().any(|address| !new.has(address.address.ip()));
        if !lost && old.addresses.len() == new.addresses.len() {
            old.addresses.iter().for_each(|address| address.failing.store(false, Ordering::Relaxed));
            return;
        }
        tracing::info!(target: "spile::upstreams", name = %self.host, "the name has new addresses: {new}");
        self.addresses.store(Some(Arc::new(new)));
    }

    fn log_failure(&self, failure: Option<io::Error>) {
        let failed_before = self.failing.swap(failure.is_some(), Ordering::Relaxed);
        if let Some(why) = failure.filter(|_| !failed_before) {
            tracing::warn!(target: "spile::upstreams", name = %self.host, "the name cannot be resolved; known addresses stay \
                in use: {why}");
        }
    }
}

impl HostAddresses {
    /// Each address once. IPv4 and IPv6 alternate, so that a family that does not work costs little time.
    fn new(mut found: Vec<SocketAddr>) -> Self {
        let mut seen = HashSet::new();
        found.retain(|address| seen.insert(address.ip()));
        let first_family = found.first().is_some_and(SocketAddr::is_ipv6);
        let (one, other): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|address| address.is_ipv6() == first_family);
        let (mut one, mut other) = (one.into_iter(), other.into_iter());
        let mut addresses = Vec::with_capacity(seen.len());
        while addresses.len() < seen.len() {
            addresses.extend(one.next().into_iter().chain(other.next()).map(HostAddress::new));
        }
        // Gateways that start together should not all use the same address first.
        let turn = AtomicUsize::new(fastrand::usize(..1 << 16));
        Self { addresses: addresses.into(), turn }
    }

    /// All addresses except these, starting at the next in turn. Those that failed come last.
    pub(crate) fn rotated(&self, but: &[IpAddr]) -> Vec<&HostAddress> {
        let start = self.turn.fetch_add(1, Ordering::Relaxed) % self.addresses.len();
        let (before, after) = self.addresses.split_at(start);
        let rotated = after.iter().chain(before);
        let mut order: Vec<_> = rotated.filter(|address| !but.contains(&address.address.ip())).collect();
        order.sort_by_key(|address| address.failing.load(Ordering::Relaxed));
        order
    }

    fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.address.ip() == address)
    }
}

impl std::fmt::Display for HostAddresses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.addresses.iter().map(|address| address.address.ip())).finish()
    }
}

impl HostAddress {
    const fn new(address: SocketAddr) -> Self {
        Self { address, failing: AtomicBool::new(false) }
    }

    pub(crate) const fn at(&self, port: u16) -> SocketAddr {
        let mut address = self.address;
        address.set_port(port);
        address
    }

    /// Records whether a connection to the address was opened in time.
    pub(crate) fn record_connect(&self, connected: bool) {
        self.failing.store(!connected, Ordering::Relaxed);
    }
}

impl ConnectedAddress {
    pub(crate) const fn new(name: Arc<ResolvedHost>, address: IpAddr) -> Self {
        Self { name, address }
    }

    /// How many addresses the name has.
    pub(crate) fn addresses(&self) -> usize {
        self.name.addresses.load().as_ref().map_or(1, |addresses| addresses.addresses.len())
    }

    pub(crate) const fn address(&self) -> IpAddr {
        self.address
    }

    /// Whether the name has an address that is not among these.
    pub(crate) fn has_address_outside(&self, known: &[IpAddr]) -> bool {
        let addresses = self.name.addresses.load();
        addresses
            .as_ref()
            .is_some_and(|addresses| addresses.addresses.iter().any(|own| !known.contains(&own.address.ip())))
    }

    /// Whether the name still has the address.
    pub(crate) fn is_current(&self) -> bool {
        self.name.addresses.load().as_ref().is_none_or(|addresses| addresses.has(self.address))
    }
}

/// Runs the lookup on a dedicated thread: it may block for any time, and a process that ends must not wait for it.
async fn ask_system(host: Box<str>) -> io::Result<Vec<SocketAddr>> {
    let (sender, receiver) = oneshot::channel();
    std::thread::Builder::new().name("resolver".to_owned()).spawn(move || {
        // The caller may have given up.
        let _told = sender.send((&*host, 0).to_socket_addrs().map(Iterator::collect));
    })?;
    receiver.await.map_err(io::Error::other)?
}

fn no_address() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the name has no address")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(words: &[&str]) -> Vec<SocketAddr> {
        words.iter().map(|word| SocketAddr::new(word.parse().unwrap(), 0)).collect()
    }

    #[test]
    fn the_two_families_take_turns_and_each_address_comes_once() {
        let addresses = HostAddresses::new(addresses(&["::1", "::2", "::3", "::1", "10.0.0.1", "10.0.0.2"]));
        assert_eq!(addresses.to_string(), "[::1, 10.0.0.1, ::2, 10.0.0.2, ::3]");
    }

    #[test]
    fn an_address_that_failed_comes_last_until_the_name_is_resolved_again() {
        let name = ResolvedHost::new("app.test");
        name.replace(addresses(&["10.0.0.1", "10.0.0.2"]));
        let known = name.addresses.load_full().unwrap();
        let firsts = || -> HashSet<IpAddr> { (0..4).map(|_| known.rotated(&[])[0].address.ip()).collect() };
        assert_eq!(firsts().len(), 2, "each has its turn");
        known.addresses[0].record_connect(false);
        assert_eq!(firsts(), HashSet::from([known.addresses[1].address.ip()]));
        name.replace(addresses(&["10.0.0.2", "10.0.0.1"]));
        assert_eq!(firsts().len(), 2, "the same addresses in another order are no other addresses");
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_resolved_once_for_all_who_wait_and_a_failure_keeps_what_is_known() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let resolver = Arc::new(Resolver::new(Box::new(move |_| {
            let number = counted.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(100)).await;
                match number {
                    0 => Ok(addresses(&["10.0.0.1", "10.0.0.2"])),
                    1 => Err(no_address()),
                    2 => Ok(Vec::new()),
                    _ => Ok(addresses(&["10.0.0.2"])),
                }
            })
        })));
        let hasty = tokio::time::timeout(Duration::from_millis(1), resolver.resolve("app.test"));
        assert!(hasty.await.is_err(), "who gives up does not end the lookup");
        let dials = (0..50).map(|_| resolver.resolve("app.test"));
        for resolved in futures_util::future::join_all(dials).await {
            assert_eq!(resolved.unwrap().1.addresses.len(), 2);
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);

        let hosts = HashSet::from(["app.test".into()]);
        let following = resolver.follow(&hosts);
        let known = || async { resolver.resolve("app.test").await.unwrap().1.addresses.len() };
        tokio::time::sleep((MIN_REFRESH + MAX_EXTRA_WAIT) * 2).await;
        assert_eq!((asked.load(Ordering::Relaxed), known().await), (3, 2), "two failures change nothing");
        tokio::time::sleep((MIN_REFRESH + MAX_EXTRA_WAIT) * 2).await;
        assert_eq!(known().await, 1, "the change is followed");
        drop(following);
        drop(resolver.follow(&HashSet::new()));
        assert_eq!(resolver.names.lock().len(), 0, "names of routes that are gone are forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_looked_up_sooner_where_none_of_its_addresses_takes_a_connection() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let resolver = Arc::new(Resolver::new(Box::new(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Ok(addresses(&["10.0.0.1"])) })
        })));
        let _following = resolver.follow(&HashSet::from(["app.test".into()]));
        let (name, _) = resolver.resolve("app.test").await.unwrap();
        tokio::time::sleep(MIN_REFRESH / 2).await;
        let before = asked.load(Ordering::Relaxed);
        (0..100).for_each(|_| name.request_lookup());
        tokio::time::sleep(MIN_REFRESH).await;
        assert_eq!(asked.load(Ordering::Relaxed), before + 1, "once, however many dials failed");
    }
}
