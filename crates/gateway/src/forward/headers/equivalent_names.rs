//! Names of fields as upstreams read them.
//!
//! CGI, WSGI and PHP make one variable of several names: `X-Plan`, `X_Plan` and `X.Plan` all become `HTTP_X_PLAN`. So
//! each byte of a name that is neither a letter nor a digit counts as a dash when a client's name is compared with one
//! that the gateway writes or takes out.

/// Whether the name, which is in lower case, is made of letters, digits and dashes, as nearly all are.
pub(crate) fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'-' | b'0'..=b'9'))
}

/// Whether some upstreams take one name for the other. Both are in lower case.
pub(crate) fn reads_as(name: &str, other: &str) -> bool {
    name.len() == other.len() && begins_as(name, other)
}

/// The same for the beginning of a name.
pub(crate) fn begins_as(name: &str, beginning: &str) -> bool {
    name.len() >= beginning.len() && name.bytes().zip(beginning.bytes()).all(|(a, b)| dash(a) == dash(b))
}

/// The name with dashes, in lower case: the same for all names that read as each other.
pub(super) fn dashed(name: &str) -> String {
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
            assert!(reads_as(&name, "x-plan") && begins_as(&name, "x-pl"), "{name}");
            assert_eq!((dashed(&name.to_uppercase()).as_str(), is_plain(&name)), ("x-plan", byte == '-'));
        }
        assert!(!reads_as("x-plans", "x-plan") && !reads_as("xxplan", "x-plan") && !begins_as("x-p", "x-pl"));
    }
}
