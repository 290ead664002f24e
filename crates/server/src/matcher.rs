//! Which requests a rule is for: a path pattern and methods, or descriptors of Envoy's.

use http::Method;
use spile_gateway::PathPattern;

use crate::descriptor::DescriptorMatch;

/// The requests that a rule is for. The empty matcher is for all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Matcher {
    pub(crate) path: Option<PathPattern>,
    pub(crate) methods: Vec<Method>,
    /// Where it is for descriptors, it is for no HTTP request.
    pub(crate) descriptor: Option<DescriptorMatch>,
}

impl Matcher {
    /// Whether it is for this method and path. The path must be clean already, so that no spelling gets around it.
    pub(crate) fn matches(&self, method: &Method, path: &str) -> bool {
        let method_fits = self.methods.is_empty() || self.methods.contains(method);
        self.descriptor.is_none()
            && method_fits
            && self.path.as_ref().is_none_or(|pattern| pattern.matches(path))
    }

    /// Orders matchers by how much they ask for: the more specific path first, then methods over none.
    pub(crate) fn specificity(&self) -> (Option<(usize, usize, bool)>, bool) {
        (self.path.as_ref().map(PathPattern::specificity), !self.methods.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_a_matcher_asks_for_the_more_specific_it_is() {
        let matcher = |path: Option<&str>, methods: &[Method]| Matcher {
            path: path.map(|path| path.parse().expect("a pattern")),
            methods: methods.to_vec(),
            descriptor: None,
        };
        let ordered = [
            matcher(None, &[]),
            matcher(None, &[Method::GET]),
            matcher(Some("/*"), &[]),
            matcher(Some("/scores/*"), &[]),
            matcher(Some("/scores/*"), &[Method::GET]),
            matcher(Some("/scores"), &[]),
            matcher(Some("/scores/top"), &[]),
        ];
        assert!(ordered.is_sorted_by_key(Matcher::specificity));
    }

    #[test]
    fn a_matcher_for_descriptors_is_for_no_http_request() {
        let entries = vec!["remote_address".parse().expect("an entry")];
        let descriptor = Some(DescriptorMatch { domain: "edge".to_owned(), entries });
        let matcher = Matcher { descriptor, ..Matcher::default() };
        assert!(!matcher.matches(&Method::GET, "/"));
        assert!(Matcher::default().matches(&Method::GET, "/"));
    }
}
