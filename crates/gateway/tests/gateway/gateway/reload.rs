//! Settings that are replaced while requests are served: all at once or not at all, without failed requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use spile_gateway::{HealthCheck, Route, RouteConcurrency, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{Backend, RawBackend, changeable, open, text, to, until};

fn settings(route: Route) -> Settings {
    Settings::new().route(route)
}

#[tokio::test]
async fn a_new_route_serves_the_next_request_and_an_old_one_is_gone() {
    let (left, right) = (Backend::start(|_| text("left")).await, Backend::start(|_| text("right")).await);
    let (running, gateway) = changeable(open(Route::new("/left", [left.upstream()]).unwrap())).await;
    let mut client = running.client().await;
    assert_eq!(client.get("/left", &[]).await.body, "left");
    gateway.replace(settings(Route::new("/right", [right.upstream()]).unwrap())).unwrap();
    assert_eq!(client.get("/right", &[]).await.body, "right");
    assert_eq!(client.get("/left", &[]).await.status, 404);
}

#[tokio::test]
async fn settings_that_cannot_be_served_change_nothing() {
    let backend = Backend::friendly().await;
    let (running, gateway) = changeable(open(to(backend.upstream()))).await;
    let lame = Route::new("/lame", []).unwrap();
    let why = gateway.replace(settings(to(backend.upstream())).route(lame)).unwrap_err();
    assert!(why.to_string().contains("/lame"), "{why}");
    assert_eq!(running.get("/", &[]).await.status, 200);
    assert_eq!(running.get("/lame", &[]).await.status, 200, "the old route for everything still has it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_across_a_hundred_reloads_under_load() {
    let (left, right) = (Backend::start(|_| text("left")).await, Backend::start(|_| text("right")).await);
    let (running, gateway) = changeable(open(to(left.upstream()))).await;
    let (done, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut callers = Vec::new();
    for _ in 0..8 {
        let (mut client, done, answered) = (running.client().await, Arc::clone(&done), Arc::clone(&answered));
        callers.push(tokio::spawn(async move {
            while !done.load(Ordering::Relaxed) {
                let answer = client.ask("POST", "/", &[], "a body").await;
                assert_eq!(answer.status, 200, "{answer:?}");
                answered.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    for turn in 0..100 {
        let upstream = if turn % 2 == 0 { right.upstream() } else { left.upstream() };
        let mut cap = RouteConcurrency::default();
        cap.per_upstream = 4 + turn % 3;
        gateway.replace(settings(to(upstream).concurrency(cap))).unwrap();
        let before = answered.load(Ordering::Relaxed);
        until("requests between two reloads", || async { answered.load(Ordering::Relaxed) > before }).await;
    }
    done.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.expect("a caller whose every request was answered");
    }
    assert!(!left.seen().is_empty() && !right.seen().is_empty());
}

#[tokio::test]
async fn connections_to_an_upstream_that_stays_are_kept() {
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    let backend = RawBackend::start(move |mut stream| {
        count.fetch_add(1, Ordering::Relaxed);
        async move {
            let mut some = [0; 4096];
            while stream.read(&mut some).await.is_ok_and(|bytes| bytes > 0) {
                let _said = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            }
        }
    })
    .await;
    let (running, gateway) = changeable(open(to(backend.upstream()))).await;
    let mut client = running.client().await;
    for path in ["/a", "/b", "/c"] {
        assert_eq!(client.get(path, &[]).await.status, 200);
        let elsewhere = Route::new(path, [backend.upstream()]).unwrap().named("moved");
        gateway.replace(settings(to(backend.upstream()).retries(0)).route(elsewhere)).unwrap();
    }
    assert_eq!(client.get("/c", &[]).await.status, 200);
    assert_eq!(accepted.load(Ordering::Relaxed), 1, "one connection serves before, between and after");
}

#[tokio::test]
async fn checks_follow_the_settings_and_what_they_found_is_not_forgotten() {
    let sick = Backend::start(|seen| {
        let mut answer = text("sick");
        if seen.target == "/health" {
            *answer.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
        }
        answer
    })
    .await;
    let well = Backend::start(|_| text("well")).await;
    let both = || Route::new("/", [sick.upstream(), well.upstream()]).unwrap();
    let mut check = HealthCheck::new("/health".parse().unwrap());
    (check.interval, check.unhealthy_after) = (std::time::Duration::from_millis(20), 2);
    let (running, gateway) = changeable(open(both())).await;
    gateway.replace(settings(both().health_check(check.clone()))).unwrap();
    until("the check to take the sick upstream out", || async {
        let mut client = running.client().await;
        let answers = [client.get("/", &[]).await.body, client.get("/", &[]).await.body];
        answers == ["well", "well"]
    })
    .await;
    gateway.replace(settings(both().retries(0).health_check(check))).unwrap();
    let mut client = running.client().await;
    for _ in 0..4 {
        assert_eq!(client.get("/", &[]).await.body, "well", "a reload does not make it well");
    }
    gateway.replace(settings(both())).unwrap();
    let answers = [client.get("/", &[]).await.body, client.get("/", &[]).await.body];
    assert!(answers.contains(&"sick".into()), "nobody would ever bring it back: {answers:?}");
}
