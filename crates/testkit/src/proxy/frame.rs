//! Where one reply ends.

/// The length of the first whole reply in `bytes`, or nothing where its end has not arrived yet.
pub(super) fn length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let count = || std::str::from_utf8(&bytes[1..line - 2]).ok()?.parse::<i64>().ok();
    match bytes[0] {
        b'$' | b'=' | b'!' => match usize::try_from(count()?) {
            Ok(body) => (bytes.len() >= line + body + 2).then_some(line + body + 2),
            Err(_) => Some(line),
        },
        b'*' | b'~' | b'>' => members(bytes, line, count()?),
        b'%' => members(bytes, line, 2 * count()?),
        _ => Some(line),
    }
}

/// The lengths of the first two whole replies, where there are two.
pub(super) fn first_two(bytes: &[u8]) -> Option<(usize, usize)> {
    let first = length(bytes)?;
    let rest = bytes.get(first..).filter(|rest| !rest.is_empty())?;
    Some((first, length(rest)?))
}

fn members(bytes: &[u8], start: usize, count: i64) -> Option<usize> {
    (0..count)
        .try_fold(start, |end, _| Some(end + length(bytes.get(end..).filter(|rest| !rest.is_empty())?)?))
}

#[cfg(test)]
mod tests {
    use super::length;

    #[test]
    fn a_reply_ends_where_its_last_member_does() {
        for whole in [
            "+OK\r\n",
            ":12\r\n",
            "$3\r\na\r\n\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "*2\r\n:1\r\n*1\r\n$1\r\nx\r\n",
            "%1\r\n+a\r\n:1\r\n",
        ] {
            let followed = format!("{whole}+next\r\n");
            assert_eq!(length(followed.as_bytes()), Some(whole.len()), "{whole:?}");
        }
    }

    #[test]
    fn a_reply_that_is_still_arriving_has_no_end() {
        let whole = "*2\r\n:1\r\n$2\r\nab\r\n";
        for cut in 0..whole.len() {
            assert_eq!(length(&whole.as_bytes()[..cut]), None, "cut at {cut}");
        }
    }
}
