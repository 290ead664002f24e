//! `LAYOUT.md` lists every key and every field that the store writes, and no other.

use std::collections::BTreeSet;
use std::time::Duration;

use spile_core::{
    Charge, Charges, Cost, Key, Micros, NamedLimit, PermitId, PermitStep, ReservationId, StoreExt,
};
use spile_testkit::redis::RedisServer;
use spile_testkit::wait;

use super::versions::{ask_all, place, quota_charge};
use crate::common::{charge, patient};

const LAYOUT: &str = include_str!("../../../src/script/LAYOUT.md");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_key_and_field_that_is_written_is_in_the_layout() {
    let server = RedisServer::start();
    let store = patient(&server.url()).prefix("spile").build().expect("a sound URL");
    let several = Charges::from(charge("ann", "gold/burst", "10, 1/h", 1));
    let shadowed = several.iter().map(|charge| {
        let limit = NamedLimit::new(charge.limit().name().shadowed(), *charge.limit().limit());
        Charge::new(Key::new("ann").expect("a key"), limit, Cost::ONE).expect("a charge")
    });
    let shadowed = Charges::new(shadowed).expect("a chain");
    let reservation = ReservationId::new(8, Duration::from_secs(60)).expect("a minute");
    store.reserve(&reservation.counted(&several), reservation).await.expect("an answer");
    store.spend(&shadowed).await.expect("an answer");
    for (operation, answer) in ask_all(&store).await {
        answer.expect(operation);
    }
    store.spend(&quota_charge().into()).await.expect("an answer");
    let id = PermitId::new(Micros::from_secs(1), Duration::ZERO, 2, "").expect("an id");
    store.permit(&place().into(), &id, PermitStep::Acquire).await.expect("an answer");
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    store.spend(&several).await.expect_err("no memory");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    wait::until_true("the probe", || server.command(&["EXISTS", "spile:{ann}::probe"]).int() == 1);

    let texts = |command: &[&str]| -> Vec<String> {
        server.command(command).list().iter().map(|text| text.text().to_owned()).collect()
    };
    let mut keys = texts(&["KEYS", "*"]);
    let hashes = keys.iter().filter(|key| server.command(&["TYPE", key]).text() == "hash");
    let fields: BTreeSet<_> = hashes.flat_map(|key| texts(&["HKEYS", key])).collect();
    keys.push(store.session("registry").key("version"));

    let patterns = first_cells("Keys");
    for key in &keys {
        assert!(patterns.iter().any(|pattern| matches(pattern, key)), "{key} is in no row of {patterns:#?}");
    }
    for pattern in &patterns {
        assert!(keys.iter().any(|key| matches(pattern, key)), "{pattern} matches none of {keys:#?}");
    }
    let unnamed = |field: &String| field.rsplit(':').next().unwrap_or_default().to_owned();
    assert_eq!(
        fields.iter().map(unnamed).collect::<BTreeSet<_>>(),
        BTreeSet::from_iter(first_cells("Fields"))
    );
}

/// The code in the first cell of each row of the first table of a section.
fn first_cells(heading: &str) -> Vec<String> {
    let (_, section) = LAYOUT.split_once(&format!("\n## {heading}\n\n|")).expect("a heading and a table");
    let rows = section.lines().skip(2).take_while(|line| !line.is_empty());
    rows.map(|row| row.split('`').nth(1).expect("code").to_owned()).collect()
}

/// Compares a key with a pattern, in which each word in capitals stands for a part of a key.
fn matches(pattern: &str, key: &str) -> bool {
    let word = pattern.bytes().take_while(u8::is_ascii_uppercase).count();
    if word == 0 {
        let (mut pattern, mut key) = (pattern.chars(), key.chars());
        let first = pattern.next();
        return first == key.next() && (first.is_none() || matches(pattern.as_str(), key.as_str()));
    }
    let (word, rest) = pattern.split_at(word);
    let part = key.find([':', '{', '}']).filter(|_| word != "REST").unwrap_or(key.len());
    part > 0 && matches(rest, &key[part..])
}
