//! Prints the results of commands. A closed pipe, as in `spile config show | head`, is not a failure.

use std::fmt::Display;
use std::io::{self, Write};

use anyhow::Context;

/// Prints a line.
pub(super) fn line(text: impl Display) -> anyhow::Result<()> {
    all(format_args!("{text}\n"))
}

/// Prints a text as it is.
pub(super) fn all(text: impl Display) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match write!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot print the answer"),
    }
}

/// Prints a warning on stderr. A warning that cannot be printed is lost.
pub(super) fn warning(text: &str) {
    let _written = writeln!(io::stderr(), "warning: {text}");
}

/// Rows below a header, in columns as wide as their widest cell.
pub(super) fn table<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([header[column].chars().count()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let shown = |cells: [&str; N]| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let rows = rows.iter().map(|row| shown(std::array::from_fn(|column| row[column].as_str())));
    [shown(header)].into_iter().chain(rows).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_without_blanks() {
        let rows = [
            ["acme".to_owned(), "a-long-plan".to_owned(), "1".to_owned()],
            ["é".to_owned(), "p".to_owned(), String::new()],
        ];
        assert_eq!(
            table(["TENANT", "PLAN", "KEYS"], &rows),
            "TENANT  PLAN         KEYS\nacme    a-long-plan  1\né       p"
        );
        assert_eq!(table(["TENANT"], &[]), "TENANT");
    }
}
