//! The screen of `spile top`.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, List, Paragraph, Row, Sparkline, Table, Widget, Wrap};

use crate::events::{Event, EventKind};
use crate::metrics::{SecondRow, StoreState};
use crate::sampling::{BucketLevel, TopKey};
use crate::watch::Snapshot;

/// The last snapshot, and the reason if the server does not answer.
#[derive(Clone, Debug)]
pub struct Screen {
    server: String,
    last: Option<Snapshot>,
    away: Option<String>,
}

impl Screen {
    /// An empty screen for the server of this name.
    pub fn new(server: &str) -> Self {
        Self { server: server.to_owned(), last: None, away: None }
    }

    /// Takes a new snapshot, or the reason why it could not be read. In that case the last figures stay.
    pub fn take(&mut self, answer: Result<Snapshot, String>) {
        match answer {
            Ok(snapshot) => (self.last, self.away) = (Some(snapshot), None),
            Err(why) => self.away = Some(why),
        }
    }

    fn title(&self) -> Line<'static> {
        let state = match (&self.away, &self.last) {
            (Some(_), _) => Span::from(" away ").red().bold(),
            (None, None) => Span::from(" connecting ").yellow(),
            (None, Some(_)) => Span::from(" live ").green().bold(),
        };
        let server = format!(" {} ", self.server);
        Line::from(vec![
            Span::from(" Spile ").bold(),
            Span::from(server),
            state,
            Span::from(" q quits ").dim(),
        ])
    }
}

impl Widget for &Screen {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let away = self.away.as_ref().map(|why| Paragraph::new(why.as_str()).red().wrap(Wrap { trim: true }));
        let rows = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(if away.is_some() { 2 } else { 0 }),
            Constraint::Length(if is_narrow(area) { 4 } else { 3 }),
            Constraint::Length(8),
            Constraint::Fill(3),
            Constraint::Fill(2),
        ]);
        let [title, why, now, chart, middle, events] = rows.areas(area);
        self.title().render(title, buffer);
        away.render(why, buffer);
        let Some(snapshot) = &self.last else { return };
        figures(snapshot, is_narrow(area)).render(now, buffer);
        draw_rates(&snapshot.seconds, chart, buffer);
        let [levels, denied, spending] =
            Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1), Constraint::Fill(1)]).areas(middle);
        level_table(&snapshot.levels).render(levels, buffer);
        key_table(" Denied most ", &snapshot.top_denied).render(denied, buffer);
        key_table(" Spending most ", &snapshot.top_spending).render(spending, buffer);
        event_list(&snapshot.events).render(events, buffer);
    }
}

/// True if the current figures need two lines.
const fn is_narrow(area: Rect) -> bool {
    area.width < 150
}

fn figures(snapshot: &Snapshot, narrow: bool) -> Paragraph<'static> {
    let latency = snapshot.store_latency;
    let (store, colour) = match snapshot.store_state {
        StoreState::Lost => ("LOST", Color::Red),
        StoreState::Slow => ("slow", Color::Yellow),
        _ => ("well", Color::Reset),
    };
    let breaker = if snapshot.store.breakers_open > 0 { "open" } else { "closed" };
    let decided = format!(
        "allowed {}/s  denied {}/s  denial ratio {:.1} %  without store {}",
        snapshot.per_second.allowed,
        snapshot.per_second.denied,
        snapshot.denial_ratio * 100.0,
        snapshot.degraded
    );
    let stored = format!(
        "store {store}, breaker {breaker}  p50 {} p90 {} p99 {} µs",
        latency.p50_us, latency.p90_us, latency.p99_us
    );
    let text = if narrow { format!("{decided}\n{stored}") } else { format!("{decided}  {stored}") };
    Paragraph::new(text).block(Block::bordered().border_style(Style::from(colour)))
}

/// Draws allowed decisions above and denied ones below, the newest on the right.
fn draw_rates(seconds: &[SecondRow], area: Rect, buffer: &mut Buffer) {
    let [allowed, denied] = Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
    // The current second is not complete yet.
    let whole = &seconds[..seconds.len().saturating_sub(1)];
    let newest = &whole[whole.len().saturating_sub(area.width.saturating_sub(2).into())..];
    let bars = |count: fn(&SecondRow) -> u64| newest.iter().map(count).collect::<Vec<_>>();
    let sparkline = |title: &'static str, data: Vec<u64>, colour| {
        Sparkline::default().block(Block::bordered().title(title)).data(data).style(colour)
    };
    sparkline(" Allowed per second ", bars(|second| second.counts.allowed), Color::Green)
        .render(allowed, buffer);
    sparkline(" Denied per second ", bars(|second| second.counts.denied), Color::Red).render(denied, buffer);
}

fn level_table(levels: &[BucketLevel]) -> Table<'static> {
    let row = |level: &BucketLevel| {
        let filled = (level.mean * 10.0).round() as usize;
        let bar = "█".repeat(filled) + &"░".repeat(10_usize.saturating_sub(filled));
        let colour = if level.mean < 0.2 { Color::Red } else { Color::Green };
        Row::new([
            Span::from(level.limit.clone()),
            Span::from(bar).fg(colour),
            Span::from(format!("{:.0} %", level.mean * 100.0)),
        ])
    };
    let widths = [Constraint::Fill(1), Constraint::Length(10), Constraint::Length(5)];
    Table::new(levels.iter().map(row), widths).block(Block::bordered().title(" Bucket levels "))
}

fn key_table(title: &'static str, keys: &[TopKey]) -> Table<'static> {
    let row = |key: &TopKey| Row::new([key.key.clone(), key.count.to_string()]);
    let widths = [Constraint::Fill(1), Constraint::Length(12)];
    Table::new(keys.iter().map(row), widths).block(Block::bordered().title(title))
}

fn event_list(events: &[Event]) -> List<'static> {
    let line = |event: &Event| {
        let (minutes, seconds) = (event.at_ms / 60_000 % 60, event.at_ms / 1_000 % 60);
        let hours = event.at_ms / 3_600_000 % 24;
        Line::from(format!("{hours:02}:{minutes:02}:{seconds:02} UTC  {}", describe(&event.kind)))
    };
    List::new(events.iter().map(line)).block(Block::bordered().title(" Recent events "))
}

fn describe(event: &EventKind) -> String {
    match event {
        EventKind::KeyDenied { key, limit, .. } => format!("{key} was denied by {limit}"),
        EventKind::TenantNear { tenant, limit, used_percent, .. } => {
            format!("tenant {tenant} has used {used_percent} % of {limit}")
        }
        EventKind::TenantOver { tenant, limit, .. } => format!("tenant {tenant} is over {limit}"),
        EventKind::StoreSlow { why } => format!("the store is slow: {why}"),
        EventKind::StoreLost { why } => format!("the store is lost: {why}"),
        EventKind::StoreRecovered { lost_for_ms } => format!("the store is back after {lost_for_ms} ms"),
        EventKind::ConfigReloaded => "a new configuration is in force".to_owned(),
        EventKind::ConfigRefused { why } => format!("a new configuration was refused: {why}"),
        EventKind::EventsSuppressed { kind, count } => {
            format!("{count} or more events of the kind {kind} were left out")
        }
    }
}

#[cfg(test)]
mod tests {
    use ratatui::buffer::Cell;

    use super::*;

    fn shown(screen: &Screen, width: u16, height: u16) -> String {
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        screen.render(area, &mut buffer);
        let cells = buffer.content().chunks(width.into());
        cells.map(|row| row.iter().map(Cell::symbol).collect::<String>() + "\n").collect()
    }

    fn screen() -> Screen {
        let mut screen = Screen::new("http://127.0.0.1:8081");
        let noisy = TopKey { key: "#0badcafe".to_owned(), count: 42, error: 0 };
        screen.take(Ok(Snapshot { top_denied: vec![noisy], degraded: 7, ..Snapshot::default() }));
        screen
    }

    #[test]
    fn figures_are_shown_and_stay_when_the_server_goes_away() {
        let mut screen = screen();
        assert!(shown(&screen, 120, 40).contains("live"));
        screen.take(Err("connection refused".to_owned()));
        let text = shown(&screen, 120, 40);
        for part in ["away", "connection refused", "#0badcafe", "42", "without store 7"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn all_figures_are_whole_in_eighty_columns() {
        let mut snapshot = Snapshot { degraded: 123_456, denial_ratio: 0.123, ..Snapshot::default() };
        (snapshot.per_second.allowed, snapshot.per_second.denied) = (1_234_567, 765_432);
        snapshot.store_latency.p50_us = 12_345;
        (snapshot.store_latency.p90_us, snapshot.store_latency.p99_us) = (23_456, 34_567);
        let mut screen = screen();
        screen.take(Ok(snapshot));
        for width in [80, 100, 150, 200] {
            let text = shown(&screen, width, 24);
            for part in [
                "allowed 1234567/s",
                "denied 765432/s",
                "denial ratio 12.3 %",
                "store well, breaker closed",
                "without store 123456",
                "p50 12345 p90 23456 p99 34567 µs",
                "q quits",
            ] {
                assert!(text.contains(part), "{part} in {text}");
            }
        }
        let why =
            "http://127.0.0.1:8081 asks for its admin token: set SPILE_ADMIN_TOKEN to it, or pass --token";
        screen.take(Err(why.to_owned()));
        let text = shown(&screen, 80, 24);
        assert!(
            text.contains("SPILE_ADMIN_TOKEN") && text.contains("--token") && text.contains("q quits"),
            "{text}"
        );
    }

    #[test]
    fn no_terminal_is_too_small_to_draw_in() {
        for (width, height) in [(1, 1), (10, 3), (40, 12), (300, 100)] {
            let _text = shown(&screen(), width, height);
        }
    }
}
