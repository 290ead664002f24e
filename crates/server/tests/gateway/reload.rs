//! A file that changes while the gateway runs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use jsonwebtoken::{EncodingKey, Header};
use spile_core::Clock;

use crate::support::{Spile, echo, listening};

const OPEN: &str = "[plans.free]\ncapacity = 1000000\nrefill = \"1000000/s\"\n\
    [[rules]]\nid = \"default\"\nplans = [\"free\"]\n";

fn write(path: &Path, routes: &str) {
    std::fs::write(path, listening(&format!("{OPEN}{routes}"))).expect("a file");
}

fn route(path: &str, upstream: std::net::SocketAddr) -> String {
    format!("[[routes]]\npath = \"{path}\"\nupstream = \"http://{upstream}\"\n")
}

#[tokio::test]
async fn a_reload_changes_routes_and_a_bad_file_changes_none() {
    let (one, two) = (echo("one").await, echo("two").await);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("spile.toml");
    write(&path, &route("/one", one));
    let spile = Spile::load(&path).await;
    assert_eq!(spile.get("/two", &[]).await.status, 404);
    write(&path, &route("/two", two));
    assert_eq!(spile.reload().await.status, 200);
    assert_eq!(spile.get("/two", &[]).await.json()["upstream"], "two");
    assert_eq!(spile.get("/one", &[]).await.status, 404);
    write(&path, &(route("/one", one) + "retries = 9\n"));
    let refused = spile.reload().await;
    assert!(refused.status == 422 && refused.body.contains("9 is out of bounds"), "{refused:?}");
    assert_eq!(spile.get("/two", &[]).await.status, 200, "what worked still works");
}

#[tokio::test]
async fn a_reload_reads_the_keys_of_tokens_again_though_no_file_looks_any_different() {
    let one = echo("one").await;
    let folder = tempfile::tempdir().expect("a folder");
    let (path, key_file) = (folder.path().join("spile.toml"), folder.path().join("secret"));
    let secrets = ["the secret of yesterday, long enough", "the secret of this day, long enough."];
    std::fs::write(&key_file, secrets[0]).expect("a file");
    let written = std::fs::metadata(&key_file).expect("a file").modified().expect("a time");
    let jwt = format!("[gateway.jwt]\nkey_file = {:?}\nkeys = \"secret\"\n", key_file.display().to_string());
    write(&path, &(jwt + &route("/", one) + "require_api_key = true\n"));
    let spile = Spile::load(&path).await;
    let expiry = spile.clock.now().get() / 1_000_000 + 1_000;
    let tokens = secrets.map(|secret| {
        let key = EncodingKey::from_secret(secret.as_bytes());
        let claims = serde_json::json!({"sub": "ada", "exp": expiry});
        format!("Bearer {}", jsonwebtoken::encode(&Header::default(), &claims, &key).expect("a token"))
    });
    let status = async |token: &str| spile.get("/", &[("authorization", token)]).await.status;
    assert_eq!([status(&tokens[0]).await, status(&tokens[1]).await], [200, 401]);
    std::fs::write(&key_file, secrets[1]).expect("a file");
    std::fs::File::options()
        .write(true)
        .open(&key_file)
        .expect("a file")
        .set_modified(written)
        .expect("a time");
    assert_eq!(spile.reload().await.status, 200);
    assert_eq!([status(&tokens[0]).await, status(&tokens[1]).await], [401, 200]);
}

#[tokio::test]
async fn a_page_for_refusals_is_read_again_by_a_reload() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("spile.toml");
    let page = folder.path().join("404.html");
    std::fs::write(&page, "one").expect("a file");
    write(
        &path,
        "[gateway.refusals]\nnot_found = { body_file = \"404.html\", content_type = \"text/html\" }\n",
    );
    let spile = Spile::load(&path).await;
    let lost = spile.get("/", &[]).await;
    assert_eq!((lost.status, lost.header("content-type"), &*lost.body), (404, Some("text/html"), "one"));
    std::fs::write(&page, "two").expect("a file");
    assert_eq!(spile.reload().await.status, 200);
    assert_eq!(spile.get("/", &[]).await.body, "two");
}

#[tokio::test]
async fn a_plan_may_go_with_the_route_that_named_it() {
    let one = echo("one").await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("spile.toml");
    let limit = "[[routes.limits]]\nid = \"few\"\nplans = [\"few\"]\n";
    write(&path, &format!("[plans.few]\ncapacity = 2\nrefill = \"1/min\"\n{}{limit}", route("/", one)));
    let spile = Spile::load(&path).await;
    for status in [200, 200, 429] {
        assert_eq!(spile.get("/", &[]).await.status, status);
    }
    write(&path, &route("/", one));
    assert_eq!(spile.reload().await.status, 200);
    assert_eq!(spile.get("/", &[]).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_across_fifty_reloads_of_routes_plans_and_limits() {
    let (one, two) = (echo("one").await, echo("two").await);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("spile.toml");
    write(&path, &route("/", one));
    let spile = Arc::new(Spile::load(&path).await);
    let (done, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut callers = Vec::new();
    for _ in 0..4 {
        let (spile, done, answered) = (Arc::clone(&spile), Arc::clone(&done), Arc::clone(&answered));
        callers.push(tokio::spawn(async move {
            while !done.load(Ordering::Relaxed) {
                let answer = spile.get("/", &[]).await;
                assert_eq!(answer.status, 200, "{answer:?}");
                answered.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    for turn in 0..50 {
        let plan = format!("[plans.extra{turn}]\ncapacity = 1000000\nrefill = \"1000000/s\"\n");
        let limit = format!("[[routes.limits]]\nid = \"extra\"\nplans = [\"extra{turn}\"]\n");
        write(&path, &[plan, route("/", if turn % 2 == 0 { two } else { one }), limit].concat());
        assert_eq!(spile.reload().await.status, 200);
    }
    done.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.expect("a caller whose every request was answered");
    }
    assert!(answered.load(Ordering::Relaxed) > 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_finds_the_routes_of_one_configuration_and_the_rules_of_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("spile.toml");
    let sides = [("one", echo("one").await, 1_000_001), ("two", echo("two").await, 1_000_002)];
    let write = |side: usize| {
        let (_, upstream, capacity) = sides[side];
        let plan = format!("[plans.p]\ncapacity = {capacity}\nrefill = \"1000000/s\"\n");
        let rule = "[[rules]]\nid = \"default\"\nplans = [\"p\"]\n";
        std::fs::write(&path, listening(&[&plan, rule, &route("/", upstream)].concat())).expect("a file");
    };
    write(0);
    let spile = Arc::new(Spile::load(&path).await);
    let done = Arc::new(AtomicBool::new(false));
    let mut callers = Vec::new();
    for _ in 0..4 {
        let (spile, done) = (Arc::clone(&spile), Arc::clone(&done));
        callers.push(tokio::spawn(async move {
            let mut seen = [0; 2];
            while !done.load(Ordering::Relaxed) {
                let answer = spile.get("/", &[]).await;
                let side = usize::from(answer.json()["upstream"] == sides[1].0);
                let limit = answer.header("x-ratelimit-limit").map(str::to_owned);
                assert_eq!(limit, Some(sides[side].2.to_string()), "{answer:?}");
                seen[side] += 1;
            }
            seen
        }));
    }
    for turn in 1..=100 {
        write(turn % 2);
        assert_eq!(spile.reload().await.status, 200);
    }
    done.store(true, Ordering::Relaxed);
    for caller in callers {
        let seen = caller.await.expect("a caller who found each answer in step");
        assert!(seen.iter().all(|&answers| answers > 0), "{seen:?}");
    }
}

#[tokio::test]
async fn series_go_with_their_route_and_go_on_when_it_comes_back() {
    let upstream = echo("one").await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("spile.toml");
    let dead = "[[routes]]\nname = \"dead\"\npath = \"/dead\"\nupstream = \"http://127.0.0.1:1\"\nretries = 0\n\
        adaptive = true\nconcurrency = { per_upstream = 2 }\n";
    write(&path, &(route("/", upstream) + dead));
    let spile = Spile::load(&path).await;
    assert_eq!(spile.get("/dead", &[]).await.status, 502);
    let failed = "gateway_upstream_failures_total{route=\"dead\",reason=\"unreachable\"} 1\n";
    let metrics = spile.metrics().await;
    assert!(metrics.contains(failed) && metrics.contains("gateway_queue_depth{route=\"dead\""), "{metrics}");

    write(&path, &route("/", upstream));
    assert_eq!(spile.reload().await.status, 200);
    let metrics = spile.metrics().await;
    assert!(!metrics.contains("dead"), "{metrics}");
    assert!(
        metrics.contains(&format!("gateway_upstream_up{{route=\"/\",upstream=\"{upstream}\"}} 1")),
        "{metrics}"
    );

    write(&path, &(route("/", upstream) + &dead.replace("adaptive = true\n", "")));
    assert_eq!(spile.reload().await.status, 200);
    let metrics = spile.metrics().await;
    assert!(
        metrics.contains(failed) && !metrics.contains("gateway_adaptive_factor{route=\"dead\""),
        "{metrics}"
    );
}
