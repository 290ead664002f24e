//! A server that is started by a person at a terminal.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::Process;

/// A terminal: what shows it, and what a program writes to.
fn terminal() -> (File, File) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("the kernel has terminals");
    grantpt(&master).expect("the terminal is ours");
    unlockpt(&master).expect("the terminal is ours");
    let name = ptsname(&master, Vec::new()).expect("the terminal has a name");
    let name = name.into_string().expect("names of terminals are ASCII");
    (master.into(), OpenOptions::new().read(true).write(true).open(name).expect("the terminal opens"))
}

/// What the terminal shows up to the end of the banner.
fn banner(screen: &mut File) -> String {
    let (mut shown, mut bytes) = (String::new(), [0; 4096]);
    while !shown.contains("/v1/check -H") {
        let read = screen.read(&mut bytes).expect("the server writes its banner");
        shown.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
    shown
}

/// The banner of a server with these variables, what three commands say about it, and its log.
fn served(flags: &[&str], variables: &[(&str, &str)]) -> (String, Vec<String>, String) {
    let (mut screen, slave) = terminal();
    let flags = [&["serve", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"], flags].concat();
    let server = Process::spawn_with(&flags, variables, slave, Stdio::piped());
    let banner = banner(&mut screen);
    let after = |mark: &str| {
        let rest = banner.split_once(mark).map(|(_, rest)| rest);
        rest.and_then(|rest| rest.split_whitespace().next()).unwrap_or_default().to_owned()
    };
    let (admin, token) = (after("admin  "), after("SPILE_ADMIN_TOKEN="));
    let ask = |command: &[&str], token: &str| {
        let output = Process::run_with(command, &[("SPILE_ADMIN", &admin), ("SPILE_ADMIN_TOKEN", token)]);
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let said = vec![
        ask(&["plan", "list"], &token),
        ask(&["plan", "list"], "another"),
        ask(&["top", "--json"], "another"),
    ];
    kill_process(Pid::from_child(&server), Signal::TERM).expect("the process is ours");
    let ended = server.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(0));
    (banner, said, String::from_utf8_lossy(&ended.stderr).into_owned())
}

#[test]
fn a_person_at_a_terminal_gets_a_token_for_this_run_that_is_in_no_log() {
    let (banner, said, log) = served(&[], &[]);
    let token = banner.split_once("SPILE_ADMIN_TOKEN=").expect("it shows a token").1;
    let token = token.split_whitespace().next().expect("a token");
    assert!(token.len() == 64 && token.bytes().all(|byte| byte.is_ascii_hexdigit()), "{banner}");
    assert!(said[0].contains("PLAN "), "{said:?}");
    assert!(said[1].contains("has another admin token"), "{said:?}");
    // The figures are open on loopback, as they are without any token.
    assert!(said[2].contains("\"storeState\""), "{said:?}");
    assert!(!log.contains(token), "{log}");
    let (again, ..) = served(&[], &[]);
    assert!(!again.contains(token), "{again}");
}

#[test]
fn a_server_with_a_token_of_its_own_makes_none() {
    let (banner, said, _) = served(&[], &[("SPILE_ADMIN_TOKEN", Process::TOKEN)]);
    assert!(!banner.contains("SPILE_ADMIN_TOKEN"), "{banner}");
    assert!(said.iter().all(|said| said.contains("admin token")), "{said:?}");
    let piped = Process::serve(&[]);
    assert!(!piped.banner.contains("SPILE_ADMIN_TOKEN"), "a pipe may lead to a log: {}", piped.banner);
}
