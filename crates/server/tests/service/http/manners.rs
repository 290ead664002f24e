//! How the real process behaves towards callers who do not: bounds on connections, headers, bodies and time.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use spile_testkit::wait;

use crate::support::Process;

const PING: &str = "GET /api/ping HTTP/1.1\r\nhost: localhost\r\n\r\n";
/// Long enough for an answer that was going to come.
const SOON: Duration = Duration::from_millis(300);

/// The status line of the next answer, and the rest of it as long as its length says.
fn read_answer(caller: &mut TcpStream) -> std::io::Result<String> {
    let (mut answer, mut byte) = (Vec::new(), [0]);
    while !answer.ends_with(b"\r\n\r\n") {
        caller.read_exact(&mut byte)?;
        answer.extend(byte);
    }
    let head = String::from_utf8_lossy(&answer).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    caller.read_exact(&mut body)?;
    Ok(head + &String::from_utf8_lossy(&body))
}

fn rest_of(mut caller: TcpStream) -> String {
    let mut rest = Vec::new();
    // A connection that is reset has ended too.
    let _ended = caller.read_to_end(&mut rest);
    String::from_utf8_lossy(&rest).into_owned()
}

#[test]
fn more_connections_than_there_is_room_for_wait_their_turn() {
    let spile = Process::serve_with(&[], &[("SPILE_LISTEN__MAX_CONNECTIONS", "3")]);
    let mut held: Vec<TcpStream> = (0..3).map(|_| spile.connect("http")).collect();
    for caller in &mut held {
        caller.write_all(PING.as_bytes()).expect("it reads");
        assert!(read_answer(caller).expect("it answers").contains(" 200 ok"));
    }
    let mut fourth = spile.connect("http");
    fourth.write_all(PING.as_bytes()).expect("the kernel takes it");
    fourth.set_read_timeout(Some(SOON)).expect("it is a socket");
    let waits = fourth.peek(&mut [0]).expect_err("nobody answers").kind();
    assert!(matches!(waits, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{waits:?}");
    fourth.set_read_timeout(Some(wait::PATIENCE)).expect("it is a socket");
    held.pop();
    assert!(read_answer(&mut fourth).expect("there is room").contains(" 200 ok"));
}

#[test]
fn a_caller_that_does_not_finish_its_header_is_cut_off() {
    let spile = Process::serve_with(&[], &[("SPILE_LISTEN__HEADER_TIMEOUT", "200ms")]);
    for begun in ["", "GET /api/ping HTTP/1.1\r\nhost: lo"] {
        let mut caller = spile.connect("http");
        caller.write_all(begun.as_bytes()).expect("it reads");
        let answer = rest_of(caller);
        assert!(!answer.contains(" 200 "), "{begun:?} got {answer}");
    }
    let mut idle = spile.connect("http");
    idle.write_all(PING.as_bytes()).expect("it reads");
    assert!(read_answer(&mut idle).expect("it answers").contains(" 200 ok"));
    assert_eq!(rest_of(idle), "", "an idle connection is not kept for ever");
}

#[test]
fn headers_and_bodies_that_are_too_large_are_refused_by_status() {
    let spile = Process::serve(&[]);
    let long = "x".repeat(100 * 1024);
    let answer = spile.ask_with("http", "GET", "/api/ping", &[("x-long", &long)], "");
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let many: Vec<_> = (0..200).map(|_| ("x-many", "1")).collect();
    let answer = spile.ask_with("http", "GET", "/api/ping", &many, "");
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let body = format!("{{\"identity\":\"{long}\",\"plans\":[\"free\"]}}");
    let answer = spile.ask("http", "POST", "/v1/check", &body);
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(spile.ask("http", "GET", "/api/ping", "").starts_with("HTTP/1.1 200"), "and it goes on");
}

#[test]
fn as_many_threads_answer_as_were_asked_for() {
    let count = |workers: &str| {
        let spile = Process::serve(&["--workers", workers]);
        spile.ask("http", "GET", "/api/ping", "");
        spile.threads("spile-worker")
    };
    assert_eq!((count("1"), count("5")), (1, 5));
}

#[test]
fn every_answer_that_was_begun_under_load_is_finished_before_the_end() {
    let spile = Process::serve(&[]);
    let (address, begun) = (spile.address("http").to_owned(), Arc::new(AtomicBool::new(false)));
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let (address, begun) = (address.clone(), Arc::clone(&begun));
            std::thread::spawn(move || {
                let mut answered = 0;
                while let Ok(mut caller) = TcpStream::connect(&address) {
                    caller.set_read_timeout(Some(wait::PATIENCE)).expect("it is a socket");
                    // Several on one connection, until the server takes no more.
                    while caller.write_all(PING.as_bytes()).is_ok()
                        && caller.peek(&mut [0]).is_ok_and(|n| n > 0)
                    {
                        let answer = read_answer(&mut caller).expect("what was begun is finished");
                        assert!(answer.contains(" 200 ") || answer.contains(" 429 "), "{answer}");
                        answered += 1;
                        begun.store(answered > 100, Ordering::Relaxed);
                    }
                }
                answered
            })
        })
        .collect();
    wait::until_true("a load", || begun.load(Ordering::Relaxed));
    let (status, _) = spile.end_by(Signal::TERM);
    assert_eq!(status.code(), Some(0));
    let answered: u32 = callers.into_iter().map(|caller| caller.join().expect("no answer was cut")).sum();
    assert!(answered > 100, "{answered}");
}

#[test]
fn logs_are_text_or_one_json_object_a_line_and_never_name_a_key() {
    for format in ["text", "json"] {
        let spile = Process::serve_with(&["--log-format", format], &[("SPILE_ADMIN_TOKEN", Process::TOKEN)]);
        for _ in 0..12 {
            spile.ask("http", "POST", "/v1/check", "{\"identity\":\"somebody\",\"plans\":[\"free\"]}");
        }
        spile.ask("admin", "DELETE", "/admin/v1/buckets/somebody?plan=free", "");
        spile.until_logged("changed");
        let log = spile.log();
        assert!(!log.contains("somebody"), "{log}");
        let line = log.lines().find(|line| line.contains("changed")).expect("it was logged");
        let json: Result<serde_json::Value, _> = serde_json::from_str(line);
        assert_eq!(json.is_ok(), format == "json", "{line}");
        if let Ok(json) = json {
            let name = json["name"].as_str().unwrap_or_default();
            assert!(name.starts_with('#') && name.len() > 8, "the key is hashed: {line}");
            assert_eq!((&json["action"], &json["level"]), (&"reset".into(), &"INFO".into()), "{line}");
            assert!(log.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{log}");
        }
    }
}

#[test]
fn the_banner_names_the_dashboard_and_the_admin_listener() {
    let spile = Process::serve(&[]);
    let admin = spile.address("admin").to_owned();
    assert!(spile.banner.contains(&format!("http://{admin}/dashboard")), "{}", spile.banner);
    assert!(spile.ask("admin", "GET", "/dashboard", "").starts_with("HTTP/1.1 200"));
}
