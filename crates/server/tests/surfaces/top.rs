//! `spile top` in a real pseudo-terminal.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::support::{Spile, TOKEN, until};

/// A terminal with `spile top` in it.
struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl Terminal {
    fn open(spile: &Spile) -> Self {
        Self::open_with(spile, None)
    }

    fn open_with(spile: &Spile, token: Option<&str>) -> Self {
        let (rows, columns) = (45, 130);
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("the kernel has terminals");
        grantpt(&master).expect("the terminal is ours");
        unlockpt(&master).expect("the terminal is ours");
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).expect("a terminal has a size");
        let name = ptsname(&master, Vec::new()).expect("the terminal has a name");
        let name = name.into_string().expect("names of terminals are ASCII");
        let slave = || -> OwnedFd {
            OpenOptions::new().read(true).write(true).open(&name).expect("the terminal opens").into()
        };
        let child = Command::new(env!("CARGO_BIN_EXE_spile"))
            .args(["top", "--admin", &spile.admin_url("")])
            .env("TERM", "xterm-256color")
            .env_remove("SPILE_ADMIN_TOKEN")
            .envs(token.map(|token| ("SPILE_ADMIN_TOKEN", token)))
            .stdin(slave())
            .stdout(slave())
            .stderr(slave())
            .spawn()
            .expect("the binary was built with the tests");
        let mut shown: File = master.try_clone().expect("a terminal can be held twice").into();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        let drawn = Arc::clone(&screen);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = shown.read(&mut bytes) {
                drawn.lock().process(&bytes[..count]);
            }
        });
        Self { child, keyboard: master.into(), screen }
    }

    fn text(&self) -> String {
        self.screen.lock().screen().contents()
    }

    async fn shows(&self, what: &str) {
        until(what, async || self.text().contains(what).then_some(())).await;
    }

    async fn press(&mut self, key: &str) -> ExitStatus {
        self.keyboard.write_all(key.as_bytes()).expect("the terminal takes keys");
        until("the end", async || self.child.try_wait().expect("the process is ours")).await
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Both fail where the process has ended already, which is what is wanted.
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_appear_in_a_terminal_and_q_gives_it_back() {
    let spile = Spile::start().await.keep_busy();
    let mut terminal = Terminal::open(&spile);
    for part in ["live", "Denied most", "Bucket levels", "gold/burst", "was denied by free", "store well"] {
        terminal.shows(part).await;
    }
    assert!(!terminal.text().contains("203.0.113.9"), "a key is shown by name");
    assert!(terminal.press("q").await.success());
    assert!(!terminal.screen.lock().screen().alternate_screen());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guarded_server_is_shown_to_whoever_has_the_token() {
    let spile = Spile::start_guarded().await.keep_busy();
    Terminal::open(&spile).shows("set SPILE_ADMIN_TOKEN").await;
    Terminal::open_with(&spile, Some("wrong")).shows("has another admin token").await;
    Terminal::open_with(&spile, Some(TOKEN)).shows("live").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_says_when_the_server_is_away_and_when_it_is_back() {
    let spile = Spile::start().await.keep_busy();
    let terminal = Terminal::open(&spile);
    terminal.shows("live").await;
    let (http, admin) = (spile.http, spile.admin);
    spile.stop().await;
    terminal.shows("away").await;
    let _again = Spile::start_at(http, admin).await;
    terminal.shows("live").await;
}
