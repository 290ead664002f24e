//! Preconditions: `If-Match` and `If-None-Match`.

use http::header::{HeaderName, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue};

use crate::control::Condition;
use crate::input::fault::Fault;

/// The precondition of a request. Without either field the last writer wins.
pub(super) fn condition(headers: &HeaderMap) -> Result<Condition, Fault> {
    let if_match = text(headers, &IF_MATCH)?.map(|tags| unchanged(&tags)).transpose()?;
    let if_none_match = text(headers, &IF_NONE_MATCH)?.map(|tags| absent(&tags)).transpose()?;
    Ok(match (if_match, if_none_match) {
        (None, None) => Condition::Always,
        (Some(only), None) | (None, Some(only)) => only,
        // No entry both exists and is absent, so nothing matches.
        (Some(_), Some(_)) => Condition::Unchanged(Vec::new()),
    })
}

fn unchanged(tags: &str) -> Result<Condition, Fault> {
    match tags {
        "*" => Ok(Condition::Present),
        _ => tags.split(',').map(tag).collect::<Result<_, _>>().map(Condition::Unchanged),
    }
}

fn absent(tags: &str) -> Result<Condition, Fault> {
    match tags {
        "*" => Ok(Condition::Absent),
        _ => Err(Fault::new("If-None-Match", "takes `*`: nothing has this name yet")),
    }
}

/// Joins all lines of a field.
fn text(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, Fault> {
    let lines: Result<Vec<&str>, _> = headers.get_all(name).iter().map(HeaderValue::to_str).collect();
    let lines = lines.map_err(|_| malformed(name.as_str()))?;
    Ok(Some(lines.join(",").trim().to_owned()).filter(|_| !lines.is_empty()))
}

/// Returns the tag between the quotes. A weak tag is returned unchanged and matches nothing, because all tags here are strong.
fn tag(text: &str) -> Result<String, Fault> {
    let text = text.trim();
    let (weak, quoted) = text.strip_prefix("W/").map_or((false, text), |quoted| (true, quoted));
    let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match inner.filter(|inner| !inner.contains('"')) {
        Some(_) if weak => Ok(text.to_owned()),
        Some(inner) => Ok(inner.to_owned()),
        None => Err(malformed("If-Match")),
    }
}

fn malformed(field: &str) -> Fault {
    Fault::new(field, "takes `*` or the `ETag` of an entry, in its quotes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: &HeaderName, values: &[&'static str]) -> Result<Condition, String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name, HeaderValue::from_static(value));
        }
        condition(&headers).map_err(|why| why.to_string())
    }

    #[test]
    fn tags_are_read_from_lists_and_lines() {
        let tags = |tags: &[&str]| Ok(Condition::Unchanged(tags.iter().map(ToString::to_string).collect()));
        assert_eq!(asked(&IF_MATCH, &["\"a\""]), tags(&["a"]));
        assert_eq!(asked(&IF_MATCH, &["\"a\", \"b\"", "\"c\""]), tags(&["a", "b", "c"]));
        assert_eq!(asked(&IF_MATCH, &["W/\"a\""]), tags(&["W/\"a\""]));
        assert_eq!(asked(&IF_MATCH, &[" * "]), Ok(Condition::Present));
        assert_eq!(asked(&IF_NONE_MATCH, &["*"]), Ok(Condition::Absent));
    }

    #[test]
    fn what_is_no_tag_is_refused() {
        for wrong in ["", "a", "\"a", "a\"", "\"a\" \"b\"", "\"a\",", "*, \"a\""] {
            assert!(asked(&IF_MATCH, &[wrong]).is_err_and(|why| why.contains("If-Match")), "{wrong}");
        }
        assert!(asked(&IF_NONE_MATCH, &["\"a\""]).is_err());
    }
}
