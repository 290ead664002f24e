//! What client libraries say besides their commands.

use super::{client, start};

#[tokio::test]
async fn whatever_libraries_say_first_is_understood() {
    let spile = start().await;
    let mut client = client(&spile).await;
    let table: [(&[&str], &str); 21] = [
        (&["PING"], "PONG"),
        (&["ping", "hello there"], "hello there"),
        (&["ECHO", ""], ""),
        (&["CLIENT", "SETINFO", "LIB-NAME", "redis-py"], "OK"),
        (&["client", "setinfo", "lib-ver", "8.1.0"], "OK"),
        (&["CLIENT", "GETNAME"], "nil"),
        (&["CLIENT", "SETNAME", "worker-1"], "OK"),
        (&["CLIENT", "GETNAME"], "worker-1"),
        (
            &["CLIENT", "SETNAME", "a b"],
            "-ERR Client names cannot contain spaces, newlines or special characters, nor over 256 bytes",
        ),
        (&["SELECT", "0"], "OK"),
        (&["SELECT", "15"], "OK"),
        (&["SELECT", "16"], "-ERR DB index is out of range"),
        (&["SELECT", "-1"], "-ERR DB index is out of range"),
        (&["SELECT", "one"], "-ERR value is not an integer or out of range"),
        (&["COMMAND", "COUNT"], "21"),
        (&["COMMAND", "INFO", "nothing"], "[nil]"),
        (&["GET", "key"], "-ERR unknown command 'GET', with args beginning with: 'key' "),
        (&["CLIENT", "KILL"], "-ERR unknown subcommand 'KILL' of CLIENT"),
        (&["ECHO"], "-ERR wrong number of arguments for 'echo' command"),
        (&["CLIENT", "ID", "x"], "-ERR wrong number of arguments for 'client|id' command"),
        (
            &["AUTH", "guess"],
            "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
        ),
    ];
    for (words, said) in table {
        assert_eq!(client.ask(words).await, said, "{words:?}");
    }
    assert!(client.ask(&["INFO"]).await.contains("redis_mode:standalone"));
    assert!(client.ask(&["COMMAND"]).await.contains("[cl.throttle, -5, [write, fast], 1, 1, 1, "));
    assert!(client.ask(&["COMMAND", "DOCS", "cl.throttle"]).await.starts_with("[cl.throttle, [summary, "));
}

#[tokio::test]
async fn hello_chooses_the_protocol_and_reset_forgets_it() {
    let spile = start().await;
    let mut client = client(&spile).await;
    let two = client.ask(&["HELLO"]).await;
    assert!(two.starts_with("[server, spile, version, 7.0.0, proto, 2, id, "), "{two}");
    let three = client.ask(&["HELLO", "3", "SETNAME", "me"]).await;
    assert!(three.starts_with("{server, spile, version, 7.0.0, proto, 3, id, "), "{three}");
    assert_eq!(client.ask(&["CLIENT", "GETNAME"]).await, "me");
    assert_eq!(client.throttle("k 1 1 1").await, "[0, 2, 1, -1, 1]");
    assert_eq!(client.ask(&["HELLO", "4"]).await, "-NOPROTO unsupported protocol version");
    let said = client.ask(&["HELLO", "three"]).await;
    assert_eq!(said, "-ERR Protocol version is not an integer or out of range");
    assert_eq!(client.ask(&["HELLO", "2", "WHAT"]).await, "-ERR Syntax error in HELLO option 'WHAT'");
    // What fails changes nothing.
    assert_eq!(client.ask(&["COMMAND", "INFO", "x"]).await, "[nil]");
    assert_eq!(client.ask(&["RESET"]).await, "RESET");
    assert_eq!(client.ask(&["CLIENT", "GETNAME"]).await, "nil");
}

#[tokio::test]
async fn quit_is_answered_and_nothing_after_it_is() {
    let spile = start().await;
    let mut client = client(&spile).await;
    client.send("PING\r\nQUIT\r\nPING\r\n").await;
    assert_eq!(client.rest().await, "+PONG\r\n+OK\r\n");
}

#[tokio::test]
async fn each_connection_has_a_number_of_its_own() {
    let spile = start().await;
    let (mut first, mut second) = (client(&spile).await, client(&spile).await);
    assert_ne!(first.ask(&["CLIENT", "ID"]).await, second.ask(&["CLIENT", "ID"]).await);
}
