//! Programs in other languages share buckets with a limiter. They are the examples of docs/guide/redis.md.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use spile_core::{Charges, Limit, Plan, StoreExt};
use spile_limiter::RateLimiter;
use spile_redis::RedisStore;
use spile_testkit::proxy::{Mode, Proxy};
use spile_testkit::redis::{RedisReply, RedisServer};
use spile_testkit::wait;
use tempfile::TempDir;

use crate::common::{PATIENT, charge};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/script/lua/portable.lua");
const PYTHON_CLIENT: &str = include_str!("../../../../../../examples/portable/spend.py");
const NODE_CLIENT: &str = include_str!("../../../../../../examples/portable/spend.mjs");
/// The plan of both programs.
const GOLD: [(&str, &str); 2] = [("burst", "2500, 100/day"), ("monthly", "30000, 30000/30days")];
/// Three callers ask this often, so that even the last one gets some of the 2,500 tokens.
const ASKED: u32 = 1_000;
const HASHED: &str = "a key whose tag is longer than 200 bytes: ";

/// A language, and the program in it that spends a number of tokens one by one.
#[derive(Clone, Copy, Debug)]
enum Language {
    Python,
    JavaScript,
}

const LANGUAGES: [Language; 2] = [Language::Python, Language::JavaScript];

impl Language {
    fn spend(self, folder: &TempDir, url: &str, key: &str, requests: u32) -> Child {
        let (interpreter, program, text) = match self {
            Self::Python => (".cache/redis/bin/python", "spend.py", PYTHON_CLIENT),
            Self::JavaScript => (".cache/ioredis/node", "spend.mjs", NODE_CLIENT),
        };
        std::fs::write(folder.path().join(program), text).expect("the folder is ours");
        let interpreter = Path::new(ROOT).join(interpreter);
        let mut command = Command::new(&interpreter);
        command.args([program, SCRIPT, url, key, &requests.to_string()]).current_dir(folder);
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap_or_else(|why| {
            panic!("cannot run {}: {why}; scripts/install-test-deps installs it", interpreter.display())
        })
    }
}

/// A folder from which programs find the packages of npm.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let packages = Path::new(ROOT).join(".cache/ioredis/node_modules");
    std::os::unix::fs::symlink(packages, folder.path().join("node_modules")).expect("the folder is ours");
    folder
}

/// How many requests a program was allowed.
fn allowed(program: Child) -> u32 {
    let output = program.wait_with_output().expect("the program ends");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let number = text.split_once(" allowed").and_then(|(number, _)| number.parse().ok());
    number.unwrap_or_else(|| panic!("{text}\n{errors}"))
}

fn limiter(store: RedisStore) -> RateLimiter<RedisStore> {
    let gold = GOLD.map(|(name, limit)| (name, limit.parse::<Limit>().expect("a sound limit")));
    let gold = Plan::chain("gold", gold).expect("two limits");
    RateLimiter::builder().store(store).plans([gold]).deadline(PATIENT).build()
}

fn gold(key: &str) -> Charges<'_> {
    Charges::new(GOLD.map(|(name, limit)| charge(key, &format!("gold/{name}"), limit, 1)))
        .expect("two limits")
}

#[tokio::test]
async fn a_limiter_and_programs_in_other_languages_never_admit_more_than_their_one_bucket_allows() {
    let (server, folder) = (RedisServer::start(), folder());
    let store = RedisStore::builder(server.url()).timeout(PATIENT).build().expect("a sound URL");
    let limiter = limiter(store.clone());
    let hashed = HASHED.repeat(5);
    for key in ["user:123", "{eve}:100% é", &hashed] {
        server.command(&["FLUSHALL"]);
        let programs = LANGUAGES.map(|language| language.spend(&folder, &server.url(), key, ASKED));
        wait::until_true("a program to spend", || server.command(&["DBSIZE"]).int() > 0);
        let mut sum = 0;
        for _ in 0..ASKED {
            sum += u32::from(limiter.allow(key, ["gold"], 1).await.expect("a sound question").allowed());
        }
        for (program, language) in programs.into_iter().zip(LANGUAGES) {
            let allowed = allowed(program);
            assert!(allowed >= 500, "{language:?} has its share of {key}: {allowed}");
            sum += allowed;
        }
        assert_eq!(sum, 2_500, "{key}");
        assert_eq!(server.command(&["DBSIZE"]).int(), 1, "one hash for all of them: {key}");
        let buckets = store.peek(&gold(key)).await.expect("an answer").buckets;
        let left: Vec<_> = buckets.iter().map(|bucket| bucket.amount().whole_tokens()).collect();
        assert_eq!(left, [0, 27_500], "{key}");
    }
}

#[tokio::test]
async fn what_each_of_them_leaves_looks_alike() {
    let (server, folder) = (RedisServer::start(), folder());
    let store = RedisStore::builder(server.url()).timeout(PATIENT).build().expect("a sound URL");
    assert!(store.spend(&gold("rust")).await.expect("an answer").allowed);
    assert_eq!(allowed(Language::Python.spend(&folder, &server.url(), "python", 1)), 1);
    assert_eq!(allowed(Language::JavaScript.spend(&folder, &server.url(), "javascript", 1)), 1);
    let mut earliest = 0;
    for key in ["rust", "python", "javascript"] {
        let hash = format!("spile:{{{key}}}:gold");
        let reply = server.command(&["HGETALL", &hash]);
        let mut pairs: Vec<_> = reply
            .list()
            .chunks(2)
            .map(|pair| pair.iter().map(RedisReply::text))
            .map(Vec::from_iter)
            .collect();
        pairs.sort();
        let moment = pairs[1][1];
        let fields = [
            ["burst:t", "2499000000"],
            ["burst:ts", moment],
            ["monthly:t", "29999000000"],
            ["monthly:ts", moment],
            ["v", "1"],
        ];
        assert_eq!(pairs, fields, "{key}");
        let moment: u64 = moment.parse().expect("plain digits");
        assert!(moment > earliest, "{key} asked later, and by the same clock");
        earliest = moment;
        // Twice the 30 days that the slower limit takes to fill.
        let lives = Duration::from_millis(server.command(&["PTTL", &hash]).int().unsigned_abs());
        let expected = Duration::from_secs(60 * 86_400);
        assert!(lives <= expected && lives + Duration::from_secs(60) > expected, "{key}: {lives:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_does_not_repeat_a_call_whose_reply_was_lost() {
    for language in LANGUAGES {
        let (server, folder) = (RedisServer::start(), folder());
        let proxy = Proxy::start(&server.address()).await;
        let mut program = language.spend(&folder, &proxy.url(), "ann", 1_000_000);
        wait::until_true("the program to spend", || server.command(&["DBSIZE"]).int() > 0);
        proxy.set(Mode::CutMidReply);
        wait::until_true("the program to end", || program.try_wait().expect("it is ours").is_some());
        assert!(!program.wait().expect("it has ended").success(), "{language:?}");
        assert_eq!(proxy.struck(), 1, "{language:?}: only the first reply was lost");
    }
}

#[test]
fn the_guide_shows_lines_of_the_programs() {
    let guide = std::fs::read_to_string(Path::new(ROOT).join("docs/guide/redis.md")).expect("the page");
    for (language, text) in [("python", PYTHON_CLIENT), ("js", NODE_CLIENT)] {
        let mark = format!("```{language} tested by redis/tests/redis/script/portable/clients.rs\n");
        let (_, block) = guide.split_once(&mark).unwrap_or_else(|| panic!("a block of {language}"));
        let (block, _) = block.split_once("```").expect("the block ends");
        let mut lines = text.lines().map(str::trim);
        for line in block.lines().map(str::trim).filter(|line| !line.is_empty()) {
            assert!(lines.any(|shown| shown == line), "{language}: {line}");
        }
    }
}
