//! Credentials that are tried out: an address may be wrong a few times.

use std::net::SocketAddr;
use std::path::Path;

use spile_server::Config;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::Spile;

const SECRET: &str = "correct horse battery staple";
/// More than an address may try, and less than comes back while a test runs.
const TRIES: usize = 200;
const ALLOWED: usize = 60;

async fn guarded() -> Spile {
    let text = "[[rules]]\nid = \"default\"\nplans = [\"enterprise\"]\n\
        [[tenants]]\nid = \"acme\"\nplan = \"pro\"\napi_keys = [\"sha256:11e4dcc80caa45fc55fdf186fb7bd394d9a5920354d8ba4e965f701ad1f92068\"]\n\
        [[routes]]\npath = \"/\"\nupstream = \"http://127.0.0.1:1\"\n";
    let variables = [("SPILE_ADMIN_TOKEN", SECRET), ("SPILE_RESP_PASSWORD", SECRET)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut config = Config::parse(Path::new("spile.toml"), text.to_owned(), variables).expect("it works");
    let any = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    (config.listen.resp, config.listen.gateway) = (any, any);
    Spile::start_with(config).await
}

/// A connection from this address of the machine.
async fn from(own: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::from((own, 0))).expect("all of 127.0.0.0/8 is this machine");
    socket.connect(to).await.expect("it listens")
}

/// The status of an answer to a request that carries this field.
async fn status(own: [u8; 4], to: SocketAddr, path: &str, field: &str) -> u16 {
    let mut stream = from(own, to).await;
    let request = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n{field}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    answer[9..12].parse().expect("a status")
}

const GUESSER: [u8; 4] = [127, 0, 0, 9];
const OTHER: [u8; 4] = [127, 0, 0, 8];

#[tokio::test]
async fn the_admin_token_cannot_be_guessed_at_will() {
    let spile = guarded().await;
    let mut wrong = 0;
    for number in 0..TRIES {
        let field = format!("authorization: Bearer guess-{number}");
        match status(GUESSER, spile.admin, "/admin/v1/plans", &field).await {
            401 => wrong += 1,
            status => assert_eq!(status, 429),
        }
    }
    assert!(wrong <= ALLOWED, "{wrong} guesses were looked at");
    let right = format!("authorization: Bearer {SECRET}");
    let path = "/admin/v1/plans";
    for address in [GUESSER, OTHER] {
        assert_eq!(status(address, spile.admin, path, &right).await, 200);
    }
    let field = "authorization: Bearer one more";
    assert_eq!(status(GUESSER, spile.admin, path, field).await, 429, "the right one changes nothing");
    assert_eq!(status(OTHER, spile.admin, path, field).await, 401);
    assert_eq!(status(GUESSER, spile.admin, "/livez", "x: y").await, 200, "and what is open stays open");
}

#[tokio::test]
async fn an_old_token_that_is_sent_again_and_again_shuts_no_operator_out() {
    let spile = guarded().await;
    for _ in 0..TRIES {
        let field = "authorization: Bearer last-years-token";
        assert_eq!(status(GUESSER, spile.admin, "/admin/v1/plans", field).await, 401);
    }
    let right = format!("authorization: Bearer {SECRET}");
    assert_eq!(status(GUESSER, spile.admin, "/admin/v1/plans", &right).await, 200);
}

#[tokio::test]
async fn right_credentials_pass_whatever_strangers_at_their_address_guess() {
    let spile = guarded().await;
    let (gateway, resp) = (spile.gateway.expect("it is on"), spile.resp.expect("it is on"));
    let token = format!("authorization: Bearer {SECRET}");
    let key = "x-api-key: acme-key-of-32-bytes-for-the-test";
    let bearer = "authorization: Bearer acme-key-of-32-bytes-for-the-test";
    for second in 0..30 {
        for number in 0..5 {
            let guess = format!("a guess of some length {second}-{number}");
            status(GUESSER, gateway, "/", &format!("x-api-key: {guess}")).await;
            status(GUESSER, spile.admin, "/admin/v1/plans", &format!("authorization: Bearer {guess}")).await;
        }
        assert_eq!(
            status(GUESSER, gateway, "/", key).await,
            502,
            "it reaches the upstream, which is not there"
        );
        assert_eq!(status(GUESSER, gateway, "/", bearer).await, 502);
        assert_eq!(status(GUESSER, spile.admin, "/admin/v1/plans", &token).await, 200);
        let mut stream = BufReader::new(from(GUESSER, resp).await);
        stream.write_all(format!("AUTH \"{SECRET}\"\r\n").as_bytes()).await.expect("it reads");
        let mut line = String::new();
        stream.read_line(&mut line).await.expect("an answer");
        assert_eq!(line, "+OK\r\n");
    }
}

#[tokio::test]
async fn a_secret_that_is_short_enough_to_be_found_is_not_checked_while_its_address_guesses() {
    let variables = [("SPILE_ADMIN_TOKEN".to_owned(), "hunter2".to_owned())];
    let config = Config::parse(Path::new("spile.toml"), String::new(), variables).expect("it works");
    let spile = Spile::start_with(config).await;
    let (path, right) = ("/admin/v1/plans", "authorization: Bearer hunter2");
    assert_eq!(status(GUESSER, spile.admin, path, right).await, 200);
    for number in 0..TRIES {
        status(GUESSER, spile.admin, path, &format!("authorization: Bearer hunter{number}x")).await;
    }
    assert_eq!(status(GUESSER, spile.admin, path, right).await, 429, "the right one would show itself");
    assert_eq!(status(OTHER, spile.admin, path, right).await, 200);
}

#[tokio::test]
async fn the_password_of_the_redis_protocol_cannot_be_guessed_at_will() {
    let spile = guarded().await;
    let resp = spile.resp.expect("it is on");
    let ask = async |stream: &mut BufReader<TcpStream>, words: String| {
        stream.write_all(format!("{words}\r\n").as_bytes()).await.expect("it reads");
        let mut line = String::new();
        stream.read_line(&mut line).await.expect("an answer");
        line
    };
    let mut stream = BufReader::new(from(GUESSER, resp).await);
    let mut wrong = 0;
    for number in 0..TRIES {
        if number % 50 == 49 {
            stream = BufReader::new(from(GUESSER, resp).await);
        }
        let words = if number % 2 == 0 { "AUTH" } else { "HELLO 3 AUTH default" };
        let answer = ask(&mut stream, format!("{words} guess-{number}")).await;
        if answer.starts_with("-WRONGPASS") {
            wrong += 1;
        } else {
            assert!(answer.starts_with("-ERR too many wrong credentials"), "{answer}");
        }
    }
    assert!(wrong <= ALLOWED, "{wrong} guesses were looked at");
    let right = format!("AUTH \"{SECRET}\"");
    assert_eq!(ask(&mut stream, right.clone()).await, "+OK\r\n");
    let mut other = BufReader::new(from(OTHER, resp).await);
    assert_eq!(ask(&mut other, right).await, "+OK\r\n");
}

#[tokio::test]
async fn api_keys_cannot_be_guessed_at_will_at_the_gateway() {
    let spile = guarded().await;
    let gateway = spile.gateway.expect("it is on");
    for field in ["x-api-key: guess-", "authorization: Bearer guess-"] {
        let guesser = if field.starts_with('x') { GUESSER } else { [127, 0, 0, 10] };
        let mut wrong = 0;
        for number in 0..TRIES {
            match status(guesser, gateway, "/", &format!("{field}{number}")).await {
                401 => wrong += 1,
                status => assert_eq!(status, 429),
            }
        }
        assert!(wrong <= ALLOWED, "{wrong} guesses were looked at");
        let key = "x-api-key: acme-key-of-32-bytes-for-the-test";
        for address in [guesser, OTHER] {
            let reached = status(address, gateway, "/", key).await;
            assert_eq!(reached, 502, "it reaches the upstream, which is not there");
        }
        assert_eq!(status(guesser, gateway, "/", "x: y").await, 502, "without a key nothing is guessed");
    }
}
