//! The access log of the real binary: set by the file, rotated by a signal, and whole when the process ends.

use std::io::{Read, Write};
use std::net::TcpListener;

use rustix::process::Signal;
use spile_testkit::wait;

use super::serve;
use crate::support::Process;

/// Answers every request with 200 and two bytes, on a connection of its own.
fn upstream() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port 0 is always free");
    let address = listener.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _read = stream.read(&mut [0; 4_096]);
            let _answered =
                stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok");
        }
    });
    address
}

fn config(settings: &str) -> String {
    format!(
        "[gateway.access_log]\n{settings}\n[[routes]]\npath = \"/\"\nupstream = \"http://{}\"\n",
        upstream()
    )
}

fn ask(spile: &Process, path: &str) -> String {
    spile.ask("gateway", "GET", path, "")
}

#[test]
fn logrotate_renames_the_file_sends_a_hangup_and_no_line_is_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let spile = serve(folder.path(), &config("file = \"access.log\""));
    let (file, old) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let lines = |path| std::fs::read_to_string(path).unwrap_or_default().lines().count();
    assert!(ask(&spile, "/one").starts_with("HTTP/1.1 200"));
    wait::until_true("the first line", || lines(&file) == 1);
    std::fs::rename(&file, &old).expect("the folder is ours");
    spile.send(Signal::HUP);
    wait::until_true("a new file", || file.exists());
    ask(&spile, "/two");
    let (status, _) = spile.end_by(Signal::TERM);
    assert!(status.success());
    assert_eq!((lines(&old), lines(&file)), (1, 1), "the last line is written before the end");
}

#[test]
fn with_json_asked_for_the_access_log_on_stdout_is_json_like_all_the_rest() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("spile.toml");
    std::fs::write(&path, config("sample = 1.0")).expect("the folder is ours");
    let path = path.to_str().expect("the folder's name is text");
    let spile = Process::serve(&[
        "--config",
        path,
        "--gateway",
        "127.0.0.1:0",
        "--log-format",
        "json",
        "--log-level",
        "debug",
    ]);
    let answer = ask(&spile, "/scores?api_key=hunter2");
    let banner = spile.banner.clone();
    wait::until_true("the line is counted", || spile.metric("gateway_access_log_lines_total") == Some(1.0));
    spile.send(Signal::TERM);
    spile.until_logged("stopped");
    let log = spile.log();
    let (_, printed) = spile.end_by(Signal::TERM);
    for line in [banner.as_str(), log.as_str(), printed.as_str()].iter().flat_map(|text| text.lines()) {
        let read: Result<serde_json::Value, _> = serde_json::from_str(line);
        assert!(read.is_ok_and(|line| line["timestamp"].is_string()), "{line}");
    }
    let line: serde_json::Value = serde_json::from_str(printed.trim_end()).expect("one line");
    assert_eq!(
        (&line["path"], &line["bytes"], &line["rule"]),
        (&"/scores".into(), &2.into(), &"default".into())
    );
    assert!(answer.contains(line["request_id"].as_str().expect("an id")), "{answer}");
    assert!(!printed.contains("hunter2") && !log.contains("hunter2"), "{printed}{log}");
}

#[test]
fn a_dead_upstream_is_a_line_with_the_id_of_the_request_and_the_cause_and_ejected_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = "[[routes]]\npath = \"/\"\nupstream = \"http://127.0.0.1:1\"\n";
    let spile = serve(folder.path(), config);
    // Fewer than the plan of strangers allows, and more than it takes to eject an upstream.
    let answers: Vec<String> = (0..9).map(|_| ask(&spile, "/a")).collect();
    assert!(answers.iter().all(|answer| answer.starts_with("HTTP/1.1 502")));
    spile.until_logged("upstream ejected");
    let log = spile.log();
    assert_eq!(log.matches("upstream ejected").count(), 1, "{log}");
    let ejected = log.lines().find(|line| line.contains("upstream ejected")).expect("it was logged");
    assert!(ejected.contains("5 attempts in a row failed") && ejected.contains("refused"), "{ejected}");
    let first = log.lines().find(|line| line.contains("status=502")).expect("it was logged");
    let (_, id) = answers[0].split_once("x-request-id: ").expect("an id");
    let id = id.split('\r').next().expect("an end");
    assert!(first.contains(id) && first.contains("upstream=\"127.0.0.1:1\""), "{first}");
    assert!(first.contains("Connection refused"), "{first}");
}
