//! Decisions in Redis: what they cost its CPU, how many there are and how long one takes, side by side in one run.
//!
//! `cargo run --profile dist -p spile-bench --bin redis`. The rivals of npm and Maven
//! need their libraries first: `npm install --prefix bench/redis` and `mvn -q -f bench/redis dependency:copy-dependencies`.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the real clock")]

mod load;
mod rivals;
mod spile;

use spile_bench::{Table, median};
use spile_testkit::redis::RedisServer;

use crate::load::{Cost, Load};

const ROUNDS: usize = 3;

#[tokio::main]
async fn main() {
    let server = RedisServer::start();
    let load = |callers, decisions, keys| Load { callers, decisions, keys };
    let (alone, many, crowd) = (load(1, 10_000, 100), load(64, 100_000, 100), load(512, 100_000, 20));
    let hot = load(64, 100_000, 0);
    let mut rows: Vec<Row> = Vec::new();
    for round in 0..ROUNDS {
        let mut add = |name, cost| Row::add(&mut rows, name, cost);
        add("a bare EVALSHA, 1 caller", Some(rivals::multiplexed(&server, alone).await));
        add("(c) Spile, 1 caller", Some(spile::spile(&server, alone, 1).await));
        add("(a) a call each, own connections, 64 callers", Some(rivals::pooled(&server, many).await));
        add("(b) a call each, multiplexed, 64 callers", Some(rivals::multiplexed(&server, many).await));
        add("(c) Spile, 64 callers", Some(spile::spile(&server, many, 1).await));
        add("(c) Spile, 512 callers", Some(spile::spile(&server, crowd, 1).await));
        add("(b) one hot key, multiplexed, 64 callers", Some(rivals::multiplexed(&server, hot).await));
        add("(d) Spile, one hot key, 64 callers", Some(spile::spile(&server, hot, 1).await));
        add("(e) Spile, chains of 3, 64 callers", Some(spile::spile(&server, many, 3).await));
        add("trypema, 64 callers", Some(rivals::trypema(&server, many).await));
        add("rate-limiter-flexible, 64 callers", rivals::rate_limiter_flexible(&server, many));
        add("bucket4j, 64 callers", rivals::bucket4j(&server, many));
        // Its compare-and-swap fails as often as other callers win.
        add("bucket4j, one hot key, 64 callers", rivals::bucket4j(&server, load(64, 6_400, 0)));
        eprintln!("round {} of {ROUNDS}: done", round + 1);
    }
    print(&rows);
}

/// One way of deciding and what each round of it cost.
struct Row {
    name: &'static str,
    costs: Vec<Cost>,
}

impl Row {
    fn add(rows: &mut Vec<Self>, name: &'static str, cost: Option<Cost>) {
        let Some(cost) = cost else { return };
        match rows.iter_mut().find(|row| row.name == name) {
            Some(row) => row.costs.push(cost),
            None => rows.push(Self { name, costs: vec![cost] }),
        }
    }

    fn median(&self, figure: impl Fn(&Cost) -> f64) -> f64 {
        median(self.costs.iter().map(figure).collect())
    }
}

fn print(rows: &[Row]) {
    let cpu_of = |name: &str| {
        rows.iter()
            .find(|row| row.name.starts_with(name))
            .map_or(f64::NAN, |row| row.median(|cost| cost.cpu_us))
    };
    let (pooled, shared) = (cpu_of("(a)"), cpu_of("(b) a call"));
    let head = ["who", "Redis CPU µs/decision", "× of (a)", "× of (b)", "decisions/s", "median latency µs"];
    let mut table = Table::new(&head);
    for row in rows {
        let cpu = row.median(|cost| cost.cpu_us);
        table.row([
            row.name.to_owned(),
            format!("{cpu:.2}"),
            format!("{:.2}", cpu / pooled),
            format!("{:.2}", cpu / shared),
            format!("{:.0}", row.median(|cost| cost.rate)),
            format!("{:.0}", row.median(|cost| cost.latency_us)),
        ]);
    }
    println!("{table}");
}
