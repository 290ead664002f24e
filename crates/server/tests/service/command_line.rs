//! The commands that ask a running server.

use std::process::Output;

use crate::support::Process;

/// A server in a process of its own, and commands that ask it.
struct Desk {
    server: Process,
}

impl Desk {
    fn open() -> Self {
        Self { server: Process::serve_with(&[], &[("SPILE_ADMIN_TOKEN", Process::TOKEN)]) }
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
fn buckets_are_inspected_and_reset() {
    let desk = Desk::open();
    desk.says(&["check", "user:1", "--plan", "free", "--cost", "10"], 0, "allowed");
    desk.says(&["inspect", "user:1", "--plan", "pro"], 0, "100/100");
    desk.says(&["reset", "user:1"], 0, "full again");
    desk.says(&["inspect", "user:1", "--json"], 0, "\"tokens\":10");
}

#[test]
fn tenants_and_plans_are_added_listed_and_removed() {
    let desk = Desk::open();
    desk.says(&["plan", "put", "gold", "--capacity", "50", "--refill", "5/s"], 0, "plan gold is 50, 5/s");
    desk.says(&["plan", "list"], 0, "50, 5/s");
    desk.says(&["tenant", "add", "acme", "--plan", "gold"], 0, "the only time");
    desk.says(&["tenant", "list"], 0, "acme");
    desk.says(&["plan", "remove", "gold"], 2, "no plan is called `gold`");
    desk.says(&["tenant", "remove", "acme"], 0, "removed acme");
    desk.says(&["plan", "remove", "gold"], 0, "removed gold");
    desk.says(&["tenant", "add", "acme", "--plan", "gold"], 2, "no plan is called `gold`");
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
