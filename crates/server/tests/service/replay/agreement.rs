//! A replay decides as a server did: the same requests at the same times, asked of a real gateway and of forward-auth.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use http::Method;
use spile_core::SystemClock;
use spile_server::Config;

use super::LogFolder;
use crate::support::Spile;

/// Requests that are asked of each door.
const REQUESTS: u64 = 400;
const API_KEY: &str = "k-acme";

const CONFIG: &str = r#"
[clients]
trusted_proxies = ["127.0.0.1/32"]
[plans]
free = { capacity = 3, refill = "2/s" }
five = { capacity = 5, refill = "1/s" }
tiny = { capacity = 1, refill = "1/m" }
billed = { quota = 4, per = "minute", zone = "Asia/Kathmandu" }
[plans.gold]
limits = [{ name = "burst", capacity = 4, refill = "4/s" }, { name = "minute", capacity = 20, refill = "20/m" }]
[[rules]]
id = "default"
plans = "tenant"
anonymous_plan = "free"
[[rules]]
id = "writes"
match = { path = "/scores/*", methods = ["POST"] }
key = ["tenant+path", "ip+path"]
plans = ["five"]
cost = 2
also = ["all"]
[[rules]]
id = "all"
match = { path = "/everything" }
key = ["literal:all"]
plans = ["gold"]
[[rules]]
id = "who"
match = { path = "/who" }
key = ["header:x-who"]
plans = ["five", "billed"]
[[rules]]
id = "watched"
match = { path = "/watched" }
mode = "shadow"
plans = ["tiny"]
[[rules]]
id = "shut"
match = { path = "/shut" }
plans = "banned"
[[tenants]]
id = "acme"
plan = "gold"
api_keys = ["HASH"]
"#;

/// Numbers that a seed decides.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % sides
    }

    fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize].clone()
    }
}

/// One request, as it is sent and as it is logged.
struct Asked {
    method: Method,
    path: &'static str,
    headers: Vec<(&'static str, &'static str)>,
}

fn asked(dice: &mut Dice) -> Asked {
    let paths = [
        "/",
        "/scores/7",
        "/scores/7/",
        "//scores/./8",
        "/who",
        "/watched",
        "/shut",
        "/a%2Fb",
        "/everything",
    ];
    let addresses = ["203.0.113.7", "203.0.113.8", "2001:db8::1", "2001:db8::2, 127.0.0.1"];
    let mut headers = vec![("x-forwarded-for", dice.of(&addresses))];
    match dice.below(6) {
        0 | 1 => headers.push(("x-api-key", API_KEY)),
        2 => headers.push(("x-api-key", "a guess")),
        _ => {}
    }
    if dice.below(2) == 0 {
        headers.push(("x-who", dice.of(&["ann", "bob"])));
    }
    Asked { method: dice.of(&[Method::GET, Method::POST]), path: dice.of(&paths), headers }
}

impl Asked {
    fn log(&self, log: &mut String, micros: u64) {
        let (Self { method, path, .. }, seconds, rest) = (self, micros / 1_000_000, micros % 1_000_000);
        let _ = write!(
            log,
            r#"{{"ts":{seconds}.{rest:06},"remote_addr":"127.0.0.1:9","method":"{method}","uri":"{path}""#
        );
        for (name, value) in &self.headers {
            let _ = write!(log, r#","{name}":"{value}""#);
        }
        log.push_str("}\n");
    }
}

/// What a server's answer means, in the words of the CSV. `None` if the request may pass.
const fn meaning(status: u16) -> Option<&'static str> {
    match status {
        429 => Some("limited"),
        401 | 403 => Some("refused"),
        _ => None,
    }
}

/// The lines of the log that are limited or refused, by the replay.
fn replayed(log: &str, config: &str) -> Vec<(u64, String)> {
    let folder = LogFolder::new(log, config);
    let csv = folder.path("limited.csv");
    let headers = ["x-forwarded-for", "x-api-key", "x-who"].map(|name| format!("{name}={name}"));
    let flags: Vec<&str> = headers.iter().flat_map(|header| ["--header", header]).collect();
    folder.prints(&[&flags[..], &["--csv", &csv]].concat());
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        (fields[2].parse().expect("the number of a line"), fields[3].to_owned())
    };
    let rows = folder.read("limited.csv").lines().skip(1).map(row).collect::<Vec<_>>();
    assert!(rows.iter().any(|(_, outcome)| outcome == "would_limit"), "rules in shadow mode are told of");
    rows.into_iter().filter(|(_, outcome)| outcome != "would_limit").collect()
}

/// Asks a server each of some random requests at random times, and the replay about its log.
async fn agrees(config: &str, door: impl Fn(&Spile) -> SocketAddr, by_forward_auth: bool) {
    let seed = std::env::var("SPILE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| SystemClock::wall_now().get());
    println!("SPILE_SEED={seed}");
    let hash = spile_policy::ApiKeyHash::of(API_KEY.as_bytes()).to_string();
    let config = config.replace("HASH", &hash);
    let parsed = Config::parse(Path::new("spile.toml"), config.clone(), []);
    let spile = Spile::start_with(parsed.unwrap_or_else(|why| panic!("{why}"))).await;
    let (mut dice, mut log, mut expected) = (Dice(seed), String::new(), Vec::new());
    let mut micros = Spile::START.get();
    for line in 1..=REQUESTS {
        // Often at the same moment, sometimes after a second or two.
        let pause = match dice.below(4) {
            0 => 0,
            1..3 => dice.below(200_000),
            _ => dice.below(2_000_000),
        };
        spile.advance(Duration::from_micros(pause));
        micros += pause;
        let asked = asked(&mut dice);
        asked.log(&mut log, micros);
        let mut headers = asked.headers.clone();
        let (method, path) = if by_forward_auth {
            headers.extend([("x-original-method", asked.method.as_str()), ("x-original-uri", asked.path)]);
            (Method::GET, "/v1/auth")
        } else {
            (asked.method.clone(), asked.path)
        };
        let answer = spile.send_to(door(&spile), method, path, &headers, "").await;
        expected.extend(meaning(answer.status.as_u16()).map(|word| (line, word.to_owned())));
    }
    assert!(expected.len() > 20 && expected.len() < 380, "{} of {REQUESTS} were limited", expected.len());
    assert_eq!(replayed(&log, &config), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_requests_are_decided_as_forward_auth_decided_them() {
    agrees(CONFIG, |spile| spile.http, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_requests_are_decided_as_the_gateway_decided_them() {
    // Nothing listens there: a request that may pass is answered with 502.
    let routes = r#"
[[routes]]
path = "/"
upstream = "http://127.0.0.1:1"
[[routes.limits]]
id = "of-route"
match = { methods = ["GET"] }
key = ["ip"]
plans = ["five"]
[listen]
gateway = "127.0.0.1:0"
"#;
    agrees(&format!("{CONFIG}{routes}"), |spile| spile.gateway.expect("it is on"), false).await;
}
