//! File descriptors: as many as the system allows, and some of them for probes.

use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

use crate::support::Process;

const IDLE: usize = 300;

#[test]
fn idle_connections_do_not_silence_the_admin_listener_of_a_process_with_few_descriptors() {
    for (limit, flags, listeners) in [
        (256, &["--resp", "127.0.0.1:0", "--gateway", "127.0.0.1:0"][..], &["http", "resp", "gateway"][..]),
        (256, &["--grpc", "127.0.0.1:0"], &["grpc"]),
        (128, &[], &["http"]),
    ] {
        let spile = Process::serve_with_descriptors(limit, limit, flags);
        // Beyond the bound of a listener connections wait in its backlog, until that is full, too.
        let connect = |number: usize| {
            let address = spile.address(listeners[number % listeners.len()]).parse().expect("an address");
            TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok()
        };
        let idle: Vec<TcpStream> = (0..IDLE).map_while(connect).collect();
        for path in ["/livez", "/readyz", "/metrics"] {
            let answer = spile.ask_with("admin", "GET", path, &[], "");
            assert!(answer.starts_with("HTTP/1.1 200"), "{limit} {path}: {answer}");
        }
        spile.until_logged(&format!("this process may open {limit}"));
        assert!(idle.len() > 64, "{}", idle.len());
    }
}

#[test]
fn as_many_descriptors_are_used_as_the_system_allows() {
    let spile = Process::serve_with_descriptors(64, 4_096, &[]);
    assert_eq!(spile.metric("process_max_fds"), Some(4_096.0));
    let idle: Vec<TcpStream> = (0..IDLE).map(|_| spile.connect("http")).collect();
    let answer = spile.ask("http", "POST", "/v1/check", r#"{"ruleId": "default", "identity": "user:1"}"#);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    for mut stream in idle {
        stream.set_read_timeout(Some(Duration::from_millis(1))).expect("a socket");
        let still_open = stream.read(&mut [0]).expect_err("it is open and silent");
        assert_eq!(still_open.kind(), std::io::ErrorKind::WouldBlock);
    }
}
