//! Appends commands and replies to a buffer.

/// A whole command: its name and its arguments.
pub fn command(out: &mut Vec<u8>, arguments: &[&[u8]]) {
    array(out, arguments.len());
    for argument in arguments {
        bulk(out, argument);
    }
}

/// The header of an array of `items`, which are appended after it. A command is an array of bulk strings.
pub fn array(out: &mut Vec<u8>, items: usize) {
    length(out, b'*', items);
}

/// The header of a RESP3 map of `pairs`, which are appended after it.
pub fn map(out: &mut Vec<u8>, pairs: usize) {
    length(out, b'%', pairs);
}

/// A string of any bytes.
pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    length(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// A string without a line end.
pub fn simple(out: &mut Vec<u8>, text: &str) {
    line(out, b'+', text.as_bytes());
}

/// An error. Control characters become spaces: a line end within the text would begin another reply.
pub fn error(out: &mut Vec<u8>, text: &str) {
    out.push(b'-');
    out.extend(text.bytes().map(|byte| if byte.is_ascii_control() { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

/// A whole number.
pub fn integer(out: &mut Vec<u8>, number: i64) {
    line(out, b':', itoa::Buffer::new().format(number).as_bytes());
}

fn length(out: &mut Vec<u8>, kind: u8, items: usize) {
    line(out, kind, itoa::Buffer::new().format(items).as_bytes());
}

fn line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.push(kind);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}
