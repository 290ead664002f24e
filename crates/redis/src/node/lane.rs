//! One connection to one node, kept up for ever: it takes what has gathered, sends it, and hands out the replies as they
//! come. Several flights may be under way on it. Nothing is ever sent twice unless Redis said that it did not run it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use spile_core::StoreError;
use spile_resp::{Value, write};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::connection::dialer::{Dialer, Whereabouts};
use crate::connection::endpoint::Endpoint;
use crate::connection::pace::{Backoff, LASTING};
use crate::connection::{Connection, ConnectionError};
use crate::node::pipeline::{Answered, Pipeline};
use crate::node::queue::Flight;
use crate::node::refusals;
use crate::node::{Moves, Node};
use crate::script::call::Call;
use crate::script::error_reply::{ErrorReply, Refusal, may_have_run, not_run};
use crate::script::key::Prefix;
use crate::script::request::{BatchGroup, Waiting};
use crate::store::stats::Counters;
use crate::store::time_source::TimeSource;

/// How often a node whose breaker is open is probed over a connection that still stands.
const PROBE_EVERY: Duration = Duration::from_millis(50);

/// What the store warns of where Redis does not take the credentials that it was given last.
const CREDENTIALS: &str = "new credentials";

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
    /// Lanes per node.
    pub(crate) connections: usize,
    /// The most flights that are under way on one connection.
    pub(crate) flights: usize,
    /// The most charges that may wait.
    pub(crate) most_waiting: usize,
    /// What keys begin with, if the node is one of a cluster: a call then holds keys of one slot only.
    pub(crate) cluster_prefix: Option<Prefix>,
    pub(crate) sequence: Arc<AtomicU64>,
    pub(crate) counters: Arc<Counters>,
}

/// A connection's keeper.
pub(crate) struct Lane {
    setup: LaneSetup,
    node: Arc<Node>,
    out: Vec<u8>,
}

/// The connection is given up.
struct Lost;

/// What a lane wakes up for.
enum Event<'a> {
    Heard(Result<Value, ConnectionError>),
    Moved,
    /// What is under way has to land before anything else is sent.
    Paused,
    Gathered(Vec<Waiting>, Flight<'a>),
    Alarm,
}

impl Lane {
    pub(crate) fn new(setup: LaneSetup, node: Arc<Node>) -> Self {
        Self { setup, node, out: Vec::new() }
    }

    /// Never returns: it ends with its task.
    pub(crate) async fn run(mut self) {
        let node = self.node.clone();
        loop {
            let (connection, mut moves) = self.connected().await;
            let (up, since) = (Up::new(&node), Instant::now());
            let here = connection.endpoint().clone();
            self.serve(connection, &here, &mut moves).await;
            drop(up);
            self.setup.counters.connections_lost.add(1);
            if since.elapsed() < LASTING && !moves.lead_away_from(&here) {
                Backoff::default().pause().await;
            }
        }
    }

    /// A connection, and what tells when the node has moved since before it was dialled.
    async fn connected(&self) -> (Connection, Moves) {
        let mut backoff = self.node.dialing.lock().await;
        loop {
            // From before the node is looked for, so that a move in the meantime is not missed.
            let mut moves = self.node.moves();
            let dialled = tokio::select! {
                dialled = self.dial_impatiently() => dialled,
                () = moves.heard() => continue,
            };
            match dialled {
                Ok(connection) => {
                    self.setup.counters.warnings.clear(CREDENTIALS);
                    *backoff = Backoff::default();
                    return (connection, moves);
                }
                Err(why) => {
                    self.node.unreachable(&why);
                    // A node that is known to be elsewhere is dialled at once.
                    tokio::select! {
                        () = backoff.pause() => {}
                        () = moves.heard() => {}
                    }
                }
            }
        }
    }

    /// Dials, and says so after as long as a caller waits, so that callers need not wait for each dial that hangs.
    async fn dial_impatiently(&self) -> Result<Connection, ConnectionError> {
        let probe = self.node.probe();
        let mut dial = pin!(self.setup.dialer.dial(&self.setup.whereabouts, &probe));
        if let Ok(dialled) = timeout(self.setup.timeout, &mut dial).await {
            return dialled;
        }
        self.node.unreachable(&ConnectionError::Stalled(self.setup.timeout));
        dial.await
    }

    /// Serves until the connection is of no use any more.
    async fn serve(&mut self, mut connection: Connection, here: &Endpoint, moves: &mut Moves) {
        let (node, mut login) = (self.node.clone(), connection.login());
        let (mut pipeline, mut leaving) = (Pipeline::default(), false);
        loop {
            if pipeline.is_empty() {
                let Ok(unknown) = self.sort_out(&connection, pipeline.take_refused()) else { return };
                if !unknown.is_empty() {
                    let sent = self.send(&mut connection, &mut pipeline, unknown, node.queue.take_off());
                    if sent.await.is_err() {
                        return;
                    }
                    continue;
                }
                if leaving || (node.breaker.is_open() && self.prove(&mut connection).await.is_err()) {
                    return;
                }
                if connection.is_outdated() && self.reauthenticate(&mut connection).await.is_err() {
                    return;
                }
            }
            let pauses = leaving || node.breaker.is_open() || connection.is_outdated();
            let takes = !pauses && pipeline.takes(self.setup.flights);
            let event = tokio::select! {
                // In this order, so that a reply that has come is never overlooked, and nothing is sent into a
                // connection that is known to be of no use.
                biased;
                heard = connection.hear(!pipeline.is_empty()) => Event::Heard(heard),
                () = moves.away_from(here), if !leaving => Event::Moved,
                _ = login.changed() => Event::Paused,
                () = node.breaker.until_open(), if takes => Event::Paused,
                (gathered, flight) = node.queue.take(), if takes => Event::Gathered(gathered, flight),
                () = sleep_until(pipeline.alarm(&self.setup)), if !pipeline.is_empty() => Event::Alarm,
            };
            let going = match event {
                Event::Heard(heard) => self.heard(heard, &mut pipeline),
                Event::Moved => {
                    leaving = true;
                    Ok(())
                }
                Event::Paused => Ok(()),
                Event::Gathered(gathered, flight) => {
                    let calls = self.calls(gathered);
                    self.send(&mut connection, &mut pipeline, calls, flight).await
                }
                Event::Alarm => self.overdue(&mut pipeline),
            };
            if going.is_err() {
                return;
            }
        }
    }

    /// Goes on with the old credentials where Redis does not take the new ones yet: new connections use those.
    async fn reauthenticate(&self, connection: &mut Connection) -> Result<(), Lost> {
        let warnings = &self.setup.counters.warnings;
        match timeout(self.setup.stall, connection.reauthenticate()).await {
            Ok(Ok(())) => warnings.clear(CREDENTIALS),
            Ok(Err(ConnectionError::Refused(why))) => warnings.set(CREDENTIALS, why),
            _ => return Err(Lost),
        }
        Ok(())
    }

    /// Probes until the node answers as fast as callers expect, then closes the breaker.
    async fn prove(&self, connection: &mut Connection) -> Result<(), Lost> {
        while self.node.breaker.is_open() {
            if let Some(_probe) = self.node.breaker.claim_probe() {
                let start = Instant::now();
                let probe = self.node.probe();
                match timeout_at(start + self.setup.stall, probe.run(connection)).await {
                    Ok(Ok(())) if start.elapsed() <= self.setup.timeout => self.node.breaker.close(),
                    Ok(Ok(())) => {}
                    Ok(Err(ConnectionError::Refused(refusal))) if is_passing(&refusal) => {}
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
        if self.setup.cluster_prefix.is_none() {
            return vec![self.call(gathered)];
        }
        let mut by_slot: Vec<(u16, Vec<Waiting>)> = Vec::new();
        let mut calls = Vec::new();
        for waiting in gathered {
            if waiting.group != BatchGroup::Any {
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

    /// Sends the calls as one flight.
    async fn send<'q>(
        &mut self,
        connection: &mut Connection,
        pipeline: &mut Pipeline<'q>,
        calls: Vec<Call>,
        flight: Flight<'q>,
    ) -> Result<(), Lost> {
        self.write(&calls);
        let now = Instant::now();
        pipeline.push(calls, flight, now);
        let sent = timeout_at(now + self.setup.stall, connection.send(&self.out)).await;
        match sent.unwrap_or(Err(ConnectionError::Stalled(self.setup.stall))) {
            Ok(()) => Ok(()),
            Err(why) => Err(self.lose(pipeline, &why)),
        }
    }

    fn write(&mut self, calls: &[Call]) {
        let now_us = self.setup.time.now_us();
        self.out.clear();
        for call in calls {
            if call.is_asking() {
                write::command(&mut self.out, &[b"ASKING"]);
            }
            call.write(now_us, &mut self.out);
        }
    }

    /// Takes the next reply for what it is.
    fn heard(&self, heard: Result<Value, ConnectionError>, pipeline: &mut Pipeline<'_>) -> Result<(), Lost> {
        if pipeline.is_empty() {
            // It was closed, or spoke unasked, while nothing depended on it.
            return Err(Lost);
        }
        match heard.and_then(|value| pipeline.answer(value)) {
            Ok(Some(answered)) => {
                self.hand_out(answered);
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(why) => Err(self.lose(pipeline, &why)),
        }
    }

    /// Looks for flights that have had no reply for as long as a caller would wait: that is the node's failure, and
    /// nothing else is. One that goes on for longer costs the connection.
    fn overdue(&self, pipeline: &mut Pipeline<'_>) -> Result<(), Lost> {
        let now = Instant::now();
        match pipeline.newly_overdue(now, self.setup.timeout) {
            0 => {}
            requests => self.node.failed(requests),
        }
        if pipeline.is_stalled(now, self.setup.stall) {
            return Err(self.lose(pipeline, &ConnectionError::Stalled(self.setup.stall)));
        }
        Ok(())
    }

    fn hand_out(&self, answered: Answered<'_>) {
        let Answered { call, replies, sent_at, .. } = answered;
        let counters = &self.setup.counters;
        counters.calls.add(1);
        counters.answered.add(call.len() as u64);
        if replies.repairs > 0 {
            counters.repairs.add(replies.repairs);
        }
        if sent_at.elapsed() <= self.setup.timeout {
            self.node.breaker.succeed();
        }
        for (waiting, reply) in call.into_waiting().into_iter().zip(replies.replies) {
            waiting.answer(Ok(reply));
        }
    }

    /// The connection broke. Whatever was under way may have run, and so may what was refused: a refusal is only
    /// believed when every reply around it was the one expected.
    fn lose(&self, pipeline: &mut Pipeline<'_>, why: &ConnectionError) -> Lost {
        let error = match why {
            ConnectionError::InvalidReply(_) | ConnectionError::Foreign(_) => {
                StoreError::BadResponse(why.to_string().into())
            }
            _ => may_have_run(why.to_string()),
        };
        for waiting in pipeline.take_all().flat_map(Call::into_waiting) {
            waiting.answer(Err(Refusal::Failed(error.clone())));
        }
        self.node.failed(1);
        Lost
    }

    /// Tells those who were refused what to do, and returns the calls that only lack the script.
    fn sort_out(&self, connection: &Connection, refused: Vec<(Call, String)>) -> Result<Vec<Call>, Lost> {
        let mut unknown = Vec::new();
        let mut lost = Ok(());
        for (call, text) in refused {
            let reply = ErrorReply::read(&text, connection.endpoint());
            refusals::note(&self.node, &self.setup.counters, &reply, &text, &call);
            let refusal = match reply {
                ErrorReply::NoScript => {
                    unknown.push(call.by_text());
                    continue;
                }
                ErrorReply::Moved { .. } | ErrorReply::Ask { .. } if self.setup.cluster_prefix.is_none() => {
                    let why = format!("{text}: this is a node of a cluster, whose URL is redis-cluster://");
                    self.node.misdirected(why.clone());
                    Refusal::Failed(not_run(why))
                }
                ErrorReply::Moved { to } => Refusal::Moved { to },
                // With other keys in the call, this may be about them.
                ErrorReply::Ask { .. } | ErrorReply::TryAgain if call.len() > 1 => Refusal::Alone,
                ErrorReply::Ask { to } => Refusal::Ask { to },
                ErrorReply::TryAgain => Refusal::Divided,
                ErrorReply::ClusterDown => {
                    self.node.failed(call.len());
                    Refusal::Again
                }
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
                    self.node.failed(1);
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

/// Whether a probe that is refused like this says that the node will do its part soon, over this connection.
fn is_passing(refusal: &str) -> bool {
    ["BUSY", "CLUSTERDOWN"].iter().any(|code| refusal.starts_with(code))
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
