//! Buckets survive their store: saved and restored completely, or not at all.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use proptest::prelude::*;
use spile_core::{
    Charge, Charges, Clock, Cost, FakeClock, Inspect, Key, Limit, LimitName, Micros, NamedLimit, Operation,
    PermitId, PermitStep, RateBuilder, Verdict,
};
use spile_memory::{AutoSave, FileError, MemoryStore, RestoreError, SnapshotFile};
use spile_testkit::fuzz::fuzz;

fn named(name: &str, limit: Limit) -> NamedLimit {
    NamedLimit::new(LimitName::new(name).expect("a name"), limit)
}

fn limits() -> [NamedLimit; 3] {
    let built = |limit: RateBuilder| limit.build().expect("in bounds");
    [
        named("burst", built(Limit::per_second(2).burst(10))),
        named("hourly", built(Limit::per_hour(100))),
        named("daily", built(Limit::per_day(7))),
    ]
}

fn charge<'k>(key: &'k str, limit: &NamedLimit, cost: u64) -> Charges<'k> {
    let cost = Cost::new(cost).expect("in bounds");
    Charge::new(Key::new(key).expect("a key"), limit.clone(), cost).expect("covered").into()
}

fn left<C: Clock>(store: &MemoryStore<C>, key: &str, limit: &NamedLimit) -> i64 {
    let reply = store.run(Operation::Peek, &charge(key, limit, 0));
    reply.buckets[0].available(limit.limit(), reply.at).micro()
}

fn spends<C: Clock>(store: &MemoryStore<C>, charges: &Charges<'_>) -> bool {
    store.run(Operation::Spend, charges).verdict == Verdict::Done
}

fn permits<C: Clock>(store: &MemoryStore<C>, charges: &Charges<'_>, id: &PermitId, step: PermitStep) -> bool {
    store.run(Operation::Permit(id, step), charges).verdict == Verdict::Done
}

fn saved<C: Clock>(store: &MemoryStore<C>) -> Vec<u8> {
    let mut bytes = Vec::new();
    store.save(&mut bytes).expect("memory takes everything");
    bytes
}

fn on(clock: &FakeClock) -> spile_memory::MemoryStoreBuilder<FakeClock> {
    MemoryStore::builder().clock(clock.clone())
}

/// The bytes that a restored store saves again, or why it cannot be restored.
fn restored(bytes: &[u8], clock: &FakeClock) -> Result<Vec<u8>, String> {
    let store = on(clock).restore(bytes).map_err(|why| why.to_string())?;
    let limits = limits();
    for limit in &limits {
        let most = limit.limit().capacity().micro();
        assert!(left(&store, "caller 1", limit) <= most, "no bucket holds more than its limit");
        let _ = store.run(Operation::Spend, &charge("caller 1", limit, 1));
    }
    Ok(saved(&store))
}

#[test]
fn fuzzed_snapshots_are_restored_as_a_whole_or_refused_with_a_reason() {
    fuzz("snapshot", &["spile\0bk", "\u{1}\0\0\0", "\0\0\0\0"], |bytes| {
        let clock = FakeClock::default();
        let again = restored(bytes, &clock)?;
        assert!(again.len() <= bytes.len() + 1_000, "nothing is made up");
        restored(&again, &clock).expect("what was saved is restored");
        Ok::<_, String>(again.len() / 40)
    });
}

#[test]
fn fuzzed_buckets_under_a_sound_checksum_never_hold_more_than_their_limit() {
    let clock = FakeClock::default();
    let (store, limits) = (on(&clock).build(), limits());
    let _ = store.run(Operation::Spend, &charge("caller 1", &limits[0], 3));
    let sound = saved(&store);
    // The header and the end are kept; the input's buckets are between them.
    let (header, end) = (&sound[..80], &sound[sound.len() - 16..]);
    fuzz("snapshot-buckets", &["\0\0\0\0\0\0\0\0"], |bytes| {
        let buckets = bytes.as_chunks::<40>().0;
        let mut block = (buckets.len() as u32).to_le_bytes().to_vec();
        block.extend(buckets.concat());
        let mut end = end[..4].to_vec();
        end.extend((buckets.len() as u64).to_le_bytes());
        let sealed = |part: Vec<u8>| [&part[..], &crc32fast::hash(&part).to_le_bytes()].concat();
        let block = if buckets.is_empty() { Vec::new() } else { sealed(block) };
        let snapshot = [header, &block, &sealed(end)].concat();
        restored(&snapshot, &clock).map(|again| again.len() / 40)
    });
}

proptest! {
    /// The restored store answers every question as the old one would have at that moment.
    #[test]
    fn a_restored_store_holds_what_the_saved_one_held(
        spends in prop::collection::vec((0u8..40, 0usize..3, 1u64..8, 0u64..900), 0..300),
        max_keys in prop::sample::select(vec![1_000, 5_000, 1_000_000]),
        away_ms in 0u64..100_000,
    ) {
        let clock = FakeClock::default();
        let (store, limits) = (on(&clock).build(), limits());
        for (key, limit, cost, pause_ms) in spends {
            let _ = store.run(Operation::Spend, &charge(&format!("caller {key}"), &limits[limit], cost.min(7)));
            clock.advance(Duration::from_millis(pause_ms));
        }
        let bytes = saved(&store);
        clock.advance(Duration::from_millis(away_ms));
        let restored = on(&clock).max_keys(max_keys).restore(&*bytes).expect("it was just saved");
        for key in 0..40 {
            for limit in &limits {
                let key = format!("caller {key}");
                prop_assert_eq!(left(&restored, &key, limit), left(&store, &key, limit));
            }
        }
    }

    /// A damaged snapshot is restored whole or refused.
    #[test]
    fn a_garbled_snapshot_is_refused(at in 0.0..1.0f64, bit in 0u8..8, cut: bool) {
        let mut bytes = a_snapshot();
        let at = (at * bytes.len() as f64) as usize;
        if cut { bytes.truncate(at) } else { bytes[at] ^= 1 << bit }
        prop_assert!(on(&FakeClock::default()).restore(&*bytes).is_err());
    }
}

fn a_snapshot() -> Vec<u8> {
    let (store, limit) = (on(&FakeClock::default()).build(), &limits()[2]);
    for key in 0..50 {
        assert!(spends(&store, &charge(&format!("caller {key}"), limit, 7)));
    }
    saved(&store)
}

#[test]
fn what_is_no_snapshot_differs_from_a_damaged_one_and_one_of_another_format() {
    let refused = |bytes: &[u8]| on(&FakeClock::default()).restore(bytes).expect_err("it cannot be restored");
    let of_format = |format| {
        let mut bytes = a_snapshot();
        bytes[8] = format;
        bytes
    };
    let mut longer = a_snapshot();
    longer.push(0);
    assert!(matches!(refused(b"root:x:0:0:root:/root:/bin/bash\n"), RestoreError::Foreign));
    for other in [0, 1, 2, 4] {
        let why = refused(&of_format(other));
        assert!(matches!(why, RestoreError::OtherFormat(format) if format == u32::from(other)), "{why}");
    }
    assert!(matches!(refused(&[]), RestoreError::Damaged(_)));
    assert!(matches!(refused(&longer), RestoreError::Damaged(_)));
}

#[test]
fn buckets_that_are_full_again_are_not_saved() {
    let (clock, limits) = (FakeClock::default(), limits());
    let store = on(&clock).sweep(0).build();
    assert!(spends(&store, &charge("soon full", &limits[0], 10)));
    assert!(spends(&store, &charge("drained for a day", &limits[2], 7)));
    clock.advance(Duration::from_secs(5));
    assert_eq!(store.save(std::io::sink()).expect("a sink takes everything").buckets, 1);
}

/// Shows a wall time that differs from its time, as the machine's clock does after the wall clock has been set.
#[derive(Clone)]
struct Anchored {
    own: FakeClock,
    wall: FakeClock,
}

impl Clock for Anchored {
    fn now(&self) -> Micros {
        self.own.now()
    }

    fn wall(&self) -> Micros {
        self.wall.now()
    }
}

#[test]
fn only_the_time_between_the_two_processes_refills() {
    let limit = &limits()[0];
    let (own, wall) = (FakeClock::default(), FakeClock::default());
    let store = MemoryStore::builder().clock(Anchored { own: own.clone(), wall: wall.clone() }).build();
    assert!(spends(&store, &charge("caller", limit, 10)));
    // The wall clock is set an hour ahead: the store's own clock does not follow.
    wall.advance(Duration::from_secs(3_600));
    let bytes = saved(&store);
    // The next process starts from the wall clock, two seconds later.
    wall.advance(Duration::from_secs(2));
    let restored = MemoryStore::builder()
        .clock(Anchored { own: FakeClock::at(wall.now()), wall: wall.clone() })
        .restore(&*bytes)
        .expect("it was just saved");
    assert_eq!(left(&restored, "caller", limit), 4_000_000, "two seconds, not an hour");
}

#[test]
fn a_clock_that_is_behind_keeps_the_tokens_and_locks_nobody_out() {
    let (clock, limit) = (FakeClock::default(), &limits()[0]);
    let store = on(&clock).build();
    assert!(spends(&store, &charge("caller", limit, 8)));
    let bytes = saved(&store);
    clock.step_back(Duration::from_secs(86_400));
    let restored = on(&clock).restore(&*bytes).expect("it was just saved");
    assert!(!spends(&restored, &charge("caller", limit, 3)), "nothing is minted");
    clock.advance(Duration::from_secs(1));
    assert!(spends(&restored, &charge("caller", limit, 4)), "two were kept and two came back");
}

#[test]
fn a_bucket_that_a_slower_limit_has_denied_is_saved_and_restored_until_that_limit_has_filled_it() {
    let clock = FakeClock::default();
    let fast = named("login", Limit::per_second(10).build().expect("in bounds"));
    let slow = named("login", Limit::per_day(10).build().expect("in bounds"));
    let store = on(&clock).build();
    assert!(spends(&store, &charge("caller", &fast, 10)));
    assert!(!spends(&store, &charge("caller", &slow, 1)));
    clock.advance(Duration::from_secs(2));
    let bytes = saved(&store);
    clock.advance(Duration::from_secs(2));
    let restored = on(&clock).restore(&*bytes).expect("it was just saved");
    assert!(!spends(&restored, &charge("caller", &slow, 1)));
}

#[test]
fn a_smaller_store_keeps_the_drained_buckets() {
    let (clock, limit) = (FakeClock::default(), &limits()[2]);
    let store = on(&clock).build();
    for key in 0..2_000 {
        let cost = if key % 10 == 0 { 7 } else { 1 };
        assert!(spends(&store, &charge(&format!("caller {key}"), limit, cost)));
    }
    let restored = on(&clock).max_keys(1_000).restore(&*saved(&store)).expect("it was just saved");
    assert_eq!(restored.usage().keys, 1_000);
    for key in (0..2_000).step_by(10) {
        assert_eq!(left(&restored, &format!("caller {key}"), limit), 0);
    }
}

#[test]
fn one_process_at_a_time_has_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("buckets");
    let first = SnapshotFile::open(&path).expect("nobody has it");
    assert!(matches!(SnapshotFile::open(&path), Err(FileError::InUse(_))));
    drop(first);
    assert!(SnapshotFile::open(&path).is_ok());
}

#[test]
fn a_save_takes_the_place_of_the_last_one_in_one_step_and_is_private() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("buckets");
    let (clock, limit) = (FakeClock::default(), &limits()[2]);
    let mut file = SnapshotFile::open(&path).expect("nobody has it");
    let store = file.restore(on(&clock)).expect("no file is no buckets");
    // Kept open, so that no inode is used twice.
    let mut files: Vec<File> = Vec::new();
    let inode = |file: &File| file.metadata().expect("it is open").ino();
    for spent in 1..=3 {
        assert!(spends(&store, &charge("caller", limit, 1)));
        file.save(&store).expect("the folder is ours");
        let new = File::open(&path).expect("it was saved");
        assert!(files.iter().all(|old| inode(old) != inode(&new)), "a new file each time");
        assert_eq!(new.metadata().expect("it is open").permissions().mode() & 0o777, 0o600);
        files.push(new);
        let looked = SnapshotFile::read(&path, on(&clock)).expect("reading takes no lock");
        assert_eq!(left(&looked, "caller", limit), (7 - spent) * 1_000_000);
    }
    file.save(&store).expect("the folder is ours");
    let same = File::open(&path).expect("it is there");
    assert_eq!(inode(&same), inode(&files[2]), "nothing has changed");
    assert_eq!(names(folder.path()), ["buckets", "buckets.lock"], "nothing is left lying about");
}

#[test]
fn a_save_that_was_cut_short_leaves_the_last_one_and_does_not_hinder_the_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("buckets");
    let (clock, limit) = (FakeClock::default(), &limits()[2]);
    let mut file = SnapshotFile::open(&path).expect("nobody has it");
    let store = on(&clock).build();
    assert!(spends(&store, &charge("caller", limit, 7)));
    file.save(&store).expect("the folder is ours");
    std::fs::write(folder.path().join("buckets.new"), &a_snapshot()[..100]).expect("the folder is ours");
    let restored = file.restore(on(&clock)).expect("the last one is whole");
    assert_eq!(left(&restored, "caller", limit), 0);
    assert!(spends(&restored, &charge("another", limit, 7)));
    file.save(&restored).expect("the folder is ours");
    assert_eq!(names(folder.path()), ["buckets", "buckets.lock"]);
}

#[test]
fn what_cannot_be_restored_is_refused_and_can_be_set_aside() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("buckets");
    std::fs::write(&path, &a_snapshot()[..100]).expect("the folder is ours");
    let file = SnapshotFile::open(&path).expect("nobody has it");
    let why = file.restore(MemoryStore::builder()).expect_err("it is damaged");
    assert!(matches!(&why, FileError::Unrestorable(_, RestoreError::Damaged(_))), "{why}");
    let aside = file.set_aside().expect("the folder is ours");
    assert_eq!(std::fs::read(aside).expect("it was kept").len(), 100);
    assert_eq!(file.restore(MemoryStore::builder()).expect("no file is no buckets").usage().keys, 0);
}

#[test]
fn a_full_disk_and_a_missing_folder_are_errors() {
    let full = File::options().write(true).open("/dev/full").expect("every Linux has one");
    let why = on(&FakeClock::default()).build().save(&full).expect_err("nothing fits");
    assert_eq!(why.kind(), ErrorKind::StorageFull);
    assert!(matches!(SnapshotFile::open("/nowhere/buckets"), Err(FileError::Unusable(..))));
}

#[test]
fn a_keeper_saves_now_and_then_and_at_the_end_and_goes_on_after_a_failure() {
    let folder = tempfile::tempdir().expect("a folder");
    let home = folder.path().join("home");
    std::fs::create_dir(&home).expect("the folder is ours");
    let (clock, limit) = (FakeClock::default(), &limits()[2]);
    let file = SnapshotFile::open(home.join("buckets")).expect("nobody has it");
    let store = Arc::new(on(&clock).build());
    let (tell, told) = channel();
    let every = Duration::from_millis(5);
    let keeper = AutoSave::start(Arc::clone(&store), file, every, move |saved| {
        // The receiver is gone when the test is over.
        let _heard = tell.send(saved.map(|saved| saved.buckets));
    });
    let keeper = keeper.expect("a thread");
    let heard = |wanted: &dyn Fn(&Result<u64, FileError>) -> bool| {
        let heard = std::iter::from_fn(|| told.recv_timeout(Duration::from_secs(20)).ok());
        assert!(heard.into_iter().any(|saved| wanted(&saved)), "the keeper says nothing");
    };
    assert!(spends(&store, &charge("caller", limit, 1)));
    heard(&|saved| matches!(saved, Ok(1)));
    // In one step: the keeper may be writing a file.
    std::fs::rename(&home, folder.path().join("elsewhere")).expect("the folder is ours");
    heard(&Result::is_err);
    std::fs::create_dir(&home).expect("the folder is ours");
    heard(&Result::is_ok);
    assert!(spends(&store, &charge("another", limit, 1)));
    drop(keeper);
    let looked = SnapshotFile::read(home.join("buckets"), on(&clock)).expect("it was saved at the end");
    assert_eq!(looked.usage().keys, 2);
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder is ours");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("it is there").file_name().into_string().expect("text")).collect();
    names.sort();
    names
}

#[test]
fn a_snapshot_that_others_could_read_is_for_its_owner_alone_after_a_save_and_when_set_aside() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("buckets");
    let mode = |path: &Path| path.metadata().expect("it is there").permissions().mode() & 0o777;
    let open_to_all = || {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("it is ours");
    };
    let mut file = SnapshotFile::open(&path).expect("nobody has it");
    std::fs::write(&path, "").expect("the folder is ours");
    open_to_all();
    let store = MemoryStore::builder().clock(FakeClock::default()).build();
    file.save(&store).expect("the folder is ours");
    assert_eq!(mode(&path), 0o600);
    open_to_all();
    assert_eq!(mode(&file.set_aside().expect("the folder is ours")), 0o600);
}

#[tokio::test]
async fn permits_are_held_across_a_restart_until_their_time_is_up() {
    let (before, after) = (FakeClock::at(Micros::from_secs(50)), FakeClock::at(Micros::from_secs(1_000)));
    let jobs = named("jobs", Limit::concurrent(2).build().expect("in bounds"));
    let asked = before.now();
    let id = |number| PermitId::new(asked, Duration::ZERO, number, "worker-7").expect("a holder");
    let line = charge("ann", &jobs, 1);
    let store = on(&before).build();
    assert!(permits(&store, &line, &id(1), PermitStep::Acquire));
    before.advance(Duration::from_secs(10));
    assert!(permits(&store, &line, &id(2), PermitStep::Acquire));
    let bytes = saved(&store);
    // The two clocks count from different moments: times are converted by the wall clock, which of a fake clock is its time.
    before.advance(Duration::from_secs(5));
    after.set(before.now());
    let store = on(&after).restore(&*bytes).expect("a snapshot");
    assert_eq!(store.usage().permits, 2);
    assert!(!permits(&store, &line, &id(3), PermitStep::Acquire));
    let holders = store.holders(&line).await.expect("a store in memory never fails");
    let holders: Vec<_> = holders[0].iter().map(|held| held.id.clone()).collect();
    assert_eq!(holders, [id(1), id(2)]);
    assert!(permits(&store, &line, &id(2), PermitStep::Renew));
    after.advance(Duration::from_secs(15));
    assert!(permits(&store, &line, &id(3), PermitStep::Acquire), "the first has ended");
    assert_eq!((store.usage().permits, store.usage().expired_permits), (2, 1));
}
