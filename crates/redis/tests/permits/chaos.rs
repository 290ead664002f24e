//! Breaks processes and Redis while permits are taken.

use std::io::{PipeWriter, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use spile_testkit::redis::{RedisCluster, RedisSentinel, RedisServer};
use spile_testkit::wait;

use crate::judge::{Judge, Row};
use crate::{HOLD_MS, KEYS, LIMIT, PERMITS, worker};

const INSTANCES: usize = 3;
const HOLD: Duration = Duration::from_millis(HOLD_MS);

pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&'static str, u64) -> Row,
}

pub(crate) fn all() -> [Scenario; 4] {
    [
        Scenario { name: "one Redis, frozen now and then", run: standalone },
        Scenario { name: "cluster: graceful failovers", run: failovers },
        Scenario { name: "cluster: slots that move", run: slot_moves },
        Scenario { name: "sentinel: failovers that may lose writes", run: sentinel },
    ]
}

fn standalone(name: &'static str, acquisitions: u64) -> Row {
    let server = RedisServer::start();
    let fleet = Fleet::start(&server.url(), PERMITS as usize);
    let mut random = Rng::new();
    while fleet.acquired() < acquisitions {
        server.freeze();
        wait::lasting(Duration::from_millis(random.u64(..HOLD_MS / 3)));
        server.thaw();
        wait::lasting(Duration::from_millis(random.u64(..400)));
    }
    fleet.end(name, |key| held(&server, key))
}

/// A graceful failover loses nothing.
fn failovers(name: &'static str, acquisitions: u64) -> Row {
    in_cluster(name, acquisitions, |cluster, slot, _| {
        cluster.wait_until_whole();
        // While the last failover spreads, there may be none.
        let Some(replica) = cluster.try_replica_of(slot) else { return };
        cluster.nodes()[replica].command(&["CLUSTER", "FAILOVER"]);
        // On a busy machine the masters may vote too late. Then it stays as it was.
        let _switched = wait::within(HOLD, || is_master(&cluster.nodes()[replica]));
    })
}

fn slot_moves(name: &'static str, acquisitions: u64) -> Row {
    in_cluster(name, acquisitions, |cluster, slot, random| {
        // While the last move spreads, there may be none.
        let Some(master) = cluster.try_master_of(slot) else { return };
        let masters = (0..cluster.nodes().len()).filter(|node| is_master(&cluster.nodes()[*node]));
        let others: Vec<_> = masters.filter(|node| *node != master).collect();
        cluster.move_slot(slot, others[random.usize(..others.len())]);
    })
}

fn in_cluster(name: &'static str, acquisitions: u64, change: impl Fn(&RedisCluster, u16, &mut Rng)) -> Row {
    let cluster = RedisCluster::start();
    let fleet = Fleet::start(&cluster.url(), PERMITS as usize);
    let mut random = Rng::new();
    while fleet.acquired() < acquisitions {
        let slot = cluster.slot_of(&set(random.usize(..KEYS)));
        change(&cluster, slot, &mut random);
        wait::lasting(Duration::from_millis(random.u64(100..500)));
    }
    cluster.wait_until_whole();
    fleet.end(name, |key| held(&cluster.nodes()[cluster.master_of(cluster.slot_of(&set(key)))], key))
}

/// What had not reached the replica is forgotten: its holders are still at work, and as many others may be let in.
fn sentinel(name: &'static str, acquisitions: u64) -> Row {
    let mut sentinel = RedisSentinel::start();
    let fleet = Fleet::start(&sentinel.url(), 2 * PERMITS as usize);
    while fleet.acquired() < acquisitions {
        wait::lasting(Duration::from_millis(500));
        sentinel.wait_for_replica();
        let before = sentinel.master();
        let words = ["SENTINEL", "FAILOVER", RedisSentinel::MASTER_NAME];
        let asked = sentinel.sentinels()[0].try_command(&words);
        // On a busy machine the sentinels may agree too late. Then it stays as it was.
        let _switched = asked.is_ok() && wait::within(5 * HOLD, || sentinel.master() != before);
    }
    let master = sentinel.master();
    fleet.end(name, |key| held(&sentinel.nodes()[master], key))
}

fn is_master(node: &RedisServer) -> bool {
    node.info("replication", "role").as_deref() == Some("master")
}

/// The key of the sorted set.
fn set(key: usize) -> String {
    format!("spile:{{user%3A{key}}}:permits:{LIMIT}")
}

/// How many permits of a key have not ended, by Redis's own clock.
fn held(server: &RedisServer, key: usize) -> usize {
    let time = server.command(&["TIME"]);
    let now = format!("({}{:0>6}", time.list()[0].text(), time.list()[1].text());
    let count = server.command(&["ZCOUNT", &set(key), &now, "+inf"]);
    usize::try_from(count.int()).expect("a count")
}

/// Three processes, two of which are killed or suspended now and then.
struct Fleet {
    acquired: Arc<AtomicU64>,
    most: usize,
    breaking: thread::JoinHandle<Vec<Instance>>,
    stop: Arc<AtomicU64>,
    judge: thread::JoinHandle<Judge>,
}

struct Instance {
    process: Child,
}

impl Fleet {
    fn start(url: &str, most: usize) -> Self {
        let (events, writer) = std::io::pipe().expect("a pipe");
        let (acquired, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let told = Arc::clone(&acquired);
        let judge = thread::spawn(move || {
            Judge::read(events, most, |acquired| told.store(acquired, Ordering::Relaxed))
        });
        let (url, stopped) = (url.to_owned(), Arc::clone(&stop));
        let breaking = thread::spawn(move || break_instances(&url, &writer, &stopped));
        Self { acquired, most, breaking, stop, judge }
    }

    fn acquired(&self) -> u64 {
        self.acquired.load(Ordering::Relaxed)
    }

    /// Ends all processes, and looks for what is left after the hold time.
    fn end(self, name: &'static str, held: impl FnMut(usize) -> usize) -> Row {
        self.stop.store(1, Ordering::Relaxed);
        for mut instance in self.breaking.join().expect("no thread panics") {
            drop(instance.process.stdin.take());
            instance.process.wait().expect("it ends");
        }
        let Judge { acquired, highest, lost, breaches, .. } = self.judge.join().expect("no thread panics");
        wait::lasting(HOLD);
        let left = (0..KEYS).map(held).sum();
        let leak = (left > 0).then(|| format!("{left} permits are left after the hold time"));
        let breaches = breaches.into_iter().chain(leak).collect();
        Row { name, most: self.most, acquired, highest, lost, left, breaches }
    }
}

impl Instance {
    fn start(url: &str, events: &PipeWriter, seed: u64) -> Self {
        let program = std::env::current_exe().expect("this program");
        let process = Command::new(program)
            .args([worker::ROLE, url, &seed.to_string()])
            .stdin(Stdio::piped())
            .stdout(events.try_clone().expect("another end of the pipe"))
            .stderr(Stdio::null())
            .spawn();
        Self { process: process.expect("it starts") }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.process.id().to_string()]).status();
        assert!(sent.expect("kill is there").success());
    }
}

/// Nothing is left behind if the test fails, also if it is suspended.
impl Drop for Instance {
    fn drop(&mut self) {
        let _ended = self.process.kill().and_then(|()| self.process.wait());
    }
}

/// Kills, suspends and replaces processes until it is told to stop. What happens is told in the order in which it did.
fn break_instances(url: &str, events: &PipeWriter, stop: &AtomicU64) -> Vec<Instance> {
    let mut random = Rng::new();
    let mut seed = random.u64(..1_000_000);
    let mut instances: Vec<_> =
        (0..INSTANCES as u64).map(|at| Instance::start(url, events, seed + at)).collect();
    let mut events_writer = events;
    let mut tell = |what: char, process: u32| {
        let line = format!("{what} {process}\n");
        events_writer.write_all(line.as_bytes()).expect("the judge reads");
    };
    while stop.load(Ordering::Relaxed) == 0 {
        wait::lasting(Duration::from_millis(random.u64(200..600)));
        // The first one is left alone, so that work goes on.
        let at = random.usize(1..INSTANCES);
        let process = instances[at].process.id();
        match random.u32(..3) {
            0 => {
                instances[at].signal("-KILL");
                instances[at].process.wait().expect("it ends");
                tell('K', process);
                seed += 100;
                instances[at] = Instance::start(url, events, seed);
            }
            1 => {
                // Not long enough to lose anything.
                instances[at].signal("-STOP");
                wait::lasting(Duration::from_millis(HOLD_MS / 4));
                instances[at].signal("-CONT");
            }
            _ => {
                instances[at].signal("-STOP");
                // Its last renewal was at most a third of the hold time ago.
                wait::lasting(HOLD * 6 / 10);
                tell('K', process);
                wait::lasting(HOLD);
                instances[at].signal("-CONT");
                // What it took just before it was suspended may be told only now.
                wait::lasting(HOLD / 10);
                tell('C', process);
            }
        }
    }
    instances
}
