//! The minutes of all instances, added up in Redis.
//!
//! There is one hash for each minute, which expires after a day. Every instance adds its counts in numbered batches,
//! and the number of the last one is stored with the sums: a batch that is sent again because its answer was lost adds
//! nothing. Each minute also has a revision, so that a whole day is read once, and after that only the minutes that
//! have changed.

mod field;

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use spile_observe::{
    GroupBy, MinuteBatch, MinuteRow, MinuteStore, MinuteStoreError, MinuteStoreFuture, OutcomeCounts,
    PackedMinutes,
};
use spile_redis::{RedisStore, Script, Session, SessionError, Value};

static ADD: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("add.lua")));
static REVISIONS: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("revisions.lua")));
static ROWS: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("rows.lua")));

/// How often an instance adds its counts.
pub(crate) const FLUSH: Duration = Duration::from_secs(2);
/// How long one call may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a minute is kept after the last change: an hour more than a day.
const KEPT_SECONDS: &str = "90000";
/// The most fields of a minute. A rule or tenant has up to three, one for each outcome.
const MOST_FIELDS: &str = "3000";
/// How many minutes are requested at once, and about how many bytes one reply has.
const MINUTES: usize = 120;
const PAGE_BYTES: &[u8] = b"262144";
/// How many revisions are read at once. This takes Redis a fraction of a millisecond.
const REVISIONS_AT_ONCE: usize = 240;

/// The minutes that all instances on one Redis share.
pub(crate) struct RedisMinutes {
    session: Session,
    /// The key of this instance. Every start is a new instance.
    own: String,
}

/// The sums of one reply.
type Sums = BTreeMap<(u64, GroupBy, String), OutcomeCounts>;

impl RedisMinutes {
    pub(crate) fn new(store: &RedisStore) -> Result<Self, getrandom::Error> {
        let mut instance = [0; 12];
        getrandom::fill(&mut instance)?;
        let session = store.session("minutes");
        let own = session.key(&format!("from:{}", hex::encode(instance)));
        Ok(Self { session, own })
    }

    fn key(&self, minute: u64) -> String {
        self.session.key(&minute.to_string())
    }

    async fn add_batch(&self, batch: &MinuteBatch) -> Result<(), SessionError> {
        let mut keys = vec![self.own.clone()];
        let mut positions: BTreeMap<u64, usize> = BTreeMap::new();
        let mut arguments = vec![batch.number.to_string(), KEPT_SECONDS.to_owned(), MOST_FIELDS.to_owned()];
        for MinuteRow { minute, by, name, counts } in &batch.rows {
            let at = *positions.entry(*minute).or_insert_with(|| {
                keys.push(self.key(*minute));
                keys.len() - 1
            });
            for (field, count) in field::fields(*by, name, *counts) {
                arguments.extend([at.to_string(), field, count.to_string()]);
            }
        }
        let arguments: Vec<&[u8]> = arguments.iter().map(String::as_bytes).collect();
        self.session.run(&ADD, &keys, &arguments, PATIENCE).await.map(drop)
    }

    /// Reads minutes page by page, and calls `note` with the fields of each.
    async fn read(
        &self,
        mut minutes: &[u64],
        mut note: impl FnMut(u64, &[Value]) + Send,
    ) -> Result<(), MinuteStoreError> {
        while !minutes.is_empty() {
            let page = &minutes[..minutes.len().min(MINUTES)];
            let keys: Vec<String> = page.iter().map(|minute| self.key(*minute)).collect();
            let reply = self.session.run(&ROWS, &keys, &[PAGE_BYTES], PATIENCE).await.map_err(failed)?;
            let read = reply.as_array().filter(|read| !read.is_empty()).ok_or_else(misshapen)?;
            for (minute, fields) in page.iter().zip(read) {
                note(*minute, fields.as_array().unwrap_or_default());
            }
            minutes = &minutes[read.len().min(page.len())..];
        }
        Ok(())
    }

    /// The minutes that have changed since `day` was read, with their revisions. Minutes that no longer exist are
    /// removed from `day`.
    async fn changed(
        &self,
        minutes: &[u64],
        day: &mut PackedMinutes,
    ) -> Result<BTreeMap<u64, i64>, MinuteStoreError> {
        let mut changed = BTreeMap::new();
        for asked in minutes.chunks(REVISIONS_AT_ONCE) {
            let keys: Vec<String> = asked.iter().map(|minute| self.key(*minute)).collect();
            let reply = self.session.run(&REVISIONS, &keys, &[], PATIENCE).await.map_err(failed)?;
            let revisions =
                reply.as_array().filter(|read| read.len() == asked.len()).ok_or_else(misshapen)?;
            for (&minute, revision) in asked.iter().zip(revisions) {
                match revision.as_int().ok_or_else(misshapen)? {
                    0 => day.remove(minute),
                    revision if day.revision(minute) == Some(revision) => {}
                    revision => {
                        changed.insert(minute, revision);
                    }
                }
            }
        }
        Ok(changed)
    }
}

impl MinuteStore for RedisMinutes {
    fn add<'a>(&'a self, batch: &'a MinuteBatch) -> MinuteStoreFuture<'a, ()> {
        Box::pin(async move { self.add_batch(batch).await.map_err(failed) })
    }

    fn rows(&self, from: u64, to: u64) -> MinuteStoreFuture<'_, Vec<MinuteRow>> {
        Box::pin(async move {
            let mut sums = Sums::new();
            let add = |minute, fields: &[Value]| {
                for (by, name, counts) in counts_of_fields(fields) {
                    *sums.entry((minute, by, name.to_owned())).or_default() += counts;
                }
            };
            self.read(&began_in(from, to), add).await?;
            let row = |((minute, by, name), counts)| MinuteRow { minute, by, name, counts };
            Ok(sums.into_iter().map(row).collect())
        })
    }

    fn update<'a>(&'a self, day: &'a mut PackedMinutes, from: u64, to: u64) -> MinuteStoreFuture<'a, ()> {
        Box::pin(async move {
            day.retain(from, to);
            let changed = self.changed(&began_in(from, to), day).await?;
            let minutes: Vec<u64> = changed.keys().copied().collect();
            // A minute that changes after its revision was read has a new revision, and is read again the next time.
            let put = |minute, fields: &[Value]| day.put(minute, changed[&minute], counts_of_fields(fields));
            self.read(&minutes, put).await
        })
    }
}

/// The minutes that began in `from..to`.
fn began_in(from: u64, to: u64) -> Vec<u64> {
    (from.div_ceil(60) * 60..to).step_by(60).collect()
}

/// The counts of a minute's fields. Fields of another format are ignored.
fn counts_of_fields(fields: &[Value]) -> impl Iterator<Item = (GroupBy, &str, OutcomeCounts)> {
    fields.chunks_exact(2).filter_map(|pair| {
        let count = pair[1].as_str()?.parse().ok()?;
        field::read(pair[0].as_str()?, count)
    })
}

fn misshapen() -> MinuteStoreError {
    MinuteStoreError("a reply of another shape".to_owned())
}

#[allow(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn failed(why: SessionError) -> MinuteStoreError {
    MinuteStoreError(why.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use spile_core::{FakeClock, Micros};
    use spile_observe::{Analytics, AnalyticsQuery, Day, Scope, Watch};
    use spile_testkit::redis::RedisServer;

    use super::*;

    const MINUTE: u64 = 1_800_000_000;
    const KEY: &str = "spile:{:minutes}:1800000000";

    fn batch(number: u64, names: impl IntoIterator<Item = String>) -> MinuteBatch {
        let counts = OutcomeCounts { allowed: 2, denied: 1, shadow: 0 };
        let row = |name| MinuteRow { minute: MINUTE, by: GroupBy::Rule, name, counts };
        MinuteBatch { number, rows: names.into_iter().map(row).collect() }
    }

    fn login(number: u64) -> MinuteBatch {
        batch(number, ["login".to_owned()])
    }

    fn minutes(redis: &RedisServer) -> RedisMinutes {
        RedisMinutes::new(&RedisStore::builder(redis.url()).build().unwrap()).unwrap()
    }

    async fn sum(minutes: &RedisMinutes) -> (usize, u64, u64) {
        let rows = minutes.rows(MINUTE - 600, MINUTE + 60).await.unwrap();
        let allowed = rows.iter().map(|row| row.counts.allowed).sum();
        (rows.len(), allowed, rows.iter().map(|row| row.counts.denied).sum())
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
        let known = known.iter().find(|row| row.name == "rule-1-0").map(|row| row.counts.allowed);
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
            let counts = OutcomeCounts { allowed: 1, ..OutcomeCounts::default() };
            let row = |name: u64| MinuteRow {
                minute: MINUTE + 60 * minute,
                by: GroupBy::Tenant,
                name: format!("{name:0>100}"),
                counts,
            };
            rows.extend((0..100).map(row));
        }
        for (number, rows) in (1..).zip(rows.chunks(500)) {
            minutes.add(&MinuteBatch { number, rows: rows.to_vec() }).await.unwrap();
        }
        assert_eq!(minutes.rows(MINUTE, MINUTE + 60 * 300).await.unwrap(), rows);
        assert_eq!(
            minutes.rows(MINUTE + 1, MINUTE + 61).await.unwrap().len(),
            100,
            "one minute began in between"
        );
    }

    /// How often a command was run.
    fn calls(redis: &RedisServer, command: &str) -> u64 {
        let stats = redis.command(&["INFO", "commandstats"]);
        let line =
            stats.text().lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.map_or(0, |rest| rest.split(',').next().and_then(|calls| calls.parse().ok()).expect("a number"))
    }

    /// A watch that was made at a known time, and what it shows of the minutes there.
    fn analytics(redis: &RedisServer) -> (Analytics, FakeClock) {
        let clock = FakeClock::at(Micros::from_secs(MINUTE + 30));
        let watch = Watch::builder().clock(clock.clone()).without_ticker().build();
        (Analytics::summed(watch, Arc::new(minutes(redis))), clock)
    }

    fn allowed(day: &Day) -> u64 {
        assert_eq!(day.scope, Scope::All);
        day.rows.iter().map(|row| row.counts.allowed).sum()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn three_who_ask_for_the_day_at_once_cause_one_read_of_it() {
        let redis = RedisServer::start();
        let writer = minutes(&redis);
        for number in 1..=100 {
            let mut batch = login(number);
            batch.rows[0].minute = MINUTE - 60 * number;
            writer.add(&batch).await.unwrap();
        }
        let (analytics, _clock) = analytics(&redis);
        let days = tokio::join!(analytics.day(), analytics.day(), analytics.day());
        assert_eq!([allowed(&days.0), allowed(&days.1), allowed(&days.2)], [200; 3]);
        assert_eq!(calls(&redis, "hgetall"), 100, "each minute is read once");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_day_that_was_read_is_brought_up_to_date_by_what_has_changed_alone() {
        let redis = RedisServer::start();
        let writer = minutes(&redis);
        for number in 1..=100 {
            let mut batch = login(number);
            batch.rows[0].minute = MINUTE - 60 * number;
            writer.add(&batch).await.unwrap();
        }
        let (analytics, clock) = analytics(&redis);
        assert_eq!(allowed(&*analytics.day().await), 200);
        let read = calls(&redis, "hgetall");
        // An instance that was cut off from Redis adds counts that are an hour old, and another program deletes one minute.
        let mut late = login(101);
        late.rows[0].minute = MINUTE - 3_600;
        writer.add(&late).await.unwrap();
        redis.command(&["DEL", &format!("spile:{{:minutes}}:{}", MINUTE - 60)]);
        clock.advance(Duration::from_secs(10));
        assert_eq!(allowed(&*analytics.day().await), 200);
        assert_eq!(calls(&redis, "hgetall"), read + 1, "the one that has changed");
        clock.advance(Duration::from_secs(24 * 3_600 - 60 * 50));
        assert_eq!(allowed(&*analytics.day().await), 2 * 48, "those that are a day old are gone");
        assert_eq!(calls(&redis, "hgetall"), read + 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn minutes_of_an_older_version_and_of_other_hands_are_in_the_day() {
        let redis = RedisServer::start();
        redis.command(&["HSET", KEY, "r:a:login", "7"]);
        redis.command(&["LPUSH", &format!("spile:{{:minutes}}:{}", MINUTE - 60), "x"]);
        redis.command(&["HSET", &format!("spile:{{:minutes}}:{}", MINUTE - 120), "v", "x", "r:a:login", "1"]);
        let (analytics, clock) = analytics(&redis);
        let seen = allowed(&*analytics.day().await);
        assert_eq!(seen, 8);
        assert!(analytics.rows(&AnalyticsQuery::default()).await.is_ok_and(|rows| rows.len() == 2));
        redis.command(&["HSET", KEY, "t:a:acme", "2"]);
        clock.advance(Duration::from_secs(10));
        assert_eq!(allowed(&*analytics.day().await), seen + 2);
    }
}
