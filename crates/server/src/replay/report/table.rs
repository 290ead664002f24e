//! The report as tables for a terminal.

use std::fmt::{self, Write};
use std::time::Duration;

use super::{ConfigReport, KeyReport, ReplayReport, RuleReport};
use crate::replay::text::{cut, grouped, percent, shown, span, to_second};

/// The maximum width of a key.
const KEY_WIDTH: usize = 44;

/// Which side of a column its cells are on.
#[derive(Clone, Copy)]
enum Side {
    Left,
    Right,
}

impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lines, covered) = (grouped(self.lines), span(self.span));
        writeln!(f, "{lines} lines, {} to {} UTC ({covered})", to_second(&self.from), to_second(&self.to))?;
        for note in &self.notes {
            writeln!(f, "note: {}", shown(note))?;
        }
        for config in &self.configs {
            write!(f, "\n{config}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ConfigReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.requests;
        writeln!(f, "{}", shown(&self.config))?;
        let part = |count: u64| format!("{} ({})", grouped(count), percent(count, counts.requests));
        writeln!(
            f,
            "  {} requests: {} allowed, {} limited",
            grouped(counts.requests),
            part(counts.allowed),
            part(counts.limited)
        )?;
        if counts.would_limit > 0 {
            writeln!(f, "  {} would have been limited by rules in shadow mode", part(counts.would_limit))?;
        }
        if counts.refused > 0 {
            writeln!(f, "  {} refused, regardless of their buckets", part(counts.refused))?;
        }
        if self.unlimited > 0 {
            writeln!(f, "  {} of those that are allowed fall under no limit", grouped(self.unlimited))?;
        }
        if self.malformed > 0 {
            let by = self.malformed_by.iter().map(|(why, count)| format!("{why}: {}", grouped(*count)));
            let by: Vec<String> = by.collect();
            let count = grouped(self.malformed);
            writeln!(f, "  {count} more are malformed and not counted: {}", by.join("; "))?;
        }
        if self.unrouted > 0 {
            writeln!(f, "  {} more are not counted, because no route is for them", grouped(self.unrouted))?;
        }
        for note in &self.notes {
            writeln!(f, "  note: {}", shown(note))?;
        }
        self.rules_table(f)?;
        self.limits_table(f)?;
        self.keys_table(f)
    }
}

impl ConfigReport {
    fn rules_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Side::{Left, Right};
        let head = [
            ("RULE", Left),
            ("MODE", Left),
            ("REQUESTS", Right),
            ("LIMITED", Right),
            ("SHARE", Right),
            ("REFUSED", Right),
            ("FIRST LIMITED", Left),
            ("LAST LIMITED", Left),
        ];
        let row = |rule: &RuleReport| {
            let counts = &rule.requests;
            let time = |time: &Option<String>| time.as_deref().map_or_else(|| "-".to_owned(), to_second);
            vec![
                rule.id.clone(),
                rule.mode.to_owned(),
                grouped(counts.requests),
                grouped(counts.held_back()),
                percent(counts.held_back(), counts.requests),
                grouped(counts.refused),
                time(&rule.first_limited),
                time(&rule.last_limited),
            ]
        };
        table(f, &head, &self.rules.iter().map(row).collect::<Vec<_>>())?;
        for rule in &self.rules {
            for refusal in &rule.refusals {
                let count = grouped(refusal.count);
                writeln!(f, "  {}: {count} refused, because {}", rule.id, refusal.why)?;
            }
        }
        Ok(())
    }

    fn limits_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Side::{Left, Right};
        let head = [("LIMIT", Left), ("RULE", Left), ("LIMITED", Right), ("LONGEST WAIT", Right)];
        let rows = self.rules.iter().flat_map(|rule| rule.limits.iter().map(move |limit| (rule, limit)));
        let row = |(rule, limit): (&RuleReport, &super::LimitReport)| {
            vec![limit.name.clone(), rule.id.clone(), grouped(limit.limited), wait(limit.longest_wait_ms)]
        };
        table(f, &head, &rows.map(row).collect::<Vec<_>>())
    }

    fn keys_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Side::{Left, Right};
        let head = [
            ("KEY", Left),
            ("RULE", Left),
            ("LIMITED", Right),
            ("FIRST", Left),
            ("LAST", Left),
            ("LONGEST WAIT", Right),
        ];
        let row = |key: &KeyReport| {
            vec![
                cut(&key.key, KEY_WIDTH),
                key.rule.clone(),
                grouped(key.limited),
                to_second(&key.first),
                to_second(&key.last),
                wait(key.longest_wait_ms),
            ]
        };
        table(f, &head, &self.keys.iter().map(row).collect::<Vec<_>>())?;
        let more = self.limited_keys.saturating_sub(self.keys.len());
        if more > 0 {
            writeln!(f, "  and {} more keys; `--top COUNT` shows more of them", grouped(more as u64))?;
        }
        if self.key_count_error > 0 {
            let error = grouped(self.key_count_error);
            writeln!(f, "  so many keys were limited that a count may be too low by up to {error}")?;
        }
        Ok(())
    }
}

/// Writes a table under a blank line, indented by two. Writes nothing if it has no rows.
fn table(f: &mut fmt::Formatter<'_>, head: &[(&str, Side)], rows: &[Vec<String>]) -> fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    let width = |at: usize, name: &str| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells.chain([name.len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = head.iter().enumerate().map(|(at, (name, _))| width(at, name)).collect();
    let mut write = |cells: &[&str]| {
        let mut line = String::from("  ");
        for (at, cell) in cells.iter().enumerate() {
            let width = widths[at];
            let _ = match head[at].1 {
                Side::Left => write!(line, "{cell:<width$}  "),
                Side::Right => write!(line, "{cell:>width$}  "),
            };
        }
        writeln!(f, "{}", line.trim_end())
    };
    write(&[])?;
    write(&head.iter().map(|(name, _)| *name).collect::<Vec<_>>())?;
    rows.iter().try_for_each(|row| write(&row.iter().map(String::as_str).collect::<Vec<_>>()))
}

fn wait(ms: u64) -> String {
    span(Duration::from_millis(ms))
}
