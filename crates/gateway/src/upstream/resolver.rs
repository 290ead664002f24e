//! The addresses of upstreams' names: asked for once for all connections, and again every few seconds.
//!
//! The system's resolver says nothing of how long an answer holds, so that names are asked for by the clock. What was
//! last known stays in use while a name cannot be resolved.

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

/// How soon a name is resolved again at the earliest: if none of its addresses took a connection.
const SOONEST: Duration = Duration::from_secs(1);
/// How long after that at the latest.
const LATEST: Duration = Duration::from_secs(4);

/// What finds the addresses of a name. Their ports mean nothing.
pub(crate) type Lookup =
    Box<dyn Fn(Box<str>) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// Names and their addresses, for all workers.
pub(crate) struct Resolver {
    lookup: Lookup,
    names: Mutex<HashMap<Box<str>, Arc<Name>>>,
}

/// One name, whose addresses change.
#[derive(Debug)]
pub(crate) struct Name {
    host: Box<str>,
    /// `None` until it was resolved once.
    answer: ArcSwapOption<Answer>,
    /// Held during a lookup, so that connections that wait for the same one share it.
    resolving: Arc<tokio::sync::Mutex<()>>,
    lookups: AtomicU64,
    doubted: Notify,
    /// Whether the last lookup failed: that is logged once.
    failing: AtomicBool,
}

/// The addresses that a name has.
#[derive(Debug)]
pub(crate) struct Answer {
    addresses: Box<[Address]>,
    turn: AtomicUsize,
}

/// One address of a name.
#[derive(Debug)]
pub(crate) struct Address {
    address: SocketAddr,
    /// Whether it lately took no connection, or was slow to. It comes last until the name is resolved again.
    failing: AtomicBool,
}

/// Where a connection leads: the address that a name had when it was dialled.
#[derive(Clone, Debug)]
pub(crate) struct Reached {
    name: Arc<Name>,
    address: IpAddr,
}

impl Resolver {
    /// Asks the machine, as any other program does.
    pub(crate) fn system() -> Self {
        Self::new(Box::new(|host| Box::pin(ask_system(host))))
    }

    pub(crate) fn new(lookup: Lookup) -> Self {
        Self { lookup, names: Mutex::default() }
    }

    /// The name and the addresses that it has. Only who asks for a name first waits for them.
    pub(crate) async fn resolve(self: &Arc<Self>, host: &str) -> io::Result<(Arc<Name>, Arc<Answer>)> {
        let name = self.name(host);
        if let Some(answer) = name.answer.load_full() {
            return Ok((name, answer));
        }
        let before = name.lookups.load(Ordering::Acquire);
        let one_at_a_time = Arc::clone(&name.resolving).lock_owned().await;
        // Those who waited share what the lookup came to, be it a failure.
        if name.answer.load().is_none() && name.lookups.load(Ordering::Acquire) == before {
            let (resolver, sought) = (Arc::clone(self), Arc::clone(&name));
            // In a task of its own: who gives up does not end a lookup that others wait for.
            let looking = tokio::spawn(async move {
                let looked_up = resolver.look_up(&sought).await;
                drop(one_at_a_time);
                looked_up
            });
            looking.await.map_err(io::Error::other)??;
        }
        let answer = name.answer.load_full().ok_or_else(no_address)?;
        Ok((name, answer))
    }

    /// Resolves these names again and again until dropped, and forgets all others.
    pub(crate) fn follow(self: &Arc<Self>, hosts: &HashSet<Box<str>>) -> JoinSet<()> {
        self.names.lock().retain(|host, _| hosts.contains(host));
        let mut tasks = JoinSet::new();
        for host in hosts {
            tasks.spawn(Arc::clone(self).follow_name(self.name(host)));
        }
        tasks
    }

    async fn follow_name(self: Arc<Self>, name: Arc<Name>) {
        loop {
            let one_at_a_time = name.resolving.lock().await;
            let looked_up = self.look_up(&name).await;
            drop(one_at_a_time);
            name.tell(looked_up.err());
            tokio::time::sleep(SOONEST).await;
            // Either comes to the same: it is time to look again.
            let _why = tokio::time::timeout(LATEST, name.doubted.notified()).await;
        }
    }

    fn name(&self, host: &str) -> Arc<Name> {
        let mut names = self.names.lock();
        if let Some(name) = names.get(host) {
            return Arc::clone(name);
        }
        let name = Arc::new(Name::new(host));
        names.insert(host.into(), Arc::clone(&name));
        name
    }

    async fn look_up(&self, name: &Name) -> io::Result<()> {
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

impl Name {
    fn new(host: &str) -> Self {
        Self {
            host: host.into(),
            answer: ArcSwapOption::empty(),
            resolving: Arc::default(),
            lookups: AtomicU64::new(0),
            doubted: Notify::new(),
            failing: AtomicBool::new(false),
        }
    }

    /// None of the addresses took a connection: it is time to look whether there are others.
    pub(crate) fn doubt(&self) {
        self.doubted.notify_one();
    }

    fn replace(&self, found: Vec<SocketAddr>) {
        let new = Answer::new(found);
        let Some(old) = self.answer.load_full() else {
            self.answer.store(Some(Arc::new(new)));
            return;
        };
        let lost = old.addresses.iter().any(|address| !new.has(address.address.ip()));
        if !lost && old.addresses.len() == new.addresses.len() {
            old.addresses.iter().for_each(|address| address.failing.store(false, Ordering::Relaxed));
            return;
        }
        tracing::info!(target: "spile::upstreams", name = %self.host, "the name has other addresses now: {new}");
        self.answer.store(Some(Arc::new(new)));
    }

    fn tell(&self, failure: Option<io::Error>) {
        let failed_before = self.failing.swap(failure.is_some(), Ordering::Relaxed);
        if let Some(why) = failure.filter(|_| !failed_before) {
            tracing::warn!(target: "spile::upstreams", name = %self.host, "the name cannot be resolved, and addresses \
                that are known stay in use: {why}");
        }
    }
}

impl Answer {
    /// Each address once. The two families take turns, so that one that does not work delays no dial for long.
    fn new(mut found: Vec<SocketAddr>) -> Self {
        let mut seen = HashSet::new();
        found.retain(|address| seen.insert(address.ip()));
        let first_family = found.first().is_some_and(SocketAddr::is_ipv6);
        let (one, other): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|address| address.is_ipv6() == first_family);
        let (mut one, mut other) = (one.into_iter(), other.into_iter());
        let mut addresses = Vec::with_capacity(seen.len());
        while addresses.len() < seen.len() {
            addresses.extend(one.next().into_iter().chain(other.next()).map(Address::new));
        }
        // Gateways that start together should not all begin with the same address.
        let turn = AtomicUsize::new(fastrand::usize(..1 << 16));
        Self { addresses: addresses.into(), turn }
    }

    /// All addresses but these, from the one whose turn it is. Those that lately failed come last.
    pub(crate) fn in_turn(&self, but: &[IpAddr]) -> Vec<&Address> {
        let start = self.turn.fetch_add(1, Ordering::Relaxed) % self.addresses.len();
        let (before, after) = self.addresses.split_at(start);
        let in_turn = after.iter().chain(before);
        let mut order: Vec<_> = in_turn.filter(|address| !but.contains(&address.address.ip())).collect();
        order.sort_by_key(|address| address.failing.load(Ordering::Relaxed));
        order
    }

    fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.address.ip() == address)
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.addresses.iter().map(|address| address.address.ip())).finish()
    }
}

impl Address {
    const fn new(address: SocketAddr) -> Self {
        Self { address, failing: AtomicBool::new(false) }
    }

    pub(crate) const fn at(&self, port: u16) -> SocketAddr {
        let mut address = self.address;
        address.set_port(port);
        address
    }

    /// Whether it took a connection, in time.
    pub(crate) fn took(&self, connection: bool) {
        self.failing.store(!connection, Ordering::Relaxed);
    }
}

impl Reached {
    pub(crate) const fn new(name: Arc<Name>, address: IpAddr) -> Self {
        Self { name, address }
    }

    /// How many addresses the name has.
    pub(crate) fn addresses(&self) -> usize {
        self.name.answer.load().as_ref().map_or(1, |answer| answer.addresses.len())
    }

    pub(crate) const fn address(&self) -> IpAddr {
        self.address
    }

    /// Whether the name has an address that is not among these.
    pub(crate) fn has_others_than(&self, known: &[IpAddr]) -> bool {
        let answer = self.name.answer.load();
        answer
            .as_ref()
            .is_some_and(|answer| answer.addresses.iter().any(|own| !known.contains(&own.address.ip())))
    }

    /// Whether the name still has the address.
    pub(crate) fn is_current(&self) -> bool {
        self.name.answer.load().as_ref().is_none_or(|answer| answer.has(self.address))
    }
}

/// Asks on a thread of its own: the system's resolver blocks for as long as it likes, and a process that ends must not wait
/// for it.
async fn ask_system(host: Box<str>) -> io::Result<Vec<SocketAddr>> {
    let (tell, told) = oneshot::channel();
    std::thread::Builder::new().name("resolver".to_owned()).spawn(move || {
        // Who asked may be gone by now.
        let _told = tell.send((&*host, 0).to_socket_addrs().map(Iterator::collect));
    })?;
    told.await.map_err(io::Error::other)?
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
        let answer = Answer::new(addresses(&["::1", "::2", "::3", "::1", "10.0.0.1", "10.0.0.2"]));
        assert_eq!(answer.to_string(), "[::1, 10.0.0.1, ::2, 10.0.0.2, ::3]");
    }

    #[test]
    fn an_address_that_failed_comes_last_until_the_name_is_resolved_again() {
        let name = Name::new("app.test");
        name.replace(addresses(&["10.0.0.1", "10.0.0.2"]));
        let answer = name.answer.load_full().unwrap();
        let firsts = || -> HashSet<IpAddr> { (0..4).map(|_| answer.in_turn(&[])[0].address.ip()).collect() };
        assert_eq!(firsts().len(), 2, "each has its turn");
        answer.addresses[0].took(false);
        assert_eq!(firsts(), HashSet::from([answer.addresses[1].address.ip()]));
        name.replace(addresses(&["10.0.0.2", "10.0.0.1"]));
        assert_eq!(firsts().len(), 2, "the same addresses in another order are no other answer");
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
        tokio::time::sleep((SOONEST + LATEST) * 2).await;
        assert_eq!((asked.load(Ordering::Relaxed), known().await), (3, 2), "two failures change nothing");
        tokio::time::sleep((SOONEST + LATEST) * 2).await;
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
        tokio::time::sleep(SOONEST / 2).await;
        let before = asked.load(Ordering::Relaxed);
        (0..100).for_each(|_| name.doubt());
        tokio::time::sleep(SOONEST).await;
        assert_eq!(asked.load(Ordering::Relaxed), before + 1, "once, however many dials failed");
    }
}
