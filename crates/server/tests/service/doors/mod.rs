//! One table for every door: the same configuration and the same request have the same answer wherever they come in.

mod door;
mod house;
mod property;
mod quota_refunds;
mod row;
mod rows;
mod tenants;
mod windows;

use door::Door;
pub(crate) use house::{API_KEY, House, Store};
use row::Row;
use spile_testkit::redis::RedisServer;

/// Runs a row at one door of a new server, and says what was wrong.
async fn run(row: &Row, door: Door, store: &Store<'_>) -> Result<(), String> {
    let house = House::open(row, door, store).await;
    let expected = row.told_at(door, store);
    let mut told = Vec::new();
    for _ in &expected {
        told.push(door.ask(&house, row).await);
    }
    let left = if matches!(store, Store::Down) { Vec::new() } else { house.left(row, door).await };
    let wanted: Vec<_> = if left.is_empty() { Vec::new() } else { row.left_at(door) };
    if told == expected && left == wanted {
        return Ok(());
    }
    Err(format!(
        "{} at {door:?} on {store}\n  told {told:?}, left {left:?}\n  not  {expected:?}, left {wanted:?}",
        row.name
    ))
}

async fn run_all(store: Store<'_>) {
    let rows = rows::rows();
    let mut wrong = Vec::new();
    let mut count = 0;
    for row in &rows {
        for door in Door::ALL.into_iter().filter(|door| row.is_for(*door)) {
            wrong.extend(run(row, door, &store).await.err());
            count += 1;
        }
    }
    assert!(wrong.is_empty(), "{} of {count} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(rows.len() >= 60 && count >= 300, "{} rows, {count} runs", rows.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_door_gives_the_same_answers_on_the_embedded_store() {
    run_all(Store::Memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_door_gives_the_same_answers_on_redis() {
    let redis = RedisServer::start();
    run_all(Store::Redis(&redis)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_door_gives_the_same_answers_while_redis_is_down() {
    run_all(Store::Down).await;
}
