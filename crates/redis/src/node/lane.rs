//! A task that keeps one connection to one node open: it takes requests from the queue, sends them and delivers the
//! replies. Several flights may be unanswered at once. A request is sent again only if Redis said that it did not run
//! it.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use spile_core::StoreError;
use spile_resp::{Value, write};

use crate::connection::dial_limiter::{Backoff, MIN_UPTIME};
use crate::connection::endpoint::Endpoint;
use crate::connection::{Connection, ConnectionError, in_time, reporting_delay};
use crate::node::pipeline::{CompletedCall, Pipeline};
use crate::node::queue::Flight;
use crate::node::write_failures;
use crate::node::{Moves, Node};
use crate::script::call::{RefusedCall, ScriptCall};
use crate::script::error_reply::{ErrorReply, Rejection, may_have_run, not_run};
use crate::script::request::{BatchGroup, PendingRequest, Request};
use crate::store::context::StoreContext;

/// How often a node whose breaker is open is probed over an open connection.
const PROBE_EVERY: Duration = Duration::from_millis(50);

/// The subject of the warning that Redis rejects the newest credentials.
const CREDENTIALS_WARNING: &str = "new credentials";

/// The task of one connection.
pub(crate) struct Lane {
    node: Arc<Node>,
    out: Vec<u8>,
}

/// The slot of all requests of a call, and whether they need other commands than most.
type CallKind = (u16, bool);

/// The connection must be closed.
struct ConnectionLost;

impl Lane {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node, out: Vec::new() }
    }

    /// Never returns. It ends when its task is aborted.
    pub(crate) async fn run(mut self) {
        let node = self.node.clone();
        loop {
            let (connection, mut moves) = self.connect().await;
            let (connected_guard, since) = (node.lane_is_up(), self.node.context.runtime.now());
            let here = connection.endpoint().clone();
            let Err(ConnectionLost) = self.serve(connection, &here, &mut moves).await;
            drop(connected_guard);
            self.node.context.counters.connections_lost.add(1);
            let uptime = self.node.context.runtime.now() - since;
            if uptime < MIN_UPTIME && !moves.lead_away_from(&here) {
                Backoff::default().pause(&self.node.context.runtime).await;
            }
        }
    }

    /// Connects, and returns the moves of the node from before the dial.
    async fn connect(&self) -> (Connection, Moves) {
        let mut backoff = self.node.dialing.lock().await;
        loop {
            // Subscribed before the dial, so that a move during it is not missed.
            let mut moves = self.node.moves();
            let dialled = tokio::select! {
                // First, so that moves do not discard connections that are open. The lane notices the move later.
                biased;
                dialled = self.dial_reporting_delay() => dialled,
                () = moves.changed() => continue,
            };
            match dialled {
                Ok(connection) => {
                    self.node.context.counters.warnings.clear(CREDENTIALS_WARNING);
                    *backoff = Backoff::default();
                    return (connection, moves);
                }
                Err(why) => {
                    self.node.unreachable(&why);
                    // A node that has moved is dialled at once.
                    tokio::select! {
                        biased;
                        () = moves.changed() => {}
                        () = backoff.pause(&self.node.context.runtime) => {}
                    }
                }
            }
        }
    }

    /// Dials. A dial that takes longer than callers wait marks the node as unreachable, so that further callers fail
    /// fast.
    async fn dial_reporting_delay(&self) -> Result<Connection, ConnectionError> {
        let Node { context, dialer, address, .. } = &*self.node;
        let late = || self.node.unreachable(&ConnectionError::Stalled(context.timeout));
        let probe = self.node.probe();
        reporting_delay(&context.runtime, context.timeout, dialer.dial(address, &probe), late).await
    }

    /// Serves requests until the connection must be closed.
    async fn serve(
        &mut self,
        mut connection: Connection,
        here: &Endpoint,
        moves: &mut Moves,
    ) -> Result<Infallible, ConnectionLost> {
        let (node, mut login) = (self.node.clone(), connection.login());
        let context = &*node.context;
        let (mut pipeline, mut leaving) = (Pipeline::default(), false);
        loop {
            if pipeline.is_empty() {
                let unknown = self.handle_error_replies(&connection, pipeline.take_refused())?;
                if !unknown.is_empty() {
                    let flight = node.queue.start_flight();
                    self.send(&mut connection, &mut pipeline, unknown, flight).await?;
                    continue;
                }
                if leaving {
                    return Err(ConnectionLost);
                }
                if node.breaker.is_open() {
                    self.probe_until_healthy(&mut connection).await?;
                }
                if connection.is_outdated() {
                    self.reauthenticate(&mut connection).await?;
                }
            }
            let pauses = leaving || node.breaker.is_open() || connection.is_outdated();
            let takes = !pauses && pipeline.takes(context.flights);
            tokio::select! {
                // In this order, so that a reply that has arrived is never missed, and nothing is sent over a
                // connection that must be closed.
                biased;
                reply = connection.receive_if(!pipeline.is_empty()) => self.on_reply(reply, &mut pipeline),
                () = moves.away_from(here), if !leaving => {
                    leaving = true;
                    Ok(())
                }
                // The loop checks the credentials and the breaker before it sends more.
                _ = login.changed() => Ok(()),
                () = node.breaker.until_open(), if takes => Ok(()),
                (batch, flight) = node.queue.take(), if takes => {
                    let calls = self.calls(batch);
                    self.send(&mut connection, &mut pipeline, calls, flight).await
                }
                () = context.runtime.sleep_until(pipeline.alarm(context)), if !pipeline.is_empty() => {
                    self.check_overdue(&mut pipeline)
                }
            }?;
        }
    }

    /// Authenticates with the newest credentials. If Redis rejects them, the connection continues with the old ones.
    async fn reauthenticate(&self, connection: &mut Connection) -> Result<(), ConnectionLost> {
        let warnings = &self.node.context.counters.warnings;
        match self.node.context.runtime.timeout(self.node.context.stall, connection.reauthenticate()).await {
            Ok(Ok(())) => warnings.clear(CREDENTIALS_WARNING),
            Ok(Err(ConnectionError::Refused(why))) => warnings.set(CREDENTIALS_WARNING, why),
            _ => return Err(ConnectionLost),
        }
        Ok(())
    }

    /// Probes until the node answers within the timeout, then closes the breaker.
    async fn probe_until_healthy(&self, connection: &mut Connection) -> Result<(), ConnectionLost> {
        let StoreContext { runtime, timeout, stall, .. } = &*self.node.context;
        while self.node.breaker.is_open() {
            if let Some(_probe) = self.node.breaker.claim_probe() {
                let start = runtime.now();
                let probe = self.node.probe();
                match runtime.timeout_at(start + *stall, probe.run(connection, runtime)).await {
                    Ok(Ok(())) if runtime.now() - start <= *timeout => self.node.breaker.close(),
                    Ok(Ok(())) => {}
                    Ok(Err(ConnectionError::Refused(refusal))) if is_temporary(&refusal) => {}
                    _ => return Err(ConnectionLost),
                }
            }
            if self.node.breaker.is_open() {
                runtime.sleep(PROBE_EVERY).await;
            }
        }
        Ok(())
    }

    /// Groups requests into as few script calls as the topology allows.
    fn calls(&self, batch: Vec<PendingRequest>) -> Vec<ScriptCall> {
        let slot = |request: &Request| if self.node.in_cluster { request.slot() } else { 0 };
        let kind = |waiting: &PendingRequest| -> Option<CallKind> {
            let request = &waiting.request;
            (waiting.group == BatchGroup::Any)
                .then(|| (slot(request), request.operation.needs_other_commands()))
        };
        let sequence = || self.node.context.sequence.fetch_add(1, Ordering::Relaxed);
        // Most flights are one call.
        if batch.iter().all(|waiting| kind(waiting) == Some((0, false))) {
            return vec![ScriptCall::new(sequence(), batch)];
        }
        let mut groups: Vec<(Option<CallKind>, Vec<PendingRequest>)> = Vec::new();
        for waiting in batch {
            let own = kind(&waiting);
            match groups.iter_mut().find(|(of, _)| own.is_some() && *of == own) {
                Some((_, group)) => group.push(waiting),
                None => groups.push((own, vec![waiting])),
            }
        }
        groups.into_iter().map(|(_, group)| ScriptCall::new(sequence(), group)).collect()
    }

    /// Sends the calls as one flight.
    async fn send<'q>(
        &mut self,
        connection: &mut Connection,
        pipeline: &mut Pipeline<'q>,
        calls: Vec<ScriptCall>,
        flight: Flight<'q>,
    ) -> Result<(), ConnectionLost> {
        self.write(&calls);
        let runtime = &self.node.context.runtime;
        pipeline.push(calls, flight, runtime.now());
        let sent = in_time(runtime, self.node.context.stall, connection.send(&self.out)).await;
        sent.map_err(|why| self.fail_all(pipeline, &why))
    }

    fn write(&mut self, calls: &[ScriptCall]) {
        let now_us = self.node.context.time.now_us();
        self.out.clear();
        for call in calls {
            if call.is_asking() {
                write::command(&mut self.out, &[b"ASKING"]);
            }
            call.write(now_us, &mut self.out);
        }
    }

    /// Handles the next reply, or the end of the connection.
    fn on_reply(
        &self,
        reply: Result<Value, ConnectionError>,
        pipeline: &mut Pipeline<'_>,
    ) -> Result<(), ConnectionLost> {
        if pipeline.is_empty() {
            // The connection was closed, or sent bytes unasked, while no call was unanswered.
            return Err(ConnectionLost);
        }
        let now = self.node.context.runtime.now();
        let answered = reply.and_then(|value| pipeline.answer(value, now));
        if let Some(completed) = answered.map_err(|why| self.fail_all(pipeline, &why))? {
            self.deliver(completed, now);
        }
        Ok(())
    }

    /// Counts flights without a reply within the timeout as failures of the node. Closes the connection if it has
    /// stalled.
    fn check_overdue(&self, pipeline: &mut Pipeline<'_>) -> Result<(), ConnectionLost> {
        let now = self.node.context.runtime.now();
        let StoreContext { timeout, stall, .. } = *self.node.context;
        let overdue = pipeline.newly_overdue(now, timeout);
        if overdue > 0 {
            self.node.failed(overdue);
        }
        if pipeline.is_stalled(now, stall) {
            return Err(self.fail_all(pipeline, &ConnectionError::Stalled(stall)));
        }
        Ok(())
    }

    fn deliver(&self, completed: CompletedCall<'_>, now: Instant) {
        let CompletedCall { call, answers, sent_at, .. } = completed;
        let counters = &self.node.context.counters;
        counters.calls.add(1);
        counters.answered.add(call.len() as u64);
        counters.expired_permits.add(answers.expired_permits);
        counters.repairs.add(answers.repairs);
        if now - sent_at <= self.node.context.timeout {
            self.node.breaker.succeed();
        }
        for (waiting, reply) in call.into_waiting().into_iter().zip(answers.replies) {
            waiting.answer(reply);
        }
    }

    /// Fails all calls of a broken connection. They may have run, and so may those that were answered with an error: an
    /// error is trusted only if all replies around it were the expected ones.
    fn fail_all(&self, pipeline: &mut Pipeline<'_>, why: &ConnectionError) -> ConnectionLost {
        let error = match why {
            ConnectionError::InvalidReply(_) | ConnectionError::Foreign | ConnectionError::WrongShape => {
                StoreError::BadResponse(why.to_string().into())
            }
            _ => may_have_run(why.to_string()),
        };
        let rejection = Rejection::Failed(error);
        pipeline.take_all().for_each(|call| call.reject(&rejection));
        self.node.failed(1);
        ConnectionLost
    }

    /// Rejects the calls that Redis answered with errors, and returns those that only need the script's source.
    fn handle_error_replies(
        &self,
        connection: &Connection,
        refused: Vec<(ScriptCall, RefusedCall)>,
    ) -> Result<Vec<ScriptCall>, ConnectionLost> {
        let mut unknown = Vec::new();
        let mut lost = Ok(());
        for (call, RefusedCall { text, wrote }) in refused {
            let reply = ErrorReply::parse(&text, connection.endpoint());
            // The error may be about other requests of the call.
            let may_be_about_one = match reply {
                ErrorReply::Ask { .. } | ErrorReply::TryAgain => true,
                ErrorReply::Refused => wrote != Some(true),
                ErrorReply::Other => wrote == Some(false),
                _ => false,
            };
            if may_be_about_one && call.len() > 1 {
                call.reject(&Rejection::SendAlone);
                continue;
            }
            write_failures::record_error(&self.node, &reply, &text, &call);
            let refusal = match reply {
                ErrorReply::NoScript => {
                    unknown.push(call.with_source());
                    continue;
                }
                ErrorReply::Moved { .. } | ErrorReply::Ask { .. } if !self.node.in_cluster => {
                    let why = format!("{text}: this is a node of a cluster, whose URL is redis-cluster://");
                    self.node.misdirected(why.clone());
                    Rejection::Failed(not_run(why))
                }
                ErrorReply::Moved { to } => Rejection::Moved { to },
                _ if wrote == Some(true) => Rejection::Failed(may_have_run(text)),
                ErrorReply::Ask { to } => Rejection::Ask { to },
                ErrorReply::TryAgain => Rejection::Split,
                ErrorReply::ClusterDown => {
                    self.node.failed(call.len());
                    Rejection::Retry
                }
                ErrorReply::WrongNode => {
                    lost = Err(ConnectionLost);
                    Rejection::Retry
                }
                // Sentinels may know another master by now. In other topologies, dialling again reaches the same node.
                ErrorReply::Unreplicated if self.node.address.may_move() => {
                    lost = Err(ConnectionLost);
                    Rejection::Retry
                }
                ErrorReply::Busy => {
                    self.node.failed(1);
                    Rejection::Failed(not_run(text))
                }
                ErrorReply::Other if wrote.is_none() => Rejection::Failed(may_have_run(text)),
                ErrorReply::Unreplicated | ErrorReply::Refused | ErrorReply::Other => {
                    Rejection::Failed(not_run(text))
                }
            };
            call.reject(&refusal);
        }
        if lost.is_err() {
            // The calls that need the script's source have not run; their callers submit them again.
            unknown.drain(..).for_each(|call| call.reject(&Rejection::Retry));
        }
        lost.map(|()| unknown)
    }
}

/// Whether this error to a probe will pass by itself, so that the connection is kept.
fn is_temporary(refusal: &str) -> bool {
    ["BUSY", "CLUSTERDOWN"].iter().any(|code| refusal.starts_with(code))
}
