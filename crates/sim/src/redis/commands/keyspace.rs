//! Commands on keys of any type, and those on strings and lists.

use std::collections::VecDeque;

use crate::redis::data::Stored;
use crate::redis::number;
use crate::redis::reply::{CommandResult, ErrorText, NOT_AN_INTEGER, OK, Reply, SYNTAX};
use crate::redis::state::State;

pub(super) fn pttl(state: &mut State, words: &[&[u8]]) -> CommandResult {
    if !state.exists(words[1]) {
        return Ok(Reply::Int(-2));
    }
    let expires_at_ms = state.data.expires_at_ms(words[1]);
    let left_ms = |at_ms: u64| at_ms.saturating_sub(state.now_ms()).cast_signed();
    Ok(Reply::Int(expires_at_ms.map_or(-1, left_ms)))
}

/// The moment in which a time to live ends, in milliseconds since the epoch. It may be in the past.
fn end(state: &State, ttl_ms: i64, command: &str) -> Result<i64, ErrorText> {
    let end = ttl_ms.checked_add(state.now_ms().cast_signed());
    end.ok_or_else(|| format!("ERR invalid expire time in '{command}' command").into())
}

pub(super) fn pexpire(state: &mut State, words: &[&[u8]]) -> CommandResult {
    let ttl_ms = number::integer(words[2]).ok_or(NOT_AN_INTEGER)?;
    let at_ms = end(state, ttl_ms, "pexpire")?;
    if !state.exists(words[1]) {
        return Ok(Reply::Int(0));
    }
    if at_ms <= state.now_ms().cast_signed() {
        state.data.remove(words[1]);
    } else {
        state.data.expire(words[1], at_ms.unsigned_abs());
    }
    Ok(Reply::Int(1))
}

pub(super) fn del(state: &mut State, words: &[&[u8]]) -> CommandResult {
    let mut deleted = 0;
    for key in &words[1..] {
        deleted += i64::from(state.exists(key) && state.data.remove(key));
    }
    Ok(Reply::Int(deleted))
}

pub(super) fn exists(state: &mut State, words: &[&[u8]]) -> CommandResult {
    Ok(Reply::count(words[1..].iter().filter(|key| state.exists(key)).count()))
}

pub(super) fn type_of(state: &mut State, words: &[&[u8]]) -> CommandResult {
    let name = match state.stored(words[1]) {
        None => "none",
        Some(Stored::Text(_)) => "string",
        Some(Stored::Hash(_)) => "hash",
        Some(Stored::SortedSet(_)) => "zset",
        Some(Stored::List(_)) => "list",
    };
    Ok(Reply::Status(name.into()))
}

pub(super) fn get(state: &mut State, words: &[&[u8]]) -> CommandResult {
    Ok(Reply::optional_bulk(state.text(words[1])?))
}

/// Knows the options `PX`, `EX`, `NX` and `XX`.
pub(super) fn set(state: &mut State, words: &[&[u8]]) -> CommandResult {
    let (mut expires_at_ms, mut only_if) = (None, None);
    let mut options = words[3..].iter();
    while let Some(option) = options.next() {
        let option = option.to_ascii_lowercase();
        match (&*option, only_if, expires_at_ms) {
            (b"nx" | b"xx", None, _) => only_if = Some(option == b"xx"),
            (b"px" | b"ex", _, None) => {
                let time = options.next().ok_or(SYNTAX)?;
                let time = number::integer(time).ok_or(NOT_AN_INTEGER)?;
                let ttl_ms = time.checked_mul(if option == b"ex" { 1000 } else { 1 });
                let Some(ttl_ms) = ttl_ms.filter(|ttl_ms| *ttl_ms > 0) else {
                    return Err("ERR invalid expire time in 'set' command".into());
                };
                expires_at_ms = Some(end(state, ttl_ms, "set")?.unsigned_abs());
            }
            _ => return Err(SYNTAX),
        }
    }
    if only_if.is_some_and(|exists| exists != state.exists(words[1])) {
        return Ok(Reply::Nil);
    }
    state.data.set(words[1], Stored::Text(words[2].to_vec()), expires_at_ms);
    Ok(OK)
}

pub(super) fn lpush(state: &mut State, words: &[&[u8]]) -> CommandResult {
    let length = state.change(words[1], |list: &mut VecDeque<Vec<u8>>| {
        for item in &words[2..] {
            list.push_front(item.to_vec());
        }
        list.len()
    })?;
    Ok(Reply::count(length))
}

pub(super) fn llen(state: &mut State, words: &[&[u8]]) -> CommandResult {
    Ok(Reply::count(state.read::<VecDeque<Vec<u8>>>(words[1])?.map_or(0, VecDeque::len)))
}

pub(super) fn flushall(state: &mut State, _: &[&[u8]]) -> CommandResult {
    state.data.clear();
    Ok(OK)
}
