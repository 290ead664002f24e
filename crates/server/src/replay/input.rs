//! Reads the lines of files, plain or compressed, and of the standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use flate2::bufread::MultiGzDecoder;

/// The longest line. Log lines of servers are much shorter.
pub(super) const LONGEST_LINE: usize = 64 * 1024;
const BUFFER: usize = 256 * 1024;
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A log that is read line by line.
pub(super) struct LogInput {
    name: Arc<str>,
    lines: Box<dyn BufRead>,
    number: u64,
    buffer: Vec<u8>,
    /// Bytes that were read, before they are decompressed.
    read: Arc<AtomicU64>,
    /// The size of the file. `None` if it is not known.
    size: Option<u64>,
}

/// Where a line is.
#[derive(Clone, Debug)]
pub(super) struct LinePlace {
    pub(super) file: Arc<str>,
    pub(super) line: u64,
}

impl LinePlace {
    /// `access.log, line 17`.
    pub(super) fn shown(&self) -> String {
        let file = if &*self.file == "-" { "the standard input" } else { &self.file };
        format!("{file}, line {}", self.line)
    }
}

/// A line, or the news that it is too long.
pub(super) enum LogLine<'l> {
    Text(&'l [u8]),
    TooLong,
}

impl LogInput {
    /// Opens a file, or the standard input if it is called `-`. Gzip is recognized by its first bytes.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let read = Arc::new(AtomicU64::new(0));
        let name = path.display().to_string();
        let (source, size): (Box<dyn Read>, _) = if path == "-" {
            (Box::new(io::stdin()), None)
        } else {
            let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
            let about = file.metadata().with_context(|| format!("cannot read {name}"))?;
            anyhow::ensure!(!about.is_dir(), "cannot read {name}: it is a folder, and not a log");
            (Box::new(file), about.is_file().then_some(about.len()))
        };
        let mut source = CountedRead { source, read: Arc::clone(&read) };
        let begin = begin(&mut source).with_context(|| format!("cannot read {name}"))?;
        let compressed = begin == GZIP;
        let source = BufReader::with_capacity(BUFFER, Cursor::new(begin).chain(source));
        let lines: Box<dyn BufRead> = if compressed {
            Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(source)))
        } else {
            Box::new(source)
        };
        Ok(Self { name: name.into(), lines, number: 0, buffer: Vec::new(), read, size })
    }

    /// The next line, without its end. `None` after the last one.
    pub(super) fn next_line(&mut self) -> anyhow::Result<Option<LogLine<'_>>> {
        self.buffer.clear();
        self.number += 1;
        let most = LONGEST_LINE as u64 + 1;
        let cannot_read =
            |why: io::Error, name: &str, line: u64| anyhow::anyhow!("cannot read {name}, line {line}: {why}");
        let read = self.lines.by_ref().take(most).read_until(b'\n', &mut self.buffer);
        let read = read.map_err(|why| cannot_read(why, &self.name, self.number))?;
        if read == 0 {
            return Ok(None);
        }
        if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
        } else if self.buffer.len() > LONGEST_LINE {
            skip_line(&mut self.lines).map_err(|why| cannot_read(why, &self.name, self.number))?;
            return Ok(Some(LogLine::TooLong));
        }
        Ok(Some(LogLine::Text(&self.buffer)))
    }

    /// The place of the line that was read last.
    pub(super) fn place(&self) -> LinePlace {
        LinePlace { file: Arc::clone(&self.name), line: self.number }
    }

    /// How much of the file has been read, from 0 to 1. `None` if its size is not known.
    pub(super) fn progress(&self) -> Option<f64> {
        let size = self.size.filter(|size| *size > 0)?;
        Some((self.read.load(Ordering::Relaxed) as f64 / size as f64).min(1.0))
    }
}

/// The first bytes, as many as gzip's magic number has.
fn begin(source: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut begin = Vec::new();
    source.take(GZIP.len() as u64).read_to_end(&mut begin)?;
    Ok(begin)
}

/// Skips the rest of a line without holding it.
fn skip_line(lines: &mut dyn BufRead) -> io::Result<()> {
    loop {
        let held = lines.fill_buf()?;
        let (length, found) = (held.len(), memchr::memchr(b'\n', held));
        lines.consume(found.map_or(length, |at| at + 1));
        if found.is_some() || length == 0 {
            return Ok(());
        }
    }
}

/// Counts the bytes that are read.
struct CountedRead {
    source: Box<dyn Read>,
    read: Arc<AtomicU64>,
}

impl Read for CountedRead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn lines(bytes: &[u8]) -> anyhow::Result<Vec<String>> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), bytes)?;
        let mut input = LogInput::open(file.path())?;
        let mut lines = Vec::new();
        loop {
            let text = match input.next_line()? {
                None => break,
                Some(LogLine::Text(text)) => String::from_utf8_lossy(text).into_owned(),
                Some(LogLine::TooLong) => "too long".to_owned(),
            };
            lines.push(format!("{} {text}", input.place().line));
        }
        assert_eq!(input.progress(), (!bytes.is_empty()).then_some(1.0));
        Ok(lines)
    }

    fn zipped(text: &str) -> Vec<u8> {
        let mut zip = GzEncoder::new(Vec::new(), Compression::default());
        zip.write_all(text.as_bytes()).expect("memory takes it");
        zip.finish().expect("memory takes it")
    }

    #[test]
    fn lines_are_read_from_plain_files_and_from_gzip_in_several_parts() {
        assert_eq!(lines(b"a\nb\n\nc").unwrap(), ["1 a", "2 b", "3 ", "4 c"]);
        let parts = [zipped("a\nb"), zipped("c\n")].concat();
        assert_eq!(lines(&parts).unwrap(), ["1 a", "2 bc"]);
        assert_eq!(lines(b"").unwrap(), Vec::<String>::new());
        assert_eq!(lines(b"\x1f").unwrap(), ["1 \u{1f}"]);
    }

    #[test]
    fn a_line_without_an_end_is_not_held() {
        let long = "x".repeat(LONGEST_LINE);
        assert_eq!(
            lines(format!("{long}\nb\n").as_bytes()).unwrap(),
            [format!("1 {long}"), "2 b".to_owned()]
        );
        assert_eq!(lines(format!("{long}{long}{long}y\nb\n").as_bytes()).unwrap(), ["1 too long", "2 b"]);
    }

    #[test]
    fn a_gzip_that_is_cut_off_is_an_error_that_names_the_line() {
        let whole = zipped(&"a line of a log\n".repeat(1_000));
        let why = lines(&whole[..whole.len() - 9]).expect_err("it is cut off").to_string();
        assert!(why.contains(", line "), "{why}");
    }
}
