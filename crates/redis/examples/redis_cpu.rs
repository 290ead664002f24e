//! Microseconds of Redis CPU per decision.
use std::sync::Arc;
use std::time::{Duration, Instant};
use spile_core::*;
use spile_redis::RedisStore;
use spile_testkit::redis::RedisServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PLAIN: &str = r"
local b = redis.call('HMGET', KEYS[1], 't', 'ts')
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local cap, rate, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local t, ts = tonumber(b[1]), tonumber(b[2])
if not t then t, ts = cap, now end
local a = math.min(cap, t + math.floor(math.max(0, now - ts) * rate))
if a < cost then return {0, a} end
redis.call('HSET', KEYS[1], 't', a - cost, 'ts', math.max(ts, now))
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {1, a - cost}";

fn cmd(parts: &[&[u8]]) -> Vec<u8> {
    let mut o = format!("*{}\r\n", parts.len()).into_bytes();
    for p in parts { o.extend(format!("${}\r\n", p.len()).bytes()); o.extend_from_slice(p); o.extend(b"\r\n"); }
    o
}
// each reply of PLAIN is "*2\r\n:1\r\n:N\r\n": count lines
async fn read_lines(s: &mut TcpStream, mut lines: usize) {
    let mut buf = [0u8; 65536];
    while lines > 0 { let n = s.read(&mut buf).await.unwrap(); lines -= buf[..n].iter().filter(|b| **b == b'\n').count().min(lines); }
}
fn cpu(s: &RedisServer) -> f64 { s.cpu_seconds() }

#[tokio::main]
async fn main() {
    let server = RedisServer::start();
    let sha = server.command(&["SCRIPT", "LOAD", PLAIN]).text().to_owned();
    let per: usize = std::env::var("N").ok().and_then(|n| n.parse().ok()).unwrap_or(2000);
    let keys: usize = std::env::var("KEYS").ok().and_then(|n| n.parse().ok()).unwrap_or(10);
    let report = |name: &str, n: usize, c: f64, t: Duration| println!("{name:36} {:6.2} us cpu  {:8.0}/s  {:6.1} us each", c * 1e6 / n as f64, n as f64 / t.as_secs_f64(), t.as_secs_f64()*1e6/n as f64);
    for round in 0..2 {
        // a
        let c = cpu(&server); let t = Instant::now(); let mut js = vec![];
        for w in 0..64usize { let sha = sha.clone(); let addr = server.address(); js.push(tokio::spawn(async move {
            let mut s = TcpStream::connect(addr).await.unwrap(); s.set_nodelay(true).unwrap();
            for i in 0..per { let k = format!("a:{{user{w}-{}}}:free", i % keys); s.write_all(&cmd(&[b"EVALSHA", sha.as_bytes(), b"1", k.as_bytes(), b"1000000000000", b"50", b"1000000", b"4000"])).await.unwrap(); read_lines(&mut s, 3).await; }
        })); }
        for j in js { j.await.unwrap(); }
        report("(a) pooled 64", 64 * per, cpu(&server) - c, t.elapsed());
        // b
        let c = cpu(&server); let t = Instant::now();
        let mut s = TcpStream::connect(server.address()).await.unwrap(); s.set_nodelay(true).unwrap();
        for i in 0..per { let mut out = vec![]; for w in 0..64 { let k = format!("b:{{user{w}-{}}}:free", i % keys); out.extend(cmd(&[b"EVALSHA", sha.as_bytes(), b"1", k.as_bytes(), b"1000000000000", b"50", b"1000000", b"4000"])); } s.write_all(&out).await.unwrap(); read_lines(&mut s, 192).await; }
        report("(b) pipelined 64", 64 * per, cpu(&server) - c, t.elapsed());
        // lone bare
        let c = cpu(&server); let t = Instant::now();
        for i in 0..per*4 { let k = format!("l:{{user{}}}:free", i % (64*keys)); s.write_all(&cmd(&[b"EVALSHA", sha.as_bytes(), b"1", k.as_bytes(), b"1000000000000", b"50", b"1000000", b"4000"])).await.unwrap(); read_lines(&mut s, 3).await; }
        report("lone bare evalsha", 4 * per, cpu(&server) - c, t.elapsed());
        // spile
        for conns in [1usize, 1, 2] {
            let store = Arc::new(RedisStore::builder(server.url()).connections(conns).timeout(Duration::from_secs(2)).prefix(format!("s{round}{conns}")).build().unwrap());
            for (name, callers, hot, chain) in [("lone", 1usize, false, 1usize), ("(c) 64", 64, false, 1), ("(c) 512", 512, false, 1), ("(d) hot 64", 64, true, 1), ("(e) chain of 3, 64", 64, false, 3)] {
                let per = if callers == 512 { per / 4 } else if callers == 1 { per * 4 } else { per };
                let before = store.stats(); let c = cpu(&server); let t = Instant::now(); let mut js = vec![];
                for w in 0..callers { let store = store.clone(); js.push(tokio::spawn(async move {
                    let limit = Limit::per_second(1_000_000).burst(1_000_000).build().unwrap();
                    let named: Vec<_> = (0..chain).map(|n| NamedLimit::new(LimitName::new(&format!("l{n}")).unwrap(), limit)).collect();
                    for i in 0..per {
                        let k = if hot { "hot".to_owned() } else { format!("user{w}-{}", i % keys) };
                        let key = Key::new(&k).unwrap();
                        let ch = Charges::new(named.iter().map(|n| Charge::new(key, n.clone(), Cost::ONE).unwrap())).unwrap();
                        store.spend(&ch).await.unwrap();
                    }
                })); }
                for j in js { j.await.unwrap(); }
                let after = store.stats();
                report(&format!("{name} conns {conns} batch {:.1}", (after.answered - before.answered) as f64 / (after.calls - before.calls) as f64), callers * per, cpu(&server) - c, t.elapsed());
            }
        }
    }
}
