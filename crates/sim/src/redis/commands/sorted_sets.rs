//! Commands on sorted sets.

use crate::redis::number;
use crate::redis::reply::{CommandResult, ErrorText, NOT_AN_INTEGER, Reply, SYNTAX};
use crate::redis::sorted_set::{ScoreRange, SortedSet};
use crate::redis::state::State;

const BAD_RANGE: ErrorText = ErrorText::Borrowed("ERR min or max is not a float");

pub(super) fn zscore(state: &mut State, words: &[&[u8]]) -> CommandResult {
    let score = state.read::<SortedSet>(words[1])?.and_then(|set| set.score(words[2]));
    Ok(score.map_or(Reply::Nil, |score| Reply::Bulk(number::text(score))))
}

pub(super) fn zcard(state: &mut State, words: &[&[u8]]) -> CommandResult {
    Ok(Reply::count(state.read::<SortedSet>(words[1])?.map_or(0, SortedSet::len)))
}

pub(super) fn zcount(state: &mut State, words: &[&[u8]]) -> CommandResult {
    let range = ScoreRange::parse(words[2], words[3]).ok_or(BAD_RANGE)?;
    Ok(Reply::count(state.read::<SortedSet>(words[1])?.map_or(0, |set| set.range(range).count())))
}

pub(super) fn zadd(state: &mut State, words: &[&[u8]]) -> CommandResult {
    let (pairs, []) = words[2..].as_chunks() else { return Err(SYNTAX) };
    let score = |text: &[u8]| number::float(text).ok_or("ERR value is not a valid float");
    let pairs: Vec<_> =
        pairs.iter().map(|[text, member]| Ok((score(text)?, *member))).collect::<Result<_, &str>>()?;
    let added = state.change(words[1], |set: &mut SortedSet| {
        pairs.into_iter().filter(|(score, member)| set.add(member, *score)).count()
    })?;
    Ok(Reply::count(added))
}

pub(super) fn zrem(state: &mut State, words: &[&[u8]]) -> CommandResult {
    let remove = |set: &mut SortedSet| words[2..].iter().filter(|member| set.remove(member)).count();
    Ok(Reply::count(state.change(words[1], remove)?))
}

pub(super) fn zremrangebyscore(state: &mut State, words: &[&[u8]]) -> CommandResult {
    let range = ScoreRange::parse(words[2], words[3]).ok_or(BAD_RANGE)?;
    let Some(set) = state.read::<SortedSet>(words[1])? else { return Ok(Reply::Int(0)) };
    let members: Vec<Vec<u8>> = set.range(range).map(|(member, _)| member.to_vec()).collect();
    if !members.is_empty() {
        state.change(words[1], |set: &mut SortedSet| {
            for member in &members {
                set.remove(member);
            }
        })?;
    }
    Ok(Reply::count(members.len()))
}

pub(super) fn zrangebyscore(state: &mut State, words: &[&[u8]]) -> CommandResult {
    let range = ScoreRange::parse(words[2], words[3]).ok_or(BAD_RANGE)?;
    let (mut with_scores, mut skip, mut take) = (false, 0, usize::MAX);
    let mut options = words[4..].iter();
    while let Some(option) = options.next() {
        if option.eq_ignore_ascii_case(b"withscores") {
            with_scores = true;
        } else if option.eq_ignore_ascii_case(b"limit") {
            let (Some(offset), Some(count)) = (options.next(), options.next()) else { return Err(SYNTAX) };
            let offset = number::integer(offset).ok_or(NOT_AN_INTEGER)?;
            let count = number::integer(count).ok_or(NOT_AN_INTEGER)?;
            // A negative offset finds nothing, and a negative count is no limit.
            skip = usize::try_from(offset).unwrap_or(usize::MAX);
            take = usize::try_from(count).unwrap_or(usize::MAX);
        } else {
            return Err(SYNTAX);
        }
    }
    let members = state.read::<SortedSet>(words[1])?.into_iter().flat_map(|set| set.range(range));
    Ok(members_reply(members.skip(skip).take(take), with_scores))
}

pub(super) fn zrange(state: &mut State, words: &[&[u8]]) -> CommandResult {
    let with_scores = match words[4..] {
        [] => false,
        [option] if option.eq_ignore_ascii_case(b"withscores") => true,
        _ => return Err(SYNTAX),
    };
    let first = number::integer(words[2]).ok_or(NOT_AN_INTEGER)?;
    let last = number::integer(words[3]).ok_or(NOT_AN_INTEGER)?;
    let Some(set) = state.read::<SortedSet>(words[1])? else { return Ok(Reply::Array(Vec::new())) };
    let length = set.len().cast_signed() as i64;
    let from_end = |index: i64| if index < 0 { index.saturating_add(length) } else { index };
    let (first, last) = (from_end(first).max(0), from_end(last).min(length - 1));
    let take = usize::try_from(last - first + 1).unwrap_or(0);
    Ok(members_reply(set.iter().skip(first as usize).take(take), with_scores))
}

fn members_reply<'s>(members: impl Iterator<Item = (&'s [u8], f64)>, with_scores: bool) -> Reply {
    let mut items = Vec::new();
    for (member, score) in members {
        items.push(Reply::bulk(member));
        if with_scores {
            items.push(Reply::Bulk(number::text(score)));
        }
    }
    Reply::Array(items)
}
