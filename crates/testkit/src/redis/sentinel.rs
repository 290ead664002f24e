//! A master, a replica and three sentinels that watch them.

use std::time::Duration;

use super::{RedisReply, RedisServer, RedisServerBuilder, ReplyError};
use crate::wait;

/// How many sentinels must agree that the master is gone.
const QUORUM: usize = 2;
const SENTINELS: usize = 3;

/// How long a master gives no answer before a sentinel considers it dead. Less would take a busy machine for a dead
/// master.
const DOWN_AFTER: Duration = Duration::from_secs(1);

/// A master that can be lost, and the three that notice.
#[derive(Debug)]
pub struct RedisSentinel {
    nodes: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
}

impl RedisSentinel {
    /// The name under which the sentinels know the master.
    pub const MASTER_NAME: &'static str = "spile";

    /// Starts all five, and returns when the replica is in step and every sentinel knows all the others.
    pub fn start() -> Self {
        let master = node().start();
        let replica = node().line(format!("replicaof 127.0.0.1 {}", master.port())).start();
        wait::until_true("the first sync", || in_step(&replica));
        let sentinels = (0..SENTINELS).map(|index| sentinel(index, master.port())).collect();
        let started = Self { nodes: vec![master, replica], sentinels };
        started.wait_until_watched();
        started
    }

    /// `redis-sentinel://…` with every sentinel and the master's name.
    pub fn url(&self) -> String {
        self.url_as("", PASSWORD)
    }

    /// The URL for a user that the sentinels know.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        let (sentinels, name) = (self.addresses().join(","), Self::MASTER_NAME);
        let url = format!("redis-sentinel://:{PASSWORD}@{sentinels}/{name}?sentinel_pass={password}");
        if user.is_empty() { url } else { format!("{url}&sentinel_user={user}") }
    }

    /// Where the sentinels listen.
    pub fn addresses(&self) -> Vec<String> {
        self.sentinels.iter().map(RedisServer::address).collect()
    }

    /// The three that watch.
    pub fn sentinels(&mut self) -> &mut [RedisServer] {
        &mut self.sentinels
    }

    /// The two that are watched: the first master, and its first replica.
    pub fn nodes(&mut self) -> &mut [RedisServer] {
        &mut self.nodes
    }

    /// Which of [`nodes`](Self::nodes) most sentinels take for the master.
    ///
    /// # Panics
    /// Where no sentinel answers.
    pub fn master(&self) -> usize {
        let believed: Vec<_> = self.sentinels.iter().filter_map(master_port).collect();
        let votes = |node: &RedisServer| believed.iter().filter(|&&port| port == node.port()).count();
        let votes: Vec<_> = self.nodes.iter().map(votes).collect();
        assert!(votes.iter().sum::<usize>() > 0, "no sentinel knows a master");
        usize::from(votes[1] > votes[0])
    }

    /// Asks a sentinel to promote the replica although the master is well, and waits until all have switched.
    pub fn fail_over(&self) -> Duration {
        let before = self.master();
        // A sentinel refuses while it has not yet heard from the replica since the last switch.
        let words = ["SENTINEL", "FAILOVER", Self::MASTER_NAME];
        let ask = || self.awake().next().is_some_and(|sentinel| sentinel.try_command(&words).is_ok());
        wait::until_true("a sentinel to start a failover", ask);
        self.wait_for_switch(before)
    }

    /// Waits until every sentinel that answers names another master than `before` and that one takes writes.
    pub fn wait_for_switch(&self, before: usize) -> Duration {
        let next = &self.nodes[1 - before];
        wait::until_true("the sentinels to switch masters", || {
            let switched = |sentinel| master_port(sentinel) == Some(next.port());
            self.awake().all(switched) && role(next) == "master"
        })
    }

    /// Waits until the other node follows the master and is in step with it.
    pub fn wait_for_replica(&self) -> Duration {
        let master = self.master();
        let (master, replica) = (&self.nodes[master], &self.nodes[1 - master]);
        wait::until_true("the replica to be in step", || in_step(replica) && reaches_a_replica(master))
    }

    /// Cuts the master and the first sentinel off from the rest, which replaces that master. Callers still reach
    /// every client: the old master, which takes their writes, and the sentinel that vouches for it. Returns when the rest
    /// has elected another master.
    pub fn split(&self) {
        self.set_links("off");
        let next = &self.nodes[1];
        wait::until_true("the greater part to have a master of its own", || {
            let switched = |sentinel| master_port(sentinel) == Some(next.port());
            self.sentinels[1..].iter().all(switched) && role(next) == "master"
        });
        let behind = master_port(&self.sentinels[0]);
        assert_eq!(behind, Some(self.nodes[0].port()), "the first sentinel is cut off");
    }

    /// Brings the two parts together again.
    pub fn join(&self) {
        self.set_links("on");
        self.wait_for_switch(0);
        self.wait_for_replica();
    }

    /// Lets every link between the parts be made, or cuts it and lets none be made again.
    fn set_links(&self, state: &str) {
        let [master, replica] = &self.nodes[..] else { unreachable!("there are two") };
        let links = [
            (master, watcher(1)),
            (master, watcher(2)),
            (master, PEER.to_owned()),
            (replica, watcher(0)),
            (&self.sentinels[0], PEER.to_owned()),
        ];
        for (server, user) in links {
            server.command(&["ACL", "SETUSER", &user, state]);
            if state == "off" {
                server.command(&["CLIENT", "KILL", "USER", &user]);
            }
        }
    }

    fn awake(&self) -> impl Iterator<Item = &RedisServer> {
        self.sentinels.iter().filter(|sentinel| sentinel.is_awake())
    }

    fn wait_until_watched(&self) {
        self.wait_for_replica();
        wait::until_true("the sentinels to know each other", || self.sentinels.iter().all(knows_all));
    }
}

/// Redis waits five seconds for more replicas before it syncs the first; a test has only one.
pub(super) const SYNC_AT_ONCE: &str = "repl-diskless-sync-delay 0";

/// Whom the servers are to each other, and sentinels among themselves. Callers are the default user.
const PEER: &str = "peer";
const PASSWORD: &str = "among-us";

/// Whom a sentinel is to the servers, so that each can be shut out alone.
fn watcher(index: usize) -> String {
    format!("watcher{index}")
}

fn user(name: &str) -> String {
    format!("user {name} on >{PASSWORD} ~* &* +@all")
}

fn node() -> RedisServerBuilder {
    let builder = RedisServer::builder().password(PASSWORD).line(SYNC_AT_ONCE).line(user(PEER));
    (0..SENTINELS)
        .fold(builder, |builder, index| builder.line(user(&watcher(index))))
        .line(format!("masteruser {PEER}"))
        .line(format!("masterauth {PASSWORD}"))
}

fn sentinel(index: usize, master_port: u16) -> RedisServer {
    let name = RedisSentinel::MASTER_NAME;
    let sentinel = RedisServer::builder()
        .sentinel()
        .password(PASSWORD)
        .line(user(PEER))
        .line(format!("sentinel sentinel-user {PEER}"))
        .line(format!("sentinel sentinel-pass {PASSWORD}"))
        .line(format!("sentinel monitor {name} 127.0.0.1 {master_port} {QUORUM}"))
        .line(format!("sentinel auth-user {name} {}", watcher(index)))
        .line(format!("sentinel auth-pass {name} {PASSWORD}"))
        .line(format!("sentinel down-after-milliseconds {name} {}", DOWN_AFTER.as_millis()))
        .line(format!("sentinel failover-timeout {name} 3000"))
        .line(format!("sentinel parallel-syncs {name} 1"))
        .start();
    // A sentinel asks its servers every ten seconds and greets the others every two; a test cannot wait that long to
    // be introduced. How a failover itself is timed stays as it ships.
    sentinel.command(&["SENTINEL", "DEBUG", "INFO-PERIOD", "500", "PUBLISH-PERIOD", "200"]);
    sentinel
}

fn master_port(sentinel: &RedisServer) -> Option<u16> {
    let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", RedisSentinel::MASTER_NAME];
    let reply = sentinel.asked_if_awake(&words)?;
    reply.list().get(1)?.text().parse().ok()
}

fn knows_all(sentinel: &RedisServer) -> bool {
    let count = |what| sentinel.command(&["SENTINEL", what, RedisSentinel::MASTER_NAME]).list().len();
    count("SENTINELS") == SENTINELS - 1 && count("REPLICAS") == 1
}

/// The role that the server reports; empty if it does not answer.
pub(super) fn role(server: &RedisServer) -> String {
    let reply = server.asked_if_awake(&["ROLE"]);
    reply.and_then(|reply| reply.list().first().map(RedisReply::text).map(str::to_owned)).unwrap_or_default()
}

pub(super) fn in_step(replica: &RedisServer) -> bool {
    replica.is_awake() && replica.info("replication", "master_link_status").as_deref() == Some("up")
}

/// Whether what the master writes arrives at a replica. A replica says that its link is up up to a second before the
/// master begins to stream to it, and what is written in between would be lost with the master.
pub(super) fn reaches_a_replica(master: &RedisServer) -> bool {
    // On a cluster each master takes a third of all keys, so one of a few is its own.
    (0..64).any(|number| written_through(master, &format!("probe:{number}")).unwrap_or(false))
}

fn written_through(master: &RedisServer, key: &str) -> Result<bool, ReplyError> {
    let mut connection = master.connect()?;
    connection.command(&["SET", key, "1"])?;
    connection.command(&["DEL", key])?;
    Ok(connection.command(&["WAIT", "1", "100"])?.int() > 0)
}
