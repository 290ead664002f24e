//! What the standalone fixture promises to the tests that rely on it.

use spile_testkit::redis::{Flavour, RedisReply, RedisServer, ReplyError};

fn version(server: &RedisServer, field: &str) -> String {
    server.info("server", field).expect("a version")
}

#[test]
fn every_flavour_starts_and_is_the_version_it_says() {
    for flavour in Flavour::ALL {
        let server = RedisServer::builder().flavour(flavour).start();
        let (field, expected) = match flavour {
            Flavour::Redis7 => ("redis_version", "7."),
            Flavour::Redis62 => ("redis_version", "6.2."),
            Flavour::Valkey9 => ("valkey_version", "9."),
        };
        let version = version(&server, field);
        assert!(version.starts_with(expected), "{flavour:?} is {version}");
    }
}

#[test]
fn two_servers_share_neither_port_nor_data() {
    let (one, other) = (RedisServer::start(), RedisServer::start());
    one.command(&["SET", "key", "value"]);
    assert_ne!(one.port(), other.port());
    assert_eq!(one.command(&["GET", "key"]), RedisReply::Text("value".into()));
    assert_eq!(other.command(&["GET", "key"]), RedisReply::Nil);
}

#[test]
fn a_dropped_server_leaves_no_process_and_no_folder() {
    let server = RedisServer::start();
    let (folder, pid) = (server.folder().to_owned(), server.pid());
    drop(server);
    assert!(!folder.exists());
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn a_frozen_server_answers_once_it_is_thawed() {
    let server = RedisServer::start();
    server.freeze();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| server.command(&["PING"]));
        server.thaw();
        assert_eq!(asked.join().expect("no panic"), RedisReply::Text("PONG".into()));
    });
}

#[test]
fn a_killed_server_comes_back_empty_on_the_same_port() {
    let mut server = RedisServer::start();
    let port = server.port();
    server.command(&["SET", "key", "value"]);
    server.kill();
    assert!(matches!(server.try_command(&["PING"]), Err(ReplyError::Io(_))));
    server.restart();
    assert_eq!(server.port(), port);
    assert_eq!(server.command(&["GET", "key"]), RedisReply::Nil);
}

#[test]
fn a_password_is_asked_of_everybody_and_stands_in_the_url() {
    let server = RedisServer::builder().password("s3cret").start();
    assert_eq!(server.url(), format!("redis://:s3cret@127.0.0.1:{}", server.port()));
    assert_eq!(server.command(&["ACL", "WHOAMI"]), RedisReply::Text("default".into()));
}

#[test]
fn an_extra_line_reaches_the_server() {
    let server = RedisServer::builder().line("maxmemory-policy noeviction").line("maxmemory 5mb").start();
    assert_eq!(server.command(&["CONFIG", "GET", "maxmemory"]).list()[1].int(), 5 * 1024 * 1024);
}

#[test]
fn a_refusal_carries_the_words_of_the_server() {
    let server = RedisServer::start();
    server.command(&["LPUSH", "list", "a"]);
    let refused = server.try_command(&["GET", "list"]).expect_err("a list is no string");
    assert!(refused.to_string().starts_with("WRONGTYPE"), "{refused}");
}

#[test]
fn work_shows_in_the_cpu_time() {
    let server = RedisServer::start();
    let before = server.cpu_seconds();
    server.command(&["EVAL", "local n = 0; for i = 1, 5000000 do n = n + i end; return n", "0"]);
    assert!(server.cpu_seconds() > before);
}

#[test]
fn the_server_listens_on_its_port_and_its_socket() {
    let server = RedisServer::start();
    std::net::TcpStream::connect(server.address()).expect("the port");
    std::os::unix::net::UnixStream::connect(server.socket()).expect("the socket");
}

#[test]
fn a_tls_server_answers_nobody_who_speaks_plainly() {
    use std::io::{Read, Write};

    let server = RedisServer::builder().tls().start();
    assert!(server.url().starts_with("rediss://"));
    let mut plain = std::net::TcpStream::connect(server.address()).expect("the port");
    plain.write_all(b"PING\r\n").expect("a sent ping");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("PONG"));
}

#[test]
fn a_tls_server_makes_the_three_files_that_a_client_needs() {
    let server = RedisServer::builder().tls_for_known_clients().start();
    let made = server.certificates();
    for file in [made.authority_file(), made.client_certificate_file(), made.client_key_file()] {
        let pem = std::fs::read_to_string(&file).expect("a file");
        assert!(pem.starts_with("-----BEGIN "), "{}", file.display());
    }
}
