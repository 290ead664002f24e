//! The commands that ask a running server.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use spile_testkit::wait;

use crate::support::{NOBODY, Process};

/// A server in a process of its own, and commands that ask it.
struct Desk {
    server: Process,
}

impl Desk {
    fn open() -> Self {
        Self::open_with(&[], &[])
    }

    fn open_with(flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let variables = [&[("SPILE_ADMIN_TOKEN", Process::TOKEN)], variables].concat();
        Self { server: Process::serve_with(flags, &variables) }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let http = format!("http://{}", self.server.address("http"));
        let admin = format!("http://{}", self.server.address("admin"));
        let variables = [
            ("SPILE_SERVER", http.as_str()),
            ("SPILE_ADMIN", admin.as_str()),
            ("SPILE_ADMIN_TOKEN", Process::TOKEN),
        ];
        Process::run_with(arguments, &variables)
    }

    #[track_caller]
    fn says(&self, arguments: &[&str], code: i32, words: &str) -> String {
        let output = self.run(arguments);
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(words), "{arguments:?}: {words} in {text}");
        text
    }
}

#[test]
fn check_and_peek_tell_allowed_denied_and_wrong_apart_by_their_exit_code() {
    let desk = Desk::open();
    desk.says(&["check", "user:1", "--plan", "free", "--cost", "10"], 0, "allowed: 0 of 10 tokens left");
    desk.says(&["check", "user:1", "--plan", "free", "--cost", "10"], 1, "denied by free");
    desk.says(&["peek", "user:2", "--rule", "default"], 0, "allowed: 10 of 10 tokens left");
    desk.says(&["check", "user:2", "--plan", "nope"], 2, "no plan is called");
    desk.says(&["check", "user:2"], 2, "--plan");
    let json = desk.says(&["check", "user:3", "--plan", "free", "--plan", "pro", "--json"], 0, "\"limits\"");
    assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{json}");
}

#[test]
fn quotas_are_put_listed_explained_and_told_with_what_was_used() {
    let desk = Desk::open();
    let flags =
        ["--quota", "100", "--per", "year", "--zone", "Europe/Berlin", "--anchor", "04-01", "--debt", "7"];
    desk.says(&[&["plan", "put", "gold"], &flags[..]].concat(), 0, "plan gold is in force");
    desk.says(
        &["plan", "list"],
        0,
        "gold        gold        100       per year in Europe/Berlin from 04-01  7     registry",
    );
    for (wrong, words) in [
        (&["--quota", "100"][..], "--per"),
        (&["--capacity", "5"], "--refill"),
        (&["--quota", "5", "--per", "day", "--capacity", "5", "--refill", "1/s"], "cannot be used with"),
        (&["--debt", "5"], "a plan needs a limit"),
        (&["--quota", "5", "--per", "day", "--zone", "Berln"], "zone"),
    ] {
        desk.says(&[&["plan", "put", "silver"], wrong].concat(), 2, words);
    }
    desk.says(&["tenant", "add", "acme", "--plan", "gold"], 0, "the only time");
    desk.says(
        &["check", "tenant:acme", "--rule", "default", "--cost", "60"],
        0,
        "allowed: 40 of 100 tokens left",
    );
    let table = desk.says(&["tenant", "usage", "acme"], 0, "LIMIT  USED  OF   LEFT  FROM");
    assert!(table.contains("gold   60    100  40") && table.contains("-04-01T00:00:00+02:00"), "{table}");
    desk.says(&["tenant", "usage", "acme", "--json"], 0, "\"used\":60");
    desk.says(&["tenant", "usage", "nope"], 2, "");
    desk.says(&["inspect", "tenant:acme", "--plan", "gold"], 0, "40/100");
    let explained = desk.says(&["explain", "tenant:acme", "--cost", "50"], 0, "would be denied now");
    assert!(explained.contains("left of its quota (100 per year in Europe/Berlin from"), "{explained}");
    assert!(explained.contains("raise `quota` of plan `gold`"), "{explained}");
}

#[test]
fn amounts_of_money_are_put_listed_and_spent_to_the_millionth() {
    let desk = Desk::open();
    let flags = ["--quota", "250.5", "--per", "month", "--unit", "usd"];
    desk.says(&[&["plan", "put", "money"], &flags[..]].concat(), 0, "plan money is in force");
    desk.says(&["plan", "list"], 0, "money       money       250.5     per month");
    desk.says(&["plan", "show", "money"], 0, "unit    usd");
    let left = "allowed: 250.496825 of 250.5 tokens left";
    desk.says(&["check", "user:1", "--plan", "money", "--cost", "0.003175"], 0, left);
    desk.says(&["check", "user:1", "--plan", "money", "--cost", "250.496826"], 1, "denied by money");
    desk.says(&["explain", "user:1", "--cost", "0.5"], 0, "it pays 0.5 tokens a request");
    for (wrong, words) in [
        (&["--quota", "250.0000001", "--per", "month"][..], "six decimals"),
        (&["--quota", "5", "--per", "month", "--unit", "dollars"], "a currency of ISO 4217"),
        (&["--concurrency", "5", "--unit", "usd"], "cannot be used with"),
        (&["--capacity", "0.5", "--refill", "1/s"], "capacity 0.5 is outside 1 to 1000000000"),
    ] {
        desk.says(&[&["plan", "put", "silver"], wrong].concat(), 2, words);
    }
}

#[test]
fn concurrencies_are_put_listed_and_not_checked() {
    let desk = Desk::open();
    desk.says(&["plan", "put", "jobs", "--concurrency", "5", "--hold", "10s"], 0, "plan jobs is in force");
    desk.says(&["plan", "list"], 0, "jobs        jobs        5         held 10s        registry");
    for (wrong, words) in [
        (&["--hold", "10s"][..], "--concurrency"),
        (&["--concurrency", "5", "--debt", "7"], "cannot be used with"),
        (&["--concurrency", "5", "--quota", "5", "--per", "day"], "cannot be used with"),
        (&["--concurrency", "5", "--hold", "10ms"], "hold"),
    ] {
        desk.says(&[&["plan", "put", "silver"], wrong].concat(), 2, words);
    }
    desk.says(&["check", "user:1", "--plan", "jobs"], 2, "limit jobs is a concurrency: it takes a permit");
    desk.says(&["peek", "user:1", "--plan", "jobs"], 0, "allowed: 5 of 5");
    desk.says(&["inspect", "user:1", "--plan", "jobs"], 0, "5/5     held 10s  0 held");
}

#[test]
fn buckets_are_inspected_and_reset() {
    let desk = Desk::open();
    desk.says(&["check", "user:1", "--plan", "free", "--cost", "10"], 0, "allowed");
    desk.says(&["inspect", "user:1", "--plan", "pro"], 0, "100/100");
    desk.says(&["reset", "user:1"], 0, "full again");
    desk.says(&["inspect", "user:1", "--json"], 0, "\"tokens\":10");
}

#[test]
fn a_key_that_the_store_does_not_have_is_said_to_have_no_bucket() {
    let desk = Desk::open();
    desk.says(&["inspect", "usr:1"], 0, "usr:1 has no bucket yet");
    desk.says(&["peek", "usr:1", "--rule", "default"], 0, "no bucket yet");
    desk.says(&["check", "user:1", "--plan", "free"], 0, "allowed: 9 of 10 tokens left");
    let text = desk.says(&["inspect", "user:1"], 0, "LIMIT ");
    assert!(!text.contains("user:1 has no bucket yet"), "{text}");
    let line = |limit: &str| text.lines().find(|line| line.starts_with(limit)).expect("every limit is shown");
    assert!(line("free").contains("9/10") && line("pro").contains("no bucket yet"), "{text}");
    let peeked = desk.says(&["peek", "user:1", "--plan", "free"], 0, "allowed: 9 of 10");
    assert!(!peeked.contains("no bucket"), "{peeked}");
}

#[test]
fn tenants_and_plans_are_added_listed_and_removed() {
    let desk = Desk::open();
    desk.says(&["plan", "put", "gold", "--capacity", "50", "--refill", "5/s"], 0, "plan gold is in force");
    desk.says(&["plan", "list"], 0, "gold        gold        50        5/s           registry");
    desk.says(&["plan", "show", "gold"], 0, "refill    5/s");
    desk.says(&["tenant", "add", "acme", "--plan", "gold"], 0, "the only time");
    desk.says(&["tenant", "add", "acme", "--plan", "pro"], 2, "`spile tenant put acme --plan pro`");
    desk.says(&["tenant", "show", "acme", "--json"], 0, "\"apiKeyCount\":1");
    desk.says(&["tenant", "put", "acme", "--plan", "pro"], 0, "tenant acme is in force");
    desk.says(&["tenant", "list"], 0, "TENANT  PLAN  API KEYS  SOURCE\nacme    pro   1         registry");
    desk.says(&["tenant", "put", "acme", "--plan", "gold"], 0, "");
    desk.says(&["tenant", "put", "nope", "--plan", "gold"], 2, "there is no tenant `nope`");
    desk.says(&["plan", "remove", "gold"], 2, "no plan is called `gold`");
    desk.says(&["tenant", "remove", "acme"], 0, "removed acme");
    desk.says(&["plan", "remove", "gold"], 0, "removed gold");
    desk.says(&["tenant", "add", "acme", "--plan", "gold"], 2, "no plan is called `gold`");
}

#[test]
fn rules_are_put_by_flags_or_a_file_listed_shown_and_removed() {
    let desk = Desk::open();
    let login = ["--path", "/login", "--method", "POST", "--key", "ip", "--plan", "free", "--cost", "2"];
    desk.says(&[&["rule", "put", "login"][..], &login].concat(), 0, "rule login is in force");
    desk.says(&["rule", "list"], 0, "login    /login POST  ip");
    desk.says(&["check", "user:1", "--rule", "login"], 0, "allowed: 8 of 10");
    let shown = desk.says(&["rule", "show", "login", "--json"], 0, "\"cost\":2");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rule.json");
    fs::write(&path, shown.replace("\"cost\":2", "\"cost\":5")).expect("the folder is ours");
    let file = path.to_str().expect("a path of text");
    desk.says(&["rule", "put", "login", "--file", file], 0, "in force");
    desk.says(&["check", "user:1", "--rule", "login"], 0, "allowed: 3 of 10");
    desk.says(&["rule", "put", "login", "--file", file, "--cost", "1"], 2, "--file");
    desk.says(&["rule", "put", "login"], 2, "--plan");
    desk.says(&["rule", "put", "login", "--plan", "banned"], 0, "in force");
    desk.says(&["check", "user:1", "--rule", "login"], 2, "denies every request");
    desk.says(&["rule", "put", "login", "--plan", "nope"], 2, "no plan is called `nope`");
    desk.says(&["rule", "remove", "login"], 0, "removed login");
    desk.says(&["rule", "show", "login"], 2, "there is no rule `login`; `spile rule list`");
}

#[test]
fn a_file_is_read_again_on_demand_and_says_what_is_wrong_or_waits() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("spile.toml");
    let write = |text: &str| fs::write(&path, text).expect("the folder is ours");
    write("");
    let file = path.to_str().expect("a path of text");
    let desk = Desk::open_with(&["--config", file], &[]);
    desk.says(&["reload"], 0, "the file is in force");
    write("[store]\nmax_keys = 5000\n");
    desk.says(&["reload"], 0, "waits for a restart: store.max_keys");
    write("[store]\nmax_keys = 5\n");
    desk.says(&["reload"], 2, "spile.toml:2:12");
    desk.says(&["reload", "--json"], 2, "the previous configuration stays in force");
}

#[test]
fn a_reload_of_a_server_without_a_file_says_that_there_is_none() {
    let desk = Desk::open();
    let said = desk.says(&["reload"], 0, "runs without a configuration file: no setting was changed");
    assert!(!said.contains("in force"), "{said}");
    desk.says(&["reload", "--json"], 0, r#"{"result":"noFile","file":null,"needsRestart":[]}"#);
}

#[test]
fn what_a_restart_loses_is_said_and_beside_a_path_nothing_is_lost() {
    let warning = "loses it when it is started again";
    Desk::open().says(&["tenant", "add", "acme", "--plan", "free"], 0, warning);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("buckets");
    let path = path.to_str().expect("a path of text");
    let desk = Desk::open_with(&[], &[("SPILE_STORE__PATH", path)]);
    for command in [&["tenant", "add", "acme", "--plan", "free"][..], &["tenant", "key", "acme"]] {
        let said = desk.says(command, 0, "the only time");
        assert!(!said.contains("warning"), "{said}");
    }
    let said = desk.says(&["rule", "put", "all", "--plan", "free"], 0, "rule all is in force");
    assert!(!said.contains("warning"), "{said}");
    assert!(desk.server.end_by(Signal::TERM).0.success());
    let desk = Desk::open_with(&[], &[("SPILE_STORE__PATH", path)]);
    desk.says(&["tenant", "list"], 0, "acme    free  2         registry");
    desk.says(&["rule", "show", "all"], 0, "registry");
}

#[test]
fn a_server_is_found_by_host_and_port_and_by_port_alone() {
    let desk = Desk::open();
    let (http, admin) = (desk.server.address("http"), desk.server.address("admin"));
    let port = |address: &str| address.rsplit_once(':').expect("an address has a port").1.to_owned();
    for (http, admin) in [
        (http.to_owned(), admin.to_owned()),
        (format!(":{}", port(http)), format!(":{}", port(admin))),
        (format!("localhost:{}", port(http)), format!("localhost:{}", port(admin))),
    ] {
        desk.says(&["peek", "ann", "--plan", "free", "--server", &http], 0, "allowed");
        desk.says(&["health", "--admin", &admin], 0, "ready");
        desk.says(&["health", "--live", "--json", "--admin", &admin], 0, "{\"alive\":true}");
        desk.says(&["plan", "list", "--admin", &admin], 0, "PLAN ");
    }
}

#[test]
fn a_command_without_the_right_token_says_whose_token_is_missing() {
    let refused = |server: &Process, token: Option<&str>, words: &str| {
        let variables: Vec<_> = token.map(|token| ("SPILE_ADMIN_TOKEN", token)).into_iter().collect();
        let output = Process::run_with(&["tenant", "list", "--admin", server.address("admin")], &variables);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(words) && !stderr.contains("guess"), "{words} in {stderr}");
    };
    refused(
        &Process::serve(&[]),
        None,
        "that server has no admin token: start the server with SPILE_ADMIN_TOKEN",
    );
    refused(&Process::serve(&[]), Some("guess"), "that server has no admin token");
    let guarded = Desk::open().server;
    refused(&guarded, None, "asks for its admin token: set SPILE_ADMIN_TOKEN");
    refused(&guarded, Some("guess"), "has another admin token than the one in SPILE_ADMIN_TOKEN");
}

#[test]
fn top_needs_a_terminal_or_prints_its_figures_once() {
    let desk = Desk::open();
    desk.says(&["top"], 2, "draws in a terminal");
    let figures = desk.says(&["top", "--json"], 0, "\"storeState\":\"well\"");
    assert!(serde_json::from_str::<serde_json::Value>(&figures).is_ok(), "{figures}");
}

#[test]
fn every_command_has_a_manual_page_and_no_page_refers_to_one_that_is_not_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("man");
    let output = Process::run(&["man", path.to_str().expect("a path of text")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names: Vec<String> = fs::read_dir(&path)
        .expect("the folder is there")
        .map(|page| page.expect("a page").file_name().into_string().expect("names are text"))
        .collect();
    for name in ["spile.1", "spile-serve.1", "spile-config-check.1", "spile-rule-put.1", "spile-explain.1"] {
        assert!(names.iter().any(|known| known == name), "{name} in {names:?}");
    }
    for name in &names {
        let page = fs::read_to_string(path.join(name)).expect("it is text").replace("\\-", "-");
        for (before, _) in page.match_indices("(1)").map(|(at, _)| page.split_at(at)) {
            let start = before.rfind(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
            let meant = &before[start.map_or(0, |at| at + 1)..];
            let meant = meant.trim_start_matches("fB").trim_start_matches("fR");
            assert!(names.contains(&format!("{meant}.1")), "{meant}(1) in {name}");
        }
    }
}

#[test]
fn a_server_that_is_not_there_is_said_to_be() {
    let output = Process::run(&["check", "user:1", "--plan", "free", "--server", "http://127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("no server answers at http://127.0.0.1:1"), "{stderr}");
}

#[test]
fn shells_and_manuals_are_served() {
    for arguments in
        [&["completions", "bash"][..], &["completions", "zsh"], &["completions", "fish"], &["man"]]
    {
        let output = Process::run(arguments);
        assert!(output.status.success() && output.stdout.len() > 500, "{arguments:?}");
    }
}

#[test]
fn a_denial_because_the_store_failed_is_told_apart_from_one_by_a_limit() {
    let server = Process::serve_with(&["--store", NOBODY, "--on-failure", "deny"], &[]);
    let url = format!("http://{}", server.address("http"));
    for command in ["check", "peek"] {
        let output = Process::run(&[command, "user:1", "--plan", "free", "--server", &url]);
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(2), "{stdout}");
        assert!(stdout.contains("decided without the store"), "{stdout}");
    }
}

#[test]
fn every_command_that_asks_a_server_gives_up_in_time_and_says_so() {
    // The kernel takes connections for it, and no answer ever comes.
    let silent = TcpListener::bind("127.0.0.1:0").expect("port 0 is always free");
    let url = format!("http://{}", silent.local_addr().expect("it is bound"));
    let redis = url.replace("http:", "redis:");
    let commands: [&[&str]; 16] = [
        &["rule", "list"],
        &["reload"],
        &["explain", "ann"],
        &["top", "--json"],
        &["check", "ann", "--plan", "free"],
        &["peek", "ann", "--plan", "free"],
        &["inspect", "ann"],
        &["reset", "ann"],
        &["tenant", "list"],
        &["tenant", "add", "acme", "--plan", "free"],
        &["tenant", "key", "acme"],
        &["tenant", "remove", "acme"],
        &["plan", "list"],
        &["plan", "put", "x", "--capacity", "1", "--refill", "1/s"],
        &["plan", "remove", "x"],
        &["health"],
    ];
    let variables = [("SPILE_SERVER", url.as_str()), ("SPILE_ADMIN", url.as_str())];
    for command in commands {
        let output = Process::run_with(&[command, &["--timeout", "50ms"]].concat(), &variables);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {stderr}");
        assert!(stderr.contains(&format!("no answer from {url} within 50ms")), "{command:?}: {stderr}");
    }
    for command in [&["check", "ann", "--plan", "free"][..], &["inspect", "ann"], &["reset", "ann"]] {
        let output = Process::run(&[command, &["--store", &redis, "--timeout", "50ms"]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {stderr}");
        assert!(stderr.contains("the store does not answer"), "{command:?}: {stderr}");
    }
    for timeout in ["0s", "2days", "soon", ""] {
        let output = Process::run_with(&["health", "--timeout", timeout], &variables);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && stderr.contains("--timeout"), "{timeout}: {stderr}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_and_a_full_disk_are_no_panic() {
    let commands: [&[&str]; 9] = [
        &["config", "show"],
        &["config", "show", "--json"],
        &["config", "check", "--json", "nowhere.toml"],
        &["config", "init"],
        &["openapi"],
        &["man"],
        &["completions", "bash"],
        &["--help"],
        &["check", "ann", "--plan", "nope"],
    ];
    for command in commands {
        let (reader, gone) = io::pipe().expect("a pipe");
        drop(reader);
        for (stdout, is_full) in [(Stdio::from(gone), false), (Stdio::from(full()), true)] {
            let ended =
                Process::spawn_to(command, stdout, Stdio::piped()).wait_with_output().expect("it ends");
            let stderr = String::from_utf8_lossy(&ended.stderr);
            assert!(!stderr.contains("panicked"), "{command:?}: {stderr}");
            let fails = command.contains(&"check");
            let expected = if is_full && command[0] != "--help" || fails { 2 } else { 0 };
            assert_eq!(ended.status.code(), Some(expected), "{command:?} {is_full}: {stderr}");
        }
        let ended = Process::spawn_to(command, full(), full()).wait().expect("it ends");
        assert!(ended.code().is_some_and(|code| code <= 2), "{command:?}: {ended}");
    }
}

#[test]
fn a_server_runs_on_whatever_becomes_of_its_output() {
    let flags = ["serve", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--store", NOBODY];
    let (reader, gone) = io::pipe().expect("a pipe");
    drop(reader);
    let outputs =
        [(Stdio::from(full()), Stdio::from(full())), (gone.try_clone().expect("a pipe").into(), gone.into())];
    for (stdout, stderr) in outputs {
        let mut server = Process::spawn_to(&flags, stdout, stderr);
        let pid = Pid::from_child(&server);
        wait::until_true("it listens", || listening(server.id()).len() == 2);
        for port in listening(server.id()) {
            let mut caller = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
            caller.write_all(b"GET /livez HTTP/1.0\r\n\r\n").expect("it reads");
            let mut answer = String::new();
            caller.read_to_string(&mut answer).expect("it answers");
            assert!(answer.starts_with("HTTP/1.0 "), "{answer}");
            // What it says about the reload is lost, too.
            kill_process(pid, Signal::HUP).expect("the process is ours");
        }
        kill_process(pid, Signal::TERM).expect("the process is ours");
        assert_eq!(server.wait().expect("it ends").code(), Some(0));
    }
}

/// A disk without room.
fn full() -> File {
    File::options().write(true).open("/dev/full").expect("Linux has one")
}

/// The ports that a process listens on.
fn listening(process: u32) -> Vec<u16> {
    let folder = format!("/proc/{process}");
    let fds = fs::read_dir(format!("{folder}/fd")).into_iter().flatten().flatten();
    let sockets: Vec<String> =
        fds.filter_map(|fd| Some(fs::read_link(fd.path()).ok()?.to_str()?.to_owned())).collect();
    let table = fs::read_to_string(format!("{folder}/net/tcp")).unwrap_or_default();
    let port = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (_, port) = words.get(1)?.split_once(':')?;
        let ours = words.get(3) == Some(&"0A") && sockets.contains(&format!("socket:[{}]", words.get(9)?));
        u16::from_str_radix(port, 16).ok().filter(|_| ours)
    };
    table.lines().filter_map(port).collect()
}
