//! One connection to one node, kept up for ever: it takes what has gathered, sends it, waits for the replies and
//! hands them out. Nothing is ever sent twice unless Redis said that it did not run it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use spile_core::StoreError;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use crate::call::{Call, Naming, Replies};
use crate::connection::{Connection, ConnectionError};
use crate::dialer::{Dialer, Whereabouts, probe};
use crate::node::Node;
use crate::pace::Backoff;
use crate::refusal::{ErrorReply, Refusal, may_have_run, not_run};
use crate::request::{Company, Waiting};
use crate::resp;
use crate::resp::Value;
use crate::stats::Counters;
use crate::time_source::TimeSource;

/// How often a node whose breaker is open is probed over a connection that still stands.
const PROBE_EVERY: Duration = Duration::from_millis(50);

/// What every lane of a store has in common, and where its node is.
#[derive(Clone)]
pub(crate) struct LaneSetup {
    pub(crate) whereabouts: Whereabouts,
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) time: TimeSource,
    /// The longest that a caller waits: an answer that takes longer is no success.
    pub(crate) timeout: Duration,
    /// No reply for so long, and the connection is given up.
    pub(crate) stall: Duration,
    /// Whether one call may only hold keys of one slot.
    pub(crate) by_slot: bool,
    pub(crate) sequence: Arc<AtomicU64>,
    pub(crate) counters: Arc<Counters>,
}

/// A connection's keeper.
pub(crate) struct Lane {
    setup: LaneSetup,
    node: Arc<Node>,
    out: Vec<u8>,
}

/// Why a connection is given up, and whether its node failed by that.
struct Lost;

impl Lane {
    pub(crate) fn new(setup: LaneSetup, node: Arc<Node>) -> Self {
        Self { setup, node, out: Vec::new() }
    }

    /// Never returns: it ends with its task.
    pub(crate) async fn run(mut self) {
        loop {
            // From before the node is looked for, so that a move in the meantime is not missed.
            let moves = self.node.moves();
            let connection = self.connected().await;
            let node = self.node.clone();
            let up = Up::new(&node);
            self.serve(connection, moves).await;
            drop(up);
            self.setup.counters.connections_lost.add(1);
        }
    }

    async fn connected(&self) -> Connection {
        let mut backoff = self.node.dialing.lock().await;
        loop {
            match self.setup.dialer.dial(&self.setup.whereabouts).await {
                Ok(connection) => {
                    *backoff = Backoff::default();
                    return connection;
                }
                Err(why) => {
                    self.node.unreachable(&why);
                    backoff.pause().await;
                }
            }
        }
    }

    /// Serves until the connection is of no use any more.
    async fn serve(&mut self, mut connection: Connection, mut moves: watch::Receiver<u64>) {
        let node = self.node.clone();
        loop {
            if node.breaker.is_open() && self.prove(&mut connection).await.is_err() {
                return;
            }
            let (gathered, flight) = tokio::select! {
                // In this order, so that nothing is sent into a connection that is known to be of no use.
                biased;
                _ = connection.until_unasked() => return,
                _ = moves.changed() => return,
                () = node.breaker.until_open() => continue,
                taken = node.queue.take() => taken,
            };
            let calls = self.calls(gathered);
            if self.fly(&mut connection, calls).await.is_err() {
                return;
            }
            drop(flight);
        }
    }

    /// Probes until the node answers as fast as callers expect, then closes the breaker.
    async fn prove(&self, connection: &mut Connection) -> Result<(), Lost> {
        while self.node.breaker.is_open() {
            if let Some(_probe) = self.node.breaker.claim_probe() {
                let start = Instant::now();
                match timeout_at(start + self.setup.stall, probe(connection, Naming::Text)).await {
                    Ok(Ok(())) if start.elapsed() <= self.setup.timeout => self.node.breaker.close(),
                    Ok(Ok(())) => {}
                    Ok(Err(ConnectionError::Refused(refusal))) if refusal.starts_with("BUSY") => {}
                    _ => return Err(Lost),
                }
            }
            if self.node.breaker.is_open() {
                sleep(PROBE_EVERY).await;
            }
        }
        Ok(())
    }

    /// Sorts requests into as few script calls as the topology allows.
    fn calls(&self, gathered: Vec<Waiting>) -> Vec<Call> {
        if !self.setup.by_slot {
            return vec![self.call(gathered)];
        }
        let mut by_slot: Vec<(u16, Vec<Waiting>)> = Vec::new();
        let mut calls = Vec::new();
        for waiting in gathered {
            if waiting.company != Company::Any {
                calls.push(self.call(vec![waiting]));
                continue;
            }
            let slot = waiting.request.slot();
            match by_slot.iter_mut().find(|(of, _)| *of == slot) {
                Some((_, group)) => group.push(waiting),
                None => by_slot.push((slot, vec![waiting])),
            }
        }
        calls.extend(by_slot.into_iter().map(|(_, group)| self.call(group)));
        calls
    }

    fn call(&self, waiting: Vec<Waiting>) -> Call {
        Call::new(self.setup.sequence.fetch_add(1, Ordering::Relaxed), waiting)
    }

    /// Sends the calls and hands out the replies. Where the node does not know the script, sends its text at once.
    async fn fly(&mut self, connection: &mut Connection, calls: Vec<Call>) -> Result<(), Lost> {
        let unknown = self.exchange(connection, calls, Naming::Hash).await?;
        if !unknown.is_empty() {
            self.exchange(connection, unknown, Naming::Text).await?;
        }
        Ok(())
    }

    /// Returns the calls that the node did not run because it does not know the script.
    async fn exchange(
        &mut self,
        connection: &mut Connection,
        calls: Vec<Call>,
        naming: Naming,
    ) -> Result<Vec<Call>, Lost> {
        self.write(&calls, naming);
        let mut deadline = Instant::now() + self.setup.stall;
        if let Err(why) = self.within(deadline, connection.send(&self.out)).await {
            return Err(self.lose(calls, Vec::new(), &why));
        }
        let mut refused: Vec<(Call, String)> = Vec::new();
        let mut calls = calls.into_iter();
        while let Some(call) = calls.next() {
            match self.within(deadline, self.reply(connection, &call)).await {
                Ok(Answer::Replies(replies)) => self.hand_out(call, replies),
                Ok(Answer::Refused(text)) => refused.push((call, text)),
                Err(why) => {
                    let unanswered = std::iter::once(call).chain(calls).collect();
                    return Err(self.lose(unanswered, refused, &why));
                }
            }
            deadline = Instant::now() + self.setup.stall;
        }
        self.sort_out(connection, refused)
    }

    fn write(&mut self, calls: &[Call], naming: Naming) {
        let now_us = self.setup.time.now_us();
        self.out.clear();
        for call in calls {
            if call.is_asking() {
                resp::push_command(&mut self.out, &[b"ASKING"]);
            }
            call.write(naming, now_us, &mut self.out);
        }
    }

    async fn within<T>(
        &self,
        deadline: Instant,
        step: impl Future<Output = Result<T, ConnectionError>>,
    ) -> Result<T, ConnectionError> {
        timeout_at(deadline, step).await.unwrap_or(Err(ConnectionError::Stalled(self.setup.stall)))
    }

    async fn reply(&self, connection: &mut Connection, call: &Call) -> Result<Answer, ConnectionError> {
        if call.is_asking()
            && let Value::Error(refusal) = connection.receive().await?
        {
            // The call itself was answered too, but by a node that was not asked to take it.
            connection.receive().await?;
            return Ok(Answer::Refused(refusal));
        }
        match connection.receive().await? {
            Value::Error(text) => Ok(Answer::Refused(text)),
            value => call.read(&value).map(Answer::Replies).map_err(ConnectionError::Foreign),
        }
    }

    fn hand_out(&self, call: Call, replies: Replies) {
        let counters = &self.setup.counters;
        counters.calls.add(1);
        counters.answered.add(call.len() as u64);
        if replies.repairs > 0 {
            counters.repairs.add(replies.repairs);
        }
        let mut in_time = false;
        for (waiting, reply) in call.into_waiting().into_iter().zip(replies.replies) {
            in_time |= waiting.answer(Ok(reply));
        }
        if in_time {
            self.node.breaker.succeed();
        }
    }

    /// The connection broke. Whatever was under way may have run, and so may what was refused: a refusal is only
    /// believed when every reply around it was the one expected.
    fn lose(&self, unanswered: Vec<Call>, refused: Vec<(Call, String)>, why: &ConnectionError) -> Lost {
        let error = match why {
            ConnectionError::Malformed(_) | ConnectionError::Foreign(_) => {
                StoreError::BadResponse(why.to_string().into())
            }
            _ => may_have_run(why.to_string()),
        };
        let refused = refused.into_iter().map(|(call, _)| call);
        for waiting in unanswered.into_iter().chain(refused).flat_map(Call::into_waiting) {
            waiting.answer(Err(Refusal::Failed(error.clone())));
        }
        self.node.failed();
        Lost
    }

    /// Tells whoever was refused what to do, and returns the calls that only lack the script.
    fn sort_out(&self, connection: &Connection, refused: Vec<(Call, String)>) -> Result<Vec<Call>, Lost> {
        let mut unknown = Vec::new();
        let mut lost = Ok(());
        for (call, text) in refused {
            let refusal = match ErrorReply::read(&text, connection.endpoint()) {
                ErrorReply::NoScript => {
                    unknown.push(call);
                    continue;
                }
                ErrorReply::Moved { to } => Refusal::Moved { to },
                ErrorReply::Ask { to } => Refusal::Ask { to },
                ErrorReply::TryAgain | ErrorReply::ClusterDown => Refusal::Again,
                ErrorReply::WrongNode => {
                    lost = Err(Lost);
                    Refusal::Again
                }
                // Sentinels may know another master by now. Anywhere else, dialling again reaches the same node.
                ErrorReply::Unreplicated if self.setup.whereabouts.may_move() => {
                    lost = Err(Lost);
                    Refusal::Again
                }
                ErrorReply::Busy => {
                    self.node.failed();
                    Refusal::Failed(not_run(text))
                }
                ErrorReply::Unreplicated | ErrorReply::Refused => Refusal::Failed(not_run(text)),
                ErrorReply::Other => Refusal::Failed(may_have_run(text)),
            };
            for waiting in call.into_waiting() {
                waiting.answer(Err(refusal.clone()));
            }
        }
        if lost.is_err() {
            // The calls that lack the script have not run; their callers submit them again.
            for waiting in unknown.drain(..).flat_map(Call::into_waiting) {
                waiting.answer(Err(Refusal::Again));
            }
        }
        lost.map(|()| unknown)
    }
}

enum Answer {
    Replies(Replies),
    Refused(String),
}

/// A lane that is connected, until dropped: also when its task is ended.
struct Up<'a>(&'a Node);

impl<'a> Up<'a> {
    fn new(node: &'a Node) -> Self {
        node.lane_is_up();
        Self(node)
    }
}

impl Drop for Up<'_> {
    fn drop(&mut self) {
        self.0.lane_is_down();
    }
}
