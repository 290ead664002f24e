//! The dashboard in a terminal, against a running server.

mod screen;

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};

pub use self::screen::Screen;

/// How often the server is asked.
const EVERY: Duration = Duration::from_secs(1);
/// How often the keyboard is polled.
const KEYS: Duration = Duration::from_millis(100);

/// Shows a server until the user presses `q`. `server` is its name, and `fetch` reads its figures or returns why there
/// are no figures.
pub fn run(
    server: &str,
    fetch: impl FnMut() -> Result<crate::Snapshot, String> + Send + 'static,
) -> io::Result<()> {
    let (send, figures) = channel();
    let (stop, stopped) = channel();
    let asking = thread::spawn(move || ask(fetch, &send, &stopped));
    let mut terminal = ratatui::try_init()?;
    let shown = show(&mut terminal, &Screen::new(server), &figures);
    ratatui::restore();
    drop(stop);
    // The thread does not panic, so there is no error to report.
    let _ended = asking.join();
    shown
}

/// Reads a snapshot once a second until it is asked to stop or the receiver is dropped.
fn ask(
    mut fetch: impl FnMut() -> Result<crate::Snapshot, String>,
    send: &Sender<Result<crate::Snapshot, String>>,
    stopped: &Receiver<()>,
) {
    loop {
        if send.send(fetch()).is_err() {
            return;
        }
        if stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

fn show(
    terminal: &mut DefaultTerminal,
    screen: &Screen,
    figures: &Receiver<Result<crate::Snapshot, String>>,
) -> io::Result<()> {
    let mut screen = screen.clone();
    loop {
        for answer in figures.try_iter() {
            screen.take(answer);
        }
        terminal.draw(|frame| frame.render_widget(&screen, frame.area()))?;
        if event::poll(KEYS)? && is_quit(&event::read()?) {
            return Ok(());
        }
    }
}

fn is_quit(event: &Event) -> bool {
    let Event::Key(KeyEvent { code, modifiers, .. }) = event else { return false };
    match code {
        KeyCode::Char('q') | KeyCode::Esc => true,
        KeyCode::Char('c') => modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}
