//! Commands on hashes.

use crate::redis::data::Hash;
use crate::redis::reply::{CommandResult, Reply};
use crate::redis::state::State;

fn field<'h>(hash: Option<&'h Hash>, name: &[u8]) -> Option<&'h [u8]> {
    let found = hash?.iter().find(|(field, _)| field == name);
    found.map(|(_, value)| &**value)
}

pub(super) fn hmget(state: &mut State, words: &[&[u8]]) -> CommandResult {
    let hash = state.read::<Hash>(words[1])?;
    let values = words[2..].iter().map(|name| Reply::optional_bulk(field(hash, name)));
    Ok(Reply::Array(values.collect()))
}

pub(super) fn hget(state: &mut State, words: &[&[u8]]) -> CommandResult {
    Ok(Reply::optional_bulk(field(state.read(words[1])?, words[2])))
}

pub(super) fn hexists(state: &mut State, words: &[&[u8]]) -> CommandResult {
    Ok(Reply::Int(field(state.read(words[1])?, words[2]).is_some().into()))
}

pub(super) fn hgetall(state: &mut State, words: &[&[u8]]) -> CommandResult {
    let pairs = state.read::<Hash>(words[1])?.into_iter().flatten();
    let both = pairs.flat_map(|(field, value)| [Reply::bulk(&**field), Reply::bulk(&**value)]);
    Ok(Reply::Array(both.collect()))
}

pub(super) fn hlen(state: &mut State, words: &[&[u8]]) -> CommandResult {
    Ok(Reply::count(state.read::<Hash>(words[1])?.map_or(0, Vec::len)))
}

pub(super) fn hset(state: &mut State, words: &[&[u8]]) -> CommandResult {
    let (pairs, []) = words[2..].as_chunks() else {
        return Err("ERR wrong number of arguments for 'hset' command".into());
    };
    let added = state.change(words[1], |hash: &mut Hash| {
        let mut added = 0;
        for [name, value] in pairs {
            if let Some((_, old)) = hash.iter_mut().find(|(field, _)| field == name) {
                old.clear();
                old.extend_from_slice(value);
            } else {
                hash.push((name.to_vec(), value.to_vec()));
                added += 1;
            }
        }
        added
    })?;
    Ok(Reply::Int(added))
}

pub(super) fn hdel(state: &mut State, words: &[&[u8]]) -> CommandResult {
    let removed = state.change(words[1], |hash: &mut Hash| {
        let before = hash.len();
        hash.retain(|(field, _)| !words[2..].contains(&&**field));
        before - hash.len()
    })?;
    Ok(Reply::count(removed))
}
