//! Promises about the separation of buckets.

use spile_core::{Key, Limit, Store};

use super::StoreUnderTest;
use super::subject::built;

/// Spending by one key leaves the buckets of other keys alone.
pub async fn keys_have_buckets_of_their_own(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_hour(1).burst(3));
    subject.drain("ann", limit).await;
    assert_eq!(subject.left("bob", limit).await, 3);
}

/// Spending under one limit leaves the buckets of other limits alone.
pub async fn limits_of_one_key_have_buckets_of_their_own(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_hour(1).burst(3));
    assert!(subject.spend_chain(&[("ann", "read", limit, 3)]).await.allowed());
    assert_eq!(subject.peek_chain(&[("ann", "write", limit, 0)]).await.remaining(), 3);
}

/// Keys that look like an encoding, a pattern or another key's part.
pub async fn odd_keys_are_kept_apart(subject: StoreUnderTest<impl Store>) {
    let limit = built(Limit::per_hour(1).burst(2));
    let longest = "x".repeat(Key::MAX_BYTES);
    let nearly = format!("{}y", "x".repeat(Key::MAX_BYTES - 1));
    let keys = [
        "user:1",
        "user%3A1",
        "user%253A1",
        "user",
        "user:",
        ":",
        "{user:1}",
        "{user}:1",
        "}{",
        "*",
        "?",
        "[a]",
        "a",
        "ä",
        "a\u{308}",
        "用户",
        " ",
        "  ",
        "ip:::1",
        &longest,
        &nearly,
    ];
    for key in keys {
        assert_eq!(subject.left(key, limit).await, 2, "{key:?} shares a bucket");
        subject.drain(key, limit).await;
    }
    for key in keys {
        assert!(!subject.spend(key, limit, 1).await.allowed(), "{key:?} was drained");
    }
}
