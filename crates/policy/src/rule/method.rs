//! Matches methods, and finds misspelt ones.

use http::Method;

const STANDARD: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"];

/// Whether a method differs from a standard one only by case. Methods are case-sensitive, but some servers treat `post`
/// as `POST`, so that a rule for one could be evaded by sending the other. Such a request is refused.
pub fn is_misspelt(method: &Method) -> bool {
    let text = method.as_str();
    text.bytes().any(|byte| byte.is_ascii_lowercase())
        && STANDARD.iter().any(|standard| standard.eq_ignore_ascii_case(text))
}

/// Whether a list of methods covers this one. GET covers HEAD, because servers answer both with the same code.
pub(crate) fn covers(methods: &[Method], method: &Method) -> bool {
    methods.is_empty()
        || methods.contains(method)
        || (*method == Method::HEAD && methods.contains(&Method::GET))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn method(text: &str) -> Method {
        text.parse().expect("a method")
    }

    #[test]
    fn a_standard_method_in_other_letters_is_misspelt() {
        for text in ["post", "Get", "hEAD", "patch"] {
            assert!(is_misspelt(&method(text)), "{text}");
        }
        for text in ["POST", "GET", "PURGE", "purge", "M-SEARCH"] {
            assert!(!is_misspelt(&method(text)), "{text}");
        }
    }

    #[test]
    fn get_covers_head_and_not_the_other_way() {
        assert!(covers(&[Method::GET], &Method::HEAD));
        assert!(!covers(&[Method::HEAD], &Method::GET));
        assert!(!covers(&[Method::POST], &Method::HEAD));
        assert!(covers(&[], &Method::DELETE));
    }
}
