//! Commands about the server and the connection.

use crate::redis::number;
use crate::redis::reply::{CommandResult, OK, Reply};
use crate::redis::state::State;

pub(super) fn time(state: &mut State, _: &[&[u8]]) -> CommandResult {
    let parts = [state.now_us / 1_000_000, state.now_us % 1_000_000];
    Ok(Reply::Array(parts.map(|part| Reply::bulk(part.to_string())).into()))
}

pub(super) fn ping(_: &mut State, words: &[&[u8]]) -> CommandResult {
    match words {
        [_] => Ok(Reply::Status("PONG".into())),
        [_, text] => Ok(Reply::bulk(*text)),
        _ => Err("ERR wrong number of arguments for 'ping' command".into()),
    }
}

/// Reports only what the store reads: the limit of memory, and how keys are evicted.
pub(super) fn info(state: &mut State, _: &[&[u8]]) -> CommandResult {
    let limit = u8::from(state.refusals.out_of_memory);
    Ok(Reply::bulk(format!("# Memory\r\nmaxmemory:{limit}\r\nmaxmemory_policy:noeviction\r\n")))
}

pub(super) fn role(state: &mut State, _: &[&[u8]]) -> CommandResult {
    let role = if state.refusals.read_only {
        let connected = Reply::bulk("connected");
        vec![Reply::bulk("slave"), Reply::bulk("127.0.0.1"), Reply::Int(6379), connected, Reply::Int(0)]
    } else {
        vec![Reply::bulk("master"), Reply::Int(0), Reply::Array(Vec::new())]
    };
    Ok(Reply::Array(role))
}

/// Accepts every user and password.
pub(super) fn auth(_: &mut State, _: &[&[u8]]) -> CommandResult {
    Ok(OK)
}

/// Accepts every database, but models only one.
pub(super) fn select(_: &mut State, words: &[&[u8]]) -> CommandResult {
    match number::integer(words[1]) {
        Some(0..16) => Ok(OK),
        Some(_) => Err("ERR DB index is out of range".into()),
        None => Err("ERR invalid DB index".into()),
    }
}

/// Slots never move, so nothing is asked.
pub(super) fn asking(_: &mut State, _: &[&[u8]]) -> CommandResult {
    Ok(OK)
}

pub(super) fn cluster(state: &mut State, words: &[&[u8]]) -> CommandResult {
    let Some(view) = &state.cluster else {
        return Err("ERR This instance has cluster support disabled".into());
    };
    if words[1].eq_ignore_ascii_case(b"slots") {
        Ok(view.slots())
    } else {
        Err(format!("ERR unknown subcommand '{}'. Try CLUSTER HELP.", String::from_utf8_lossy(words[1]))
            .into())
    }
}
