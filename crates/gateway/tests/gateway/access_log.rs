//! The access log: what a line says, what it never says, and that it stays one line.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use spile_core::FakeClock;
use spile_gateway::{AccessLogFormat, AccessLogSettings, Gateway, GatewayBuilder, Route};
use spile_memory::MemoryStore;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::{
    Backend, RawBackend, by_tenant_or_address, changeable, exchange, limiter_on, metered, open, plan,
    policy_for, running, tenant, text, to, until,
};

const KEY: &str = "acme-key-9f8e7d6c";

type Builder = GatewayBuilder<MemoryStore<Arc<FakeClock>>>;

/// A gateway with one tenant, whose plan allows two requests, in front of this backend.
fn limited(backend: &Backend) -> Builder {
    let plans = [plan("free", 100, 1), plan("tiny", 2, 1)];
    let policy = policy_for(plans, [by_tenant_or_address("api")], [tenant("acme", "tiny", KEY)]);
    Gateway::builder(limiter_on(&FakeClock::default()))
        .route(to(backend.upstream()).named("all"))
        .policy(policy)
}

fn settings(file: &Path, format: AccessLogFormat) -> AccessLogSettings {
    let mut settings = AccessLogSettings::default();
    (settings.file, settings.format) = (Some(file.to_owned()), format);
    settings
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

/// Waits until the log has so many lines.
async fn lines(file: &Path, count: usize) -> Vec<String> {
    until("lines of the access log", || async { read(file).lines().count() >= count }).await;
    let text = read(file);
    assert_eq!(text.lines().count(), count, "{text}");
    text.lines().map(str::to_owned).collect()
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"))
}

#[tokio::test]
async fn a_line_tells_who_asked_what_was_decided_and_how_it_ended() {
    let (backend, folder) = (Backend::start(|_| text("twelve bytes")).await, TempDir::new().unwrap());
    let file = folder.path().join("access.log");
    let gateway = running(limited(&backend).access_log(settings(&file, AccessLogFormat::Json))).await;
    let fields =
        [("x-api-key", KEY), ("user-agent", "test/1"), ("referer", "https://a.example/x?token=secret")];
    for _ in 0..2 {
        gateway.get("/scores/7?token=secret", &fields).await;
    }
    let denied = gateway.get("/scores/7", &fields).await;
    assert_eq!(denied.status, 429);
    let lines = lines(&file, 3).await;
    let first = json(&lines[0]);
    for (name, expected) in [
        ("client", "127.0.0.1"),
        ("method", "GET"),
        ("path", "/scores/7"),
        ("protocol", "HTTP/1.1"),
        ("user_agent", "test/1"),
        ("referer", "https://a.example/x"),
        ("route", "all"),
        ("upstream", backend.address.to_string().as_str()),
        ("rule", "api"),
        ("limit", "tiny"),
        ("decision", "ok"),
        ("tenant", "acme"),
    ] {
        assert_eq!(first[name], expected, "{name}: {first}");
    }
    assert_eq!((&first["status"], &first["bytes"]), (&200.into(), &12.into()));
    let last = json(&lines[2]);
    assert_eq!(
        (&last["status"], &last["decision"], &last["cause"]),
        (&429.into(), &"limited".into(), &"over the limit".into())
    );
    assert_eq!(last["bytes"], denied.body.len());
    assert_eq!(last["request_id"].as_str(), denied.header("x-request-id"));
    assert_eq!(last["upstream"], Value::Null, "it was not forwarded");
    let log = read(&file);
    assert!(!log.contains(KEY) && !log.contains("secret"), "{log}");
}

#[tokio::test]
async fn text_lines_begin_in_the_combined_format() {
    let (backend, folder) = (Backend::start(|_| text("hello")).await, TempDir::new().unwrap());
    let file = folder.path().join("access.log");
    let mut settings = settings(&file, AccessLogFormat::Text);
    settings.query = true;
    let gateway = running(limited(&backend).access_log(settings)).await;
    gateway.get("/a?b=c", &[("x-api-key", KEY)]).await;
    let line = &lines(&file, 1).await[0];
    assert!(line.starts_with("127.0.0.1 - acme ["), "{line}");
    assert!(line.contains("] \"GET /a?b=c HTTP/1.1\" 200 5 \"-\" \"-\" duration_ms="), "{line}");
    assert!(line.ends_with("rule=api limit=tiny decision=ok tenant=acme"), "{line}");
}

#[tokio::test]
async fn a_sample_leaves_out_what_went_well_and_never_what_was_denied_or_failed() {
    let (backend, folder) = (Backend::start(|_| text("fine")).await, TempDir::new().unwrap());
    let file = folder.path().join("access.log");
    let mut settings = settings(&file, AccessLogFormat::Json);
    settings.sample = 0.0;
    let dead = RawBackend::saying(b"").await;
    let builder = limited(&backend).route(Route::new("/dead", [dead.upstream()]).unwrap());
    let gateway = running(builder.access_log(settings)).await;
    for _ in 0..3 {
        gateway.get("/", &[("x-api-key", KEY)]).await;
    }
    assert_eq!(gateway.get("/dead", &[]).await.status, 502);
    let lines = lines(&file, 2).await;
    let statuses: Vec<Value> = lines.iter().map(|line| json(line)["status"].clone()).collect();
    assert_eq!(statuses, [429, 502]);
    let failed = json(&lines[1]);
    assert_eq!(failed["upstream"], dead.address.to_string().as_str(), "the upstream that was tried");
    assert_eq!(failed["cause"], "the service gave no valid response");
}

#[tokio::test]
async fn a_client_cannot_forge_a_line_or_steer_a_terminal() {
    for format in [AccessLogFormat::Text, AccessLogFormat::Json] {
        let (backend, folder) = (Backend::start(|_| text("a")).await, TempDir::new().unwrap());
        let file = folder.path().join("access.log");
        let gateway = running(open(to(backend.upstream())).access_log(settings(&file, format))).await;
        // Bytes below a space, apart from the tab, are refused before there is a request to log.
        let request = b"GET /a%0Ab%1B[2J HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\
            user-agent: \" 200 1\x9b31m\xff\xfe\tx\r\nreferer: \"},{\"status\":200\r\n\r\n";
        exchange(gateway.address, request).await;
        let line = &lines(&file, 1).await[0];
        assert!(!line.contains(|letter: char| letter.is_control()), "{line:?}");
        if format == AccessLogFormat::Json {
            let read = json(line);
            assert_eq!(read["user_agent"], "\" 200 1\\x9B31m\\xFF\\xFE\tx", "{line}");
            assert_eq!(read["referer"], "\"},{\"status\":200", "{line}");
        } else {
            assert!(line.contains("\"\\x22 200 1\\x9B31m\\xFF\\xFE\\x09x\""), "{line}");
            assert_eq!(line.matches('"').count(), 8, "those of four fields, the cause among them: {line}");
        }
    }
}

#[tokio::test]
async fn a_file_that_was_renamed_is_let_go_when_the_log_is_opened_again() {
    let (backend, folder) = (Backend::start(|_| text("a")).await, TempDir::new().unwrap());
    let (file, old) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let builder = open(to(backend.upstream())).access_log(settings(&file, AccessLogFormat::Json));
    let (running, gateway) = changeable(builder).await;
    running.get("/one", &[]).await;
    lines(&file, 1).await;
    std::fs::rename(&file, &old).unwrap();
    running.get("/two", &[]).await;
    lines(&old, 2).await;
    gateway.reopen_access_log();
    until("a new file", || async { file.exists() }).await;
    running.get("/three", &[]).await;
    assert_eq!(json(&lines(&file, 1).await[0])["path"], "/three");
    assert_eq!(read(&old).lines().count(), 2);
}

#[tokio::test]
async fn a_client_that_leaves_before_the_response_is_logged_as_499() {
    let (asked, mut arrived) = tokio::sync::mpsc::unbounded_channel();
    let backend = RawBackend::start(move |stream| {
        let asked = asked.clone();
        async move {
            asked.send(()).unwrap();
            std::future::pending::<()>().await;
            drop(stream);
        }
    })
    .await;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("access.log");
    let builder = open(to(backend.upstream())).access_log(settings(&file, AccessLogFormat::Json));
    let gateway = running(builder).await;
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    arrived.recv().await.unwrap();
    drop(client);
    assert_eq!(json(&lines(&file, 1).await[0])["status"], 499);
}

#[tokio::test]
async fn a_log_that_cannot_be_opened_is_an_error_at_the_start_that_names_the_file() {
    let backend = Backend::start(|_| text("a")).await;
    let file = Path::new("/nowhere/access.log");
    let built = open(to(backend.upstream())).access_log(settings(file, AccessLogFormat::Text)).build();
    let why = built.expect_err("there is no such folder").to_string();
    assert!(why.contains("/nowhere/access.log"), "{why}");
}

#[tokio::test]
async fn lines_are_counted() {
    let (backend, folder) = (Backend::start(|_| text("a")).await, TempDir::new().unwrap());
    let file = folder.path().join("access.log");
    let builder = open(to(backend.upstream())).access_log(settings(&file, AccessLogFormat::Text));
    let (gateway, metrics) = metered(builder).await;
    gateway.get("/", &[]).await;
    until("a counted line", || async { metrics.count("gateway_access_log_lines_total") == 1 }).await;
    assert_eq!(metrics.count("gateway_access_log_dropped_total queue_full"), 0);
}
