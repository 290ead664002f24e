//! The decision API over the Redis protocol, transactions, and name spaces.

use super::client::command;
use super::{client, start};

/// A reply in which every word but these is left out: `allowed`, `remaining`, `limitedBy`, `reason`.
fn short(reply: &str) -> String {
    let items: Vec<&str> = reply.trim_matches(['[', ']', '{', '}']).split(", ").collect();
    let value = |name: &str| items.iter().position(|item| *item == name).map_or("?", |at| items[at + 1]);
    ["allowed", "remaining", "limitedBy", "reason"].map(value).join(" ")
}

#[tokio::test]
async fn a_rule_is_checked_looked_at_and_refunded() {
    let spile = start().await;
    let mut client = client(&spile).await;
    assert_eq!(short(&client.ask(&["SPILE.CHECK", "default", "user:1"]).await), "1 9 nil ok");
    assert_eq!(short(&client.ask(&["spile.check", "default", "user:1", "9"]).await), "1 0 nil ok");
    assert_eq!(short(&client.ask(&["SPILE.CHECK", "default", "user:1"]).await), "0 0 free limited");
    assert_eq!(short(&client.ask(&["SPILE.PEEK", "default", "user:1"]).await), "0 0 free limited");
    assert_eq!(short(&client.ask(&["SPILE.REFUND", "default", "user:1", "4"]).await), "1 4 nil ok");
    assert_eq!(short(&client.ask(&["SPILE.PEEK", "default", "user:1"]).await), "1 4 nil ok");
    for (words, said) in [
        (&["SPILE.CHECK", "nope", "user:1"][..], "-ERR ruleId: no rule has the id \"nope\""),
        (&["SPILE.CHECK", "default", ""], "-ERR identity: the key is empty; it takes 1 to 1024 bytes"),
        (
            &["SPILE.CHECK", "default", "user:1", "0.0000001"],
            "-ERR cost is not a number of tokens from 0 to 1000000000, with at most six decimals",
        ),
        (
            &["SPILE.CHECK", "default", "user:1", "-1"],
            "-ERR cost is not a number of tokens from 0 to 1000000000, with at most six decimals",
        ),
        (
            &["SPILE.CHECK", "default", "user:1", "11"],
            "-ERR cost: cost 11 is above 10, the capacity of limit free: it can never pass",
        ),
        (&["SPILE.CHECK", "default"], "-ERR wrong number of arguments: rule identity [cost]"),
    ] {
        assert_eq!(client.ask(words).await, said, "{words:?}");
    }
    assert_eq!(
        short(&client.ask(&["SPILE.PEEK", "default", "user:1"]).await),
        "1 4 nil ok",
        "mistakes cost nothing"
    );
    let _hello = client.ask(&["HELLO", "3"]).await;
    assert!(client.ask(&["SPILE.PEEK", "default", "user:1"]).await.starts_with("{allowed, 1, limit, 10, "));
}

#[tokio::test]
async fn what_was_used_is_charged_into_debt() {
    let spile = start().await;
    let mut client = client(&spile).await;
    let reply = client.ask(&["SPILE.CHARGE", "default", "user:1", "14"]).await;
    assert_eq!(short(&reply), "1 0 nil ok");
    assert!(reply.ends_with("uncovered, 0]"), "{reply}");
    let reply = client.ask(&["SPILE.CHARGE", "default", "user:1", "9"]).await;
    assert!(reply.ends_with("uncovered, 3]"), "{reply}");
    assert_eq!(short(&client.ask(&["SPILE.PEEK", "default", "user:1", "0"]).await), "0 0 free limited");
    assert_eq!(short(&client.ask(&["spile.charge", "default", "user:2"]).await), "1 9 nil ok");
    let wrong = client.ask(&["SPILE.CHARGE", "default", "user:1", "1000000001"]).await;
    assert_eq!(wrong, "-ERR cost is not a number of tokens from 0 to 1000000000, with at most six decimals");
}

#[tokio::test]
async fn a_cost_may_be_a_part_of_a_token() {
    let spile = start().await;
    let mut client = client(&spile).await;
    for left in ["9", "9", "9", "9", "8"] {
        let reply = client.ask(&["SPILE.CHECK", "default", "user:1", "0.25"]).await;
        assert_eq!(short(&reply), format!("1 {left} nil ok"), "of requests whole ones are left");
    }
    let reply = client.ask(&["SPILE.CHARGE", "default", "user:1", "18.875"]).await;
    assert!(reply.ends_with("uncovered, 0.125]"), "{reply}");
}

#[tokio::test]
async fn a_refund_with_an_id_is_given_once() {
    let spile = start().await;
    let mut client = client(&spile).await;
    assert_eq!(short(&client.ask(&["SPILE.CHECK", "default", "user:1", "8"]).await), "1 2 nil ok");
    for refunded in ["refunded, 1]", "refunded, 0]"] {
        let reply = client.ask(&["SPILE.REFUND", "default", "user:1", "3", "ID", "order 7"]).await;
        assert_eq!(short(&reply), "1 5 nil ok");
        assert!(reply.ends_with(refunded), "{reply}");
    }
    let reply = client.ask(&["SPILE.REFUND", "default", "user:1", "id", "order 8"]).await;
    assert_eq!(short(&reply), "1 6 nil ok", "the rule's own cost");
    let reply = client.ask(&["SPILE.REFUND", "default", "id", "1"]).await;
    assert_eq!(short(&reply), "1 10 nil ok", "an identity that is called as the option");
    for (words, said) in [
        (
            &["SPILE.REFUND", "default", "user:1", "1", "ID", ""][..],
            "-ERR id: the id of a refund has 0 bytes; it takes 1 to 128",
        ),
        (
            &["SPILE.REFUND", "default", "user:1", "1", "ID"],
            "-ERR wrong number of arguments: rule identity [cost] [ID id] [AT at]",
        ),
        (
            &["SPILE.CHECK", "default", "user:1", "1", "ID", "x"],
            "-ERR wrong number of arguments: rule identity [cost]",
        ),
    ] {
        assert_eq!(client.ask(words).await, said, "{words:?}");
    }
}

#[tokio::test]
async fn what_waits_between_multi_and_exec_runs_in_order() {
    let spile = start().await;
    let mut client = client(&spile).await;
    let words: [&[&str]; 6] = [
        &["MULTI"],
        &["CL.THROTTLE", "k", "1", "1", "60"],
        &["PING"],
        &["CL.THROTTLE", "k", "1", "1", "60"],
        &["CL.THROTTLE", "k", "1", "x", "60"],
        &["EXEC"],
    ];
    // Sent at once, as client libraries do.
    client.send(words.map(command).concat()).await;
    let mut replies = Vec::new();
    for _ in words {
        replies.push(client.reply().await);
    }
    assert_eq!(replies[..5], ["OK", "QUEUED", "QUEUED", "QUEUED", "QUEUED"]);
    assert!(
        replies[5].starts_with("[[0, 2, 1, -1, 60], PONG, [0, 2, 0, -1, 120], -ERR count 'x'"),
        "{}",
        replies[5]
    );
    assert_eq!(
        client.throttle("k 1 1 60 0").await,
        "[1, 2, 0, 60, 120]",
        "the mistake ended nothing, and cost nothing"
    );
}

#[tokio::test]
async fn a_transaction_that_is_dropped_or_wrong_runs_nothing() {
    let spile = start().await;
    let mut client = client(&spile).await;
    let aborted = "-EXECABORT Transaction discarded because of previous errors.";
    for (words, said) in [
        (&["EXEC"][..], "-ERR EXEC without MULTI"),
        (&["DISCARD"], "-ERR DISCARD without MULTI"),
        (&["MULTI"], "OK"),
        (&["COMMAND", "DOCS"], "-ERR Command not allowed inside a transaction"),
        (&["INFO"], "-ERR Command not allowed inside a transaction"),
        (&["EXEC"], "-EXECABORT Transaction discarded because of previous errors."),
        (&["MULTI"], "OK"),
        (&["MULTI"], "-ERR MULTI calls can not be nested"),
        (&["CL.THROTTLE", "k", "1", "1", "60"], "QUEUED"),
        (&["DISCARD"], "OK"),
        (&["MULTI"], "OK"),
        (&["CL.THROTTLE", "k", "1", "1", "60"], "QUEUED"),
        (&["GET", "k"], "-ERR unknown command 'GET', with args beginning with: 'k' "),
        (&["EXEC"], aborted),
        (&["MULTI"], "OK"),
        (&["CL.THROTTLE", "k"], "-ERR wrong number of arguments for 'cl.throttle' command"),
        (&["EXEC"], aborted),
        (&["MULTI"], "OK"),
        (&["EXEC"], "[]"),
        (&["CL.THROTTLE", "k", "1", "1", "60", "0"], "[0, 2, 2, -1, 0]"),
    ] {
        assert_eq!(client.ask(words).await, said, "{words:?}");
    }
    client.ask(&["MULTI"]).await;
    for _ in 0..1_000 {
        assert_eq!(client.ask(&["PING"]).await, "QUEUED");
    }
    assert_eq!(client.ask(&["PING"]).await, "-ERR a transaction takes at most 1000 commands and 1 MiB");
    assert_eq!(client.ask(&["EXEC"]).await, aborted);
}

#[tokio::test]
async fn each_database_is_a_name_space_of_its_own_for_throttles() {
    let spile = start().await;
    let mut client = client(&spile).await;
    for database in ["0", "1", "15"] {
        assert_eq!(client.ask(&["SELECT", database]).await, "OK");
        assert_eq!(client.throttle("k 1 1 60").await, "[0, 2, 1, -1, 60]", "{database}");
        let checked = client.ask(&["SPILE.CHECK", "default", "user:1"]).await;
        assert!(short(&checked).starts_with("1 "), "{checked}");
    }
    let checked = client.ask(&["SPILE.PEEK", "default", "user:1"]).await;
    assert_eq!(short(&checked), "1 7 nil ok", "rules have the same buckets as at every other door");
}
