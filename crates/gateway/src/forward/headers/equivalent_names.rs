//! Field names that some upstreams treat as the same one.
//!
//! CGI, WSGI and PHP map several names to one variable: `X-Plan`, `X_Plan` and `X.Plan` all become `HTTP_X_PLAN`. So
//! when a client's field is compared with one that the gateway writes or removes, each byte that is neither a letter
//! nor a digit counts as a dash.

/// Whether the name consists of lower-case letters, digits and dashes, as nearly all do.
pub(crate) fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'-' | b'0'..=b'9'))
}

/// True if some upstreams treat the two names as the same one. Both are in lower case.
pub(crate) fn is_equivalent(name: &str, other: &str) -> bool {
    name.len() == other.len() && has_equivalent_prefix(name, other)
}

/// True if some upstreams treat the start of the name as `beginning`.
pub(crate) fn has_equivalent_prefix(name: &str, beginning: &str) -> bool {
    name.len() >= beginning.len() && name.bytes().zip(beginning.bytes()).all(|(a, b)| dash(a) == dash(b))
}

/// The name in lower case, with dashes. Equivalent names normalize to the same text.
pub(super) fn normalized(name: &str) -> String {
    name.bytes().map(|byte| char::from(dash(byte.to_ascii_lowercase()))).collect()
}

const fn dash(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() { byte } else { b'-' }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_token_that_is_no_letter_or_digit_reads_as_a_dash() {
        for byte in "!#$%&'*+-.^_`|~".chars() {
            let name = format!("x{byte}plan");
            assert!(is_equivalent(&name, "x-plan") && has_equivalent_prefix(&name, "x-pl"), "{name}");
            assert_eq!((normalized(&name.to_uppercase()).as_str(), is_plain(&name)), ("x-plan", byte == '-'));
        }
        assert!(
            !is_equivalent("x-plans", "x-plan")
                && !is_equivalent("xxplan", "x-plan")
                && !has_equivalent_prefix("x-p", "x-pl")
        );
    }
}
