//! Cuts a stream of bytes into commands, however the network has split it.
//!
//! Of one command at most [`MAX_COMMAND_BYTES`] in [`MAX_ARGUMENTS`] arguments are kept, even if its header announces more. A
//! larger command is read to its end and discarded, so that the client gets an error and the connection goes on. A
//! [`ProtocolError`] ends the connection, because the start of the next command cannot be found.

use crate::{inline, integer};

/// The most bytes that are kept of one command.
pub const MAX_COMMAND_BYTES: usize = 64 * 1024;
/// The most arguments that are kept of one command.
pub const MAX_ARGUMENTS: usize = 128;
/// The bounds of Redis itself. A header beyond them is a protocol error.
const REDIS_MAX_ARGUMENTS: i64 = 1024 * 1024;
const REDIS_MAX_ARGUMENT_BYTES: u64 = 512 * 1024 * 1024;
/// The longest line that holds a count or a length.
const MAX_HEADER: usize = 32;

/// One command as it was sent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Frame {
    /// The name and the arguments.
    Command(Vec<Vec<u8>>),
    /// The command was read to its end, and not kept.
    TooLarge,
}

/// The bytes are not a command, and the start of the next one cannot be found.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("Protocol error: {0}")]
pub struct ProtocolError(String);

/// The kind of the next bytes.
#[derive(Clone, Copy, Debug, Default)]
enum Expecting {
    /// The line that begins a command.
    #[default]
    Start,
    /// The line with the length of the next argument.
    Length,
    /// This many more bytes of an argument.
    Argument(u64),
    /// The end of the line after an argument.
    LineEnd,
}

/// Reads commands from bytes as they arrive. Holds only the command that has begun.
#[derive(Debug, Default)]
pub struct CommandDecoder {
    expecting: Expecting,
    line: Vec<u8>,
    arguments: Vec<Vec<u8>>,
    /// Arguments that are still to come.
    left: u64,
    kept: usize,
    too_large: bool,
}

impl CommandDecoder {
    /// Whether part of a command has been read and the rest has not arrived.
    pub fn is_within_command(&self) -> bool {
        !(matches!(self.expecting, Expecting::Start) && self.line.is_empty())
    }

    /// The next whole command. Removes what it reads from `bytes`. `Ok(None)` if no command is complete: `bytes` is then
    /// empty.
    pub fn decode(&mut self, bytes: &mut &[u8]) -> Result<Option<Frame>, ProtocolError> {
        while !bytes.is_empty() {
            let frame = match self.expecting {
                Expecting::Start => self.start(bytes)?,
                Expecting::Length => self.length(bytes)?,
                Expecting::Argument(left) => self.argument(left, bytes),
                Expecting::LineEnd => self.line_end(bytes)?,
            };
            if frame.is_some() {
                return Ok(frame);
            }
        }
        Ok(None)
    }

    fn start(&mut self, bytes: &mut &[u8]) -> Result<Option<Frame>, ProtocolError> {
        let is_array = self.line.first().or_else(|| bytes.first()) == Some(&b'*');
        let longest = if is_array { MAX_HEADER } else { MAX_COMMAND_BYTES };
        let too_long = if is_array { "too big mbulk count string" } else { "too big inline request" };
        if !self.take_line(bytes, longest, too_long)? {
            return Ok(None);
        }
        if !is_array {
            return inline_command(&std::mem::take(&mut self.line));
        }
        let count = integer(&self.line[1..]).filter(|count| *count <= REDIS_MAX_ARGUMENTS);
        self.line.clear();
        match count {
            None => Err(ProtocolError("invalid multibulk length".to_owned())),
            // Redis ignores an empty command without a reply.
            Some(..=0) => Ok(None),
            Some(count) => {
                self.left = count.unsigned_abs();
                self.too_large = self.left > MAX_ARGUMENTS as u64;
                // Most commands have fewer arguments than this, and so need to allocate once.
                self.arguments.reserve(self.left.min(8) as usize);
                self.expecting = Expecting::Length;
                Ok(None)
            }
        }
    }

    fn length(&mut self, bytes: &mut &[u8]) -> Result<Option<Frame>, ProtocolError> {
        if self.line.is_empty() && bytes[0] != b'$' {
            return Err(ProtocolError(format!("expected '$', got '{}'", bytes[0].escape_ascii())));
        }
        if !self.take_line(bytes, MAX_HEADER, "too big bulk count string")? {
            return Ok(None);
        }
        let length = integer(&self.line[1..]).and_then(|length| u64::try_from(length).ok());
        self.line.clear();
        let length = length.filter(|length| *length <= REDIS_MAX_ARGUMENT_BYTES);
        let length = length.ok_or_else(|| ProtocolError("invalid bulk length".to_owned()))?;
        self.left -= 1;
        if self.kept as u64 + length > MAX_COMMAND_BYTES as u64 {
            self.too_large = true;
        }
        if self.too_large {
            self.arguments = Vec::new();
        } else {
            self.kept += length as usize;
            // No memory is reserved for the announced length, only for bytes that arrive.
            self.arguments.push(Vec::new());
        }
        self.expecting = if length == 0 { Expecting::LineEnd } else { Expecting::Argument(length) };
        Ok(None)
    }

    fn argument(&mut self, left: u64, bytes: &mut &[u8]) -> Option<Frame> {
        let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let (part, rest) = bytes.split_at(here);
        *bytes = rest;
        if let (false, Some(argument)) = (self.too_large, self.arguments.last_mut()) {
            argument.extend_from_slice(part);
        }
        let left = left - here as u64;
        self.expecting = if left == 0 { Expecting::LineEnd } else { Expecting::Argument(left) };
        None
    }

    fn line_end(&mut self, bytes: &mut &[u8]) -> Result<Option<Frame>, ProtocolError> {
        while let Some((&byte, rest)) = bytes.split_first() {
            let wanted = if self.line.is_empty() { b'\r' } else { b'\n' };
            if byte != wanted {
                return Err(ProtocolError("an argument is longer than its length says".to_owned()));
            }
            *bytes = rest;
            if byte == b'\r' {
                self.line.push(byte);
                continue;
            }
            self.line.clear();
            if self.left > 0 {
                self.expecting = Expecting::Length;
                return Ok(None);
            }
            return Ok(Some(self.finish()));
        }
        Ok(None)
    }

    fn finish(&mut self) -> Frame {
        self.expecting = Expecting::Start;
        self.kept = 0;
        let arguments = std::mem::take(&mut self.arguments);
        if std::mem::take(&mut self.too_large) { Frame::TooLarge } else { Frame::Command(arguments) }
    }

    /// Moves bytes to `line` up to the line end, which is not kept. Says whether the line is complete.
    fn take_line(
        &mut self,
        bytes: &mut &[u8],
        longest: usize,
        too_long: &str,
    ) -> Result<bool, ProtocolError> {
        let end = bytes.iter().take(longest + 1).position(|&byte| byte == b'\n');
        let here = end.unwrap_or(bytes.len());
        if self.line.len() + here > longest {
            return Err(ProtocolError(too_long.to_owned()));
        }
        self.line.extend_from_slice(&bytes[..here]);
        *bytes = &bytes[(here + usize::from(end.is_some()))..];
        if end.is_some() && self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        Ok(end.is_some())
    }
}

fn inline_command(line: &[u8]) -> Result<Option<Frame>, ProtocolError> {
    let words =
        inline::split(line).ok_or_else(|| ProtocolError("unbalanced quotes in request".to_owned()))?;
    Ok(match words.len() {
        0 => None,
        1..=MAX_ARGUMENTS => Some(Frame::Command(words)),
        _ => Some(Frame::TooLarge),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::write;

    /// The frames that the pieces hold, and whether the last one is incomplete.
    fn read(pieces: &[&[u8]]) -> (Vec<Frame>, Result<bool, ProtocolError>) {
        let (mut decoder, mut read) = (CommandDecoder::default(), Vec::new());
        for mut piece in pieces.iter().copied() {
            loop {
                match decoder.decode(&mut piece) {
                    Ok(Some(frame)) => read.push(frame),
                    Ok(None) => break,
                    Err(error) => return (read, Err(error)),
                }
                assert!(decoder.kept <= MAX_COMMAND_BYTES && decoder.line.len() <= MAX_COMMAND_BYTES);
            }
            assert!(piece.is_empty(), "what is not read is not kept either");
            let held: usize = decoder.arguments.iter().map(Vec::len).sum();
            assert!(held <= MAX_COMMAND_BYTES && decoder.arguments.len() <= MAX_ARGUMENTS);
        }
        let within = decoder.is_within_command();
        (read, Ok(within))
    }

    fn command(words: &[&str]) -> Frame {
        Frame::Command(words.iter().map(|word| word.as_bytes().to_vec()).collect())
    }

    fn encoded(command: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write::command(&mut bytes, &command.iter().map(Vec::as_slice).collect::<Vec<_>>());
        bytes
    }

    #[test]
    fn arrays_and_lines_may_follow_each_other() {
        let bytes = b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\nPING\r\n\r\n*0\r\n*-1\r\n  ping 'a b'\n";
        let expected = vec![command(&["ECHO", ""]), command(&["PING"]), command(&["ping", "a b"])];
        assert_eq!(read(&[bytes]), (expected, Ok(false)));
    }

    #[test]
    fn a_command_that_is_too_large_is_read_to_its_end_and_the_next_one_is_found() {
        let large = vec![b"ECHO".to_vec(), vec![b'x'; MAX_COMMAND_BYTES + 1]];
        let many = vec![b"x".to_vec(); MAX_ARGUMENTS + 1];
        let next = vec![b"PING".to_vec()];
        let bytes = [encoded(&large), encoded(&many), encoded(&next)].concat();
        let expected = vec![Frame::TooLarge, Frame::TooLarge, command(&["PING"])];
        assert_eq!(read(&[&bytes]), (expected, Ok(false)));
    }

    #[test]
    fn a_protocol_error_says_what_is_wrong() {
        let table: [(&[u8], &str); 9] = [
            (b"*x\r\n", "invalid multibulk length"),
            (b"*9999999999\r\n", "invalid multibulk length"),
            (b"*1\r\n:5\r\n", "expected '$', got ':'"),
            (b"*1\r\n*1\r\n", "expected '$', got '*'"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$600000000\r\n", "invalid bulk length"),
            (b"*1\r\n$1\r\nab\r\n", "an argument is longer than its length says"),
            (b"*111111111111111111111111111111111111\r\n", "too big mbulk count string"),
            (b"ECHO \"open\r\n", "unbalanced quotes in request"),
        ];
        for (bytes, why) in table {
            assert_eq!(read(&[bytes]).1, Err(ProtocolError(why.to_owned())), "{}", bytes.escape_ascii());
        }
        let endless = vec![b'a'; MAX_COMMAND_BYTES + 1];
        assert_eq!(read(&[&endless]).1, Err(ProtocolError("too big inline request".to_owned())));
    }

    fn any_command() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6)
    }

    /// Bytes that a parser follows further than noise.
    fn nearly_protocol() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(b"*2\r\n".to_vec()),
            Just(b"$3\r\n".to_vec()),
            Just(b"\r\n".to_vec()),
            Just(b"$70000\r\n".to_vec()),
            Just(b"PING \"a\\x41\" 'b'".to_vec()),
            prop::collection::vec(any::<u8>(), 0..6),
            any_command().prop_map(|command| encoded(&command)),
        ];
        prop::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
    }

    fn split<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let starts = std::iter::once(0).chain(cuts.iter().copied());
        let ends = cuts.iter().copied().chain([bytes.len()]);
        starts.zip(ends).map(|(start, end)| &bytes[start..end]).collect()
    }

    #[test]
    fn fuzzed_commands_read_the_same_in_pieces_and_when_they_are_written_again() {
        let words = [
            "*2\r\n",
            "$4\r\nPING\r\n",
            "$70000\r\n",
            "\r\n",
            "PING \"a\\x41\" 'b'\r\n",
            "*129\r\n",
            "*-1\r\n",
        ];
        spile_testkit::fuzz::fuzz("resp-command", &words, |bytes| {
            let (frames, end) = read(&[bytes]);
            assert_eq!(read(&spile_testkit::fuzz::pieces(bytes)), (frames.clone(), end.clone()));
            assert!(frames.len() <= bytes.len());
            let kept: Vec<&Vec<Vec<u8>>> = frames
                .iter()
                .filter_map(|frame| match frame {
                    Frame::Command(words) => Some(words),
                    Frame::TooLarge => None,
                })
                .collect();
            let again: Vec<u8> = kept.iter().flat_map(|command| encoded(command)).collect();
            let expected = kept.into_iter().cloned().map(Frame::Command).collect();
            assert_eq!(read(&[&again]), (expected, Ok(false)));
            (frames.len().min(4), end.map_err(|ProtocolError(why)| why.chars().take(12).collect::<String>()))
        });
    }

    proptest! {
        #[test]
        fn commands_are_the_same_however_the_network_splits_them(
            commands in prop::collection::vec(any_command(), 0..6),
            cuts in prop::collection::vec(any::<usize>(), 0..12),
        ) {
            let bytes: Vec<u8> = commands.iter().flat_map(|command| encoded(command)).collect();
            let expected: Vec<Frame> = commands.into_iter().map(Frame::Command).collect();
            prop_assert_eq!(read(&split(&bytes, &cuts)), (expected, Ok(false)));
        }

        #[test]
        fn any_bytes_are_read_alike_in_one_piece_and_in_many(
            bytes in nearly_protocol(),
            cuts in prop::collection::vec(any::<usize>(), 0..12),
        ) {
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            let whole = read(&[&bytes]);
            prop_assert_eq!(&read(&split(&bytes, &cuts)), &whole);
            prop_assert_eq!(&read(&single), &whole);
        }
    }
}
