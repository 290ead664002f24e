//! Connections between instances and nodes: ordered, delayed, cut.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use spile_runtime::ByteStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::scheduler::{Nanos, Scheduler, State, US};

/// All connections, and what is on its way.
pub(crate) struct Network {
    pub(crate) links: BTreeMap<u64, Link>,
    pub(crate) events: BTreeMap<(Nanos, u64), Delivery>,
    /// Per node.
    pub(crate) nodes: Vec<NodeState>,
    /// The shortest and the longest time that bytes take, one way.
    pub(crate) latency: (Nanos, Nanos),
    /// Per instance and node, until when nothing arrives.
    pub(crate) partitions: BTreeMap<(usize, usize), Nanos>,
    /// Per instance and node, until when replies do not arrive.
    pub(crate) lost_replies: BTreeMap<(usize, usize), Nanos>,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            links: BTreeMap::new(),
            events: BTreeMap::new(),
            nodes: Vec::new(),
            latency: (50 * US, 300 * US),
            partitions: BTreeMap::new(),
            lost_replies: BTreeMap::new(),
        }
    }
}

/// Whether a node answers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeState {
    /// Refuses connections until then.
    pub(crate) down_until: Nanos,
    /// Reads nothing until then.
    pub(crate) frozen_until: Nanos,
}

/// One connection.
pub(crate) struct Link {
    pub(crate) instance: usize,
    pub(crate) node: usize,
    /// Bytes that have arrived at the client.
    inbox: Vec<u8>,
    is_cut: bool,
    /// Leads to a server that has become a replica.
    pub(crate) is_demoted: bool,
    /// The client has closed its end.
    is_abandoned: bool,
    reader: Option<Waker>,
    /// When the last bytes of each direction arrive: later ones never overtake them.
    up_at: Nanos,
    down_at: Nanos,
    /// Bytes at the node that are not a whole command yet.
    pub(crate) unread: Vec<u8>,
}

/// An arrival.
pub(crate) enum Delivery {
    ToNode(u64, Vec<u8>),
    ToClient(u64, Vec<u8>),
    Wake(Waker),
}

/// Opens a connection.
pub(crate) async fn connect(
    scheduler: Scheduler,
    instance: usize,
    node: usize,
) -> io::Result<Box<dyn ByteStream>> {
    let opened_at = {
        let mut state = scheduler.0.lock();
        if node >= state.network.nodes.len() {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.now + state.delay() + state.delay()
    };
    Until { scheduler: scheduler.clone(), at: opened_at, is_armed: false }.await;
    let partition = scheduler.0.lock().partition(instance, node);
    if let Some(heals_at) = partition {
        Until { scheduler: scheduler.clone(), at: heals_at, is_armed: false }.await;
    }
    let mut state = scheduler.0.lock();
    if state.network.nodes[node].down_until > state.now || !state.instances[instance].is_alive {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    let (number, now) = (state.number(), state.now);
    let link = Link {
        instance,
        node,
        inbox: Vec::new(),
        is_cut: false,
        is_demoted: false,
        is_abandoned: false,
        reader: None,
        up_at: now,
        down_at: now,
        unread: Vec::new(),
    };
    state.network.links.insert(number, link);
    drop(state);
    Ok(Box::new(Stream { scheduler, link: number }))
}

impl State {
    /// How long bytes take, one way.
    fn delay(&mut self) -> Nanos {
        let (least, most) = self.network.latency;
        // Most are fast, few are slow.
        let share = self.rng.f64();
        least + ((most - least) as f64 * share * share * share) as Nanos
    }

    fn partition(&self, instance: usize, node: usize) -> Option<Nanos> {
        self.network.partitions.get(&(instance, node)).copied().filter(|until| *until > self.now)
    }

    fn schedule(&mut self, at: Nanos, delivery: Delivery) {
        let number = self.number();
        self.network.events.insert((at, number), delivery);
    }

    fn send_up(&mut self, link: u64, bytes: &[u8]) -> io::Result<()> {
        let sent_at = self.now + self.delay();
        let Some(own) = self.network.links.get(&link).filter(|own| !own.is_cut) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let (instance, node) = (own.instance, own.node);
        let frozen_until = self.network.nodes[node].frozen_until;
        let heals_at = self.partition(instance, node).unwrap_or(0);
        let own = self.network.links.get_mut(&link).expect("it was found");
        own.up_at = own.up_at.max(sent_at).max(heals_at).max(frozen_until);
        let at = own.up_at;
        self.schedule(at, Delivery::ToNode(link, bytes.to_vec()));
        Ok(())
    }

    /// Sends the replies of a node.
    pub(crate) fn send_down(&mut self, link: u64, mut bytes: Vec<u8>) {
        // Some arrive in two parts.
        if bytes.len() > 1 && self.rng.u8(..8) == 0 {
            let rest = bytes.split_off(self.rng.usize(1..bytes.len()));
            self.send_part_down(link, bytes);
            bytes = rest;
        }
        self.send_part_down(link, bytes);
    }

    fn send_part_down(&mut self, link: u64, bytes: Vec<u8>) {
        let sent_at = self.now + self.delay();
        let Some(own) = self.network.links.get(&link).filter(|own| !own.is_cut) else { return };
        let (instance, node) = (own.instance, own.node);
        if self.network.lost_replies.get(&(instance, node)).is_some_and(|until| *until > self.now) {
            return;
        }
        let heals_at = self.partition(instance, node).unwrap_or(0);
        let own = self.network.links.get_mut(&link).expect("it was found");
        own.down_at = own.down_at.max(sent_at).max(heals_at);
        let at = own.down_at;
        self.schedule(at, Delivery::ToClient(link, bytes));
    }

    /// Takes what arrives by now.
    pub(crate) fn take_delivery(&mut self) -> Option<Delivery> {
        let entry = self.network.events.first_entry()?;
        (entry.key().0 <= self.now).then(|| entry.remove())
    }

    /// Hands bytes to a client. The waker has to be called without the lock.
    pub(crate) fn arrive(&mut self, link: u64, bytes: &[u8]) -> Option<Waker> {
        let link = self.network.links.get_mut(&link)?;
        link.inbox.extend_from_slice(bytes);
        link.reader.take()
    }

    /// Cuts the connections that match. What is on its way to a client is lost; of what is on its way to a node, a part arrives.
    pub(crate) fn cut(&mut self, matches: impl Fn(&Link) -> bool) -> Vec<Waker> {
        let cut: Vec<u64> =
            self.network.links.iter().filter(|(_, link)| matches(link)).map(|(number, _)| *number).collect();
        let mut wakers = Vec::new();
        for number in cut {
            let arrives_until = self.now + self.rng.u64(..1_000 * US);
            self.network.events.retain(|(at, _), delivery| match delivery {
                Delivery::ToClient(link, _) => *link != number,
                Delivery::ToNode(link, _) => *link != number || *at <= arrives_until,
                Delivery::Wake(_) => true,
            });
            if let Some(link) = self.network.links.get_mut(&number) {
                link.is_cut = true;
                wakers.extend(link.reader.take());
            }
        }
        wakers
    }

    /// Lets a node read nothing until then.
    pub(crate) fn freeze(&mut self, node: usize, until: Nanos) {
        self.network.nodes[node].frozen_until = until;
        let events = std::mem::take(&mut self.network.events);
        for ((at, number), delivery) in events {
            let is_for_node = matches!(&delivery, Delivery::ToNode(link, _)
                if self.network.links.get(link).is_some_and(|link| link.node == node));
            // Their order stays, because their numbers do.
            let at = if is_for_node { at.max(until) } else { at };
            self.network.events.insert((at, number), delivery);
        }
        for link in self.network.links.values_mut().filter(|link| link.node == node) {
            link.up_at = link.up_at.max(until);
        }
    }

    /// Forgets a connection that both ends have left.
    fn leave(&mut self, link: u64) {
        if let Some(own) = self.network.links.get_mut(&link) {
            own.is_abandoned = true;
        }
        let is_used =
            |delivery: &Delivery| matches!(delivery, Delivery::ToNode(number, _) if *number == link);
        if !self.network.events.values().any(is_used) {
            self.network.links.remove(&link);
        }
    }
}

/// Completes at its moment.
struct Until {
    scheduler: Scheduler,
    at: Nanos,
    is_armed: bool,
}

impl Future for Until {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let scheduler = self.scheduler.clone();
        let mut state = scheduler.0.lock();
        if state.now >= self.at {
            return Poll::Ready(());
        }
        if !std::mem::replace(&mut self.is_armed, true) {
            let at = self.at;
            state.schedule(at, Delivery::Wake(cx.waker().clone()));
        }
        Poll::Pending
    }
}

/// The client's end of a connection.
struct Stream {
    scheduler: Scheduler,
    link: u64,
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut state = self.scheduler.0.lock();
        let Some(link) = state.network.links.get_mut(&self.link) else {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        };
        if link.inbox.is_empty() {
            if link.is_cut {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            let former = link.reader.replace(cx.waker().clone());
            drop((state, former));
            return Poll::Pending;
        }
        let read = link.inbox.len().min(buf.remaining());
        buf.put_slice(&link.inbox[..read]);
        link.inbox.drain(..read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.scheduler.0.lock().send_up(self.link, buf).map(|()| buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.scheduler.0.lock().leave(self.link);
    }
}
