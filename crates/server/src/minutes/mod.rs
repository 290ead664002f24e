//! The minutes of all instances, added up in Redis.
//!
//! There is one hash for each minute, which goes after a day. Every instance brings what it has counted in numbered
//! batches, and the number of the last one is kept with the sums: one that is brought again because its answer was lost
//! adds nothing.

mod field;

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use spile_observe::{Answer, Batch, By, MinuteRow, MinuteSums, SumsError, Tally};
use spile_redis::{RedisStore, Script, Session, SessionError, Value};

use crate::hex::Hex;

static ADD: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("add.lua")));
static ROWS: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("rows.lua")));

/// How often instances bring what they have counted.
pub(crate) const FLUSH: Duration = Duration::from_secs(2);
/// How long one call may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a minute is kept after it was last added to: an hour more than a day.
const KEPT_SECONDS: &str = "90000";
/// The most fields that a minute holds. A rule or tenant takes up to three, by the ways its decisions went.
const MOST_FIELDS: &str = "3000";
/// How many minutes are asked for at once, and how many bytes of them are answered, about.
const MINUTES: usize = 120;
const PAGE_BYTES: &[u8] = b"262144";

/// Where all instances on one Redis meet.
pub(crate) struct RedisMinutes {
    session: Session,
    /// The key of this instance's own. Every start makes a new instance.
    own: String,
}

/// Sums that are being put together.
type Sums = BTreeMap<(u64, By, String), Tally>;

impl RedisMinutes {
    pub(crate) fn new(store: &RedisStore) -> Result<Self, getrandom::Error> {
        let mut instance = [0; 12];
        getrandom::fill(&mut instance)?;
        let session = store.session("minutes");
        let own = session.key(&format!("from:{}", Hex(&instance)));
        Ok(Self { session, own })
    }

    fn key(&self, minute: u64) -> String {
        self.session.key(&minute.to_string())
    }

    async fn bring(&self, batch: &Batch) -> Result<(), SessionError> {
        let mut keys = vec![self.own.clone()];
        let mut positions: BTreeMap<u64, usize> = BTreeMap::new();
        let mut arguments = vec![batch.number.to_string(), KEPT_SECONDS.to_owned(), MOST_FIELDS.to_owned()];
        for MinuteRow { minute, by, name, tally } in &batch.rows {
            let at = *positions.entry(*minute).or_insert_with(|| {
                keys.push(self.key(*minute));
                keys.len() - 1
            });
            for (field, count) in field::fields(*by, name, *tally) {
                arguments.extend([at.to_string(), field, count.to_string()]);
            }
        }
        let arguments: Vec<&[u8]> = arguments.iter().map(String::as_bytes).collect();
        self.session.run(&ADD, &keys, &arguments, PATIENCE).await.map(drop)
    }

    async fn read(&self, minutes: &[u64], sums: &mut Sums) -> Result<usize, SumsError> {
        let keys: Vec<String> = minutes.iter().map(|minute| self.key(*minute)).collect();
        let reply = self.session.run(&ROWS, &keys, &[PAGE_BYTES], PATIENCE).await.map_err(failed)?;
        let read = reply.as_array().filter(|read| !read.is_empty());
        let read = read.ok_or_else(|| SumsError("a reply of another shape".to_owned()))?;
        for (minute, fields) in minutes.iter().zip(read) {
            note(*minute, fields.as_array().unwrap_or_default(), sums);
        }
        Ok(read.len())
    }
}

impl MinuteSums for RedisMinutes {
    fn add<'a>(&'a self, batch: &'a Batch) -> Answer<'a, ()> {
        Box::pin(async move { self.bring(batch).await.map_err(failed) })
    }

    fn rows(&self, from: u64, to: u64) -> Answer<'_, Vec<MinuteRow>> {
        Box::pin(async move {
            let minutes: Vec<u64> = (from.div_ceil(60) * 60..to).step_by(60).collect();
            let (mut rest, mut sums) = (minutes.as_slice(), Sums::new());
            while !rest.is_empty() {
                let read = self.read(&rest[..rest.len().min(MINUTES)], &mut sums).await?;
                rest = &rest[read.min(rest.len())..];
            }
            let row = |((minute, by, name), tally)| MinuteRow { minute, by, name, tally };
            Ok(sums.into_iter().map(row).collect())
        })
    }
}

/// Adds the fields of one minute. What is none of ours is left out.
fn note(minute: u64, fields: &[Value], sums: &mut Sums) {
    for pair in fields.chunks_exact(2) {
        let count = pair[1].as_str().and_then(|count| count.parse().ok());
        let read = pair[0].as_str().zip(count).and_then(|(field, count)| field::read(field, count));
        if let Some((by, name, tally)) = read {
            *sums.entry((minute, by, name.to_owned())).or_default() += tally;
        }
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn failed(why: SessionError) -> SumsError {
    SumsError(why.to_string())
}

#[cfg(test)]
mod tests {
    use spile_testkit::redis::RedisServer;

    use super::*;

    const MINUTE: u64 = 1_800_000_000;
    const KEY: &str = "spile:{:minutes}:1800000000";

    fn batch(number: u64, names: impl IntoIterator<Item = String>) -> Batch {
        let tally = Tally { allowed: 2, denied: 1, shadow: 0 };
        let row = |name| MinuteRow { minute: MINUTE, by: By::Rule, name, tally };
        Batch { number, rows: names.into_iter().map(row).collect() }
    }

    fn login(number: u64) -> Batch {
        batch(number, ["login".to_owned()])
    }

    fn minutes(redis: &RedisServer) -> RedisMinutes {
        RedisMinutes::new(&RedisStore::builder(redis.url()).build().unwrap()).unwrap()
    }

    async fn sum(minutes: &RedisMinutes) -> (usize, u64, u64) {
        let rows = minutes.rows(MINUTE - 600, MINUTE + 60).await.unwrap();
        let allowed = rows.iter().map(|row| row.tally.allowed).sum();
        (rows.len(), allowed, rows.iter().map(|row| row.tally.denied).sum())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_batch_counts_once_however_often_it_is_brought() {
        let redis = RedisServer::start();
        let (one, other) = (minutes(&redis), minutes(&redis));
        for batch in [login(1), login(1), login(2), login(1), login(2)] {
            one.add(&batch).await.unwrap();
        }
        assert_eq!(sum(&one).await, (1, 4, 2));
        other.add(&login(1)).await.unwrap();
        assert_eq!(sum(&one).await, (1, 6, 3), "another instance has numbers of its own");
        assert!(
            redis.command(&["TTL", KEY]).int() > 24 * 60 * 60,
            "it is there for the whole day, and then goes"
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_batch_whose_answer_was_lost_counts_once() {
        let redis = RedisServer::start();
        let minutes = minutes(&redis);
        minutes.add(&login(1)).await.unwrap();
        redis.freeze();
        assert!(minutes.add(&login(2)).await.is_err());
        redis.thaw();
        // The frozen server reads it when it wakes up, and then again.
        minutes.add(&login(2)).await.unwrap();
        assert_eq!(sum(&minutes).await, (1, 4, 2));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_minute_is_bounded_and_what_is_beyond_counts_as_one() {
        let redis = RedisServer::start();
        let minutes = minutes(&redis);
        for number in 1..=10 {
            minutes.add(&batch(number, (0..500).map(|name| format!("rule-{number}-{name}")))).await.unwrap();
        }
        let fields = redis.command(&["HLEN", KEY]).int();
        println!(
            "{fields} fields take {} bytes",
            redis.command(&["MEMORY", "USAGE", KEY, "SAMPLES", "0"]).int()
        );
        assert!((3_000..=3_002).contains(&fields), "{fields}");
        let (_, allowed, denied) = sum(&minutes).await;
        assert_eq!((allowed, denied), (10_000, 5_000), "nothing is left out");
        minutes.add(&batch(11, ["rule-1-0".to_owned()])).await.unwrap();
        let known = minutes.rows(MINUTE, MINUTE + 60).await.unwrap();
        let known = known.iter().find(|row| row.name == "rule-1-0").map(|row| row.tally.allowed);
        assert_eq!(known, Some(4), "who was there stays on its own");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_others_have_broken_is_repaired() {
        let redis = RedisServer::start();
        let minutes = minutes(&redis);
        redis.command(&["LPUSH", KEY, "x"]);
        minutes.add(&login(1)).await.unwrap();
        redis.command(&["HSET", KEY, "r:a:login", "nan", "who?", "7", "r:d:login", "-1"]);
        assert_eq!(sum(&minutes).await, (0, 0, 0));
        minutes.add(&login(2)).await.unwrap();
        assert_eq!(sum(&minutes).await.1, 2);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_day_of_large_minutes_is_read_page_by_page() {
        let redis = RedisServer::start();
        let minutes = minutes(&redis);
        let mut rows = Vec::new();
        for minute in 0..300 {
            let tally = Tally { allowed: 1, ..Tally::default() };
            let row = |name: u64| MinuteRow {
                minute: MINUTE + 60 * minute,
                by: By::Tenant,
                name: format!("{name:0>100}"),
                tally,
            };
            rows.extend((0..100).map(row));
        }
        for (number, rows) in (1..).zip(rows.chunks(500)) {
            minutes.add(&Batch { number, rows: rows.to_vec() }).await.unwrap();
        }
        assert_eq!(minutes.rows(MINUTE, MINUTE + 60 * 300).await.unwrap(), rows);
        assert_eq!(
            minutes.rows(MINUTE + 1, MINUTE + 61).await.unwrap().len(),
            100,
            "one minute began in between"
        );
    }
}
