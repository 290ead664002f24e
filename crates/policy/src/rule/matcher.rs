//! Which requests a rule matches: hosts, a path pattern and methods, or descriptors of Envoy.

use http::Method;

use super::{HostPattern, method};
use crate::descriptor::DescriptorMatch;
use crate::facts::Facts;
use crate::path::PathPattern;

/// The requests that a rule matches. The empty matcher matches all HTTP requests.
#[derive(Clone, Debug, Default)]
pub struct Matcher {
    /// Only paths that match this pattern.
    pub path: Option<PathPattern>,
    /// Only these hosts. All if empty.
    pub hosts: Vec<HostPattern>,
    /// Only these methods. All if empty. GET covers HEAD.
    pub methods: Vec<Method>,
    /// Only these descriptors, and no HTTP request.
    pub descriptor: Option<DescriptorMatch>,
}

/// The specificity of a matcher without its hosts.
type PathSpecificity = (Option<(usize, usize, bool)>, bool);

impl Matcher {
    /// Whether it matches every HTTP request.
    pub fn is_for_all(&self) -> bool {
        self.path.is_none() && self.hosts.is_empty() && self.methods.is_empty() && self.descriptor.is_none()
    }

    /// Whether the request matches host, method and path.
    pub(crate) fn matches(&self, facts: &Facts<'_>) -> bool {
        let host = self.hosts.is_empty() || self.hosts.iter().any(|host| host.matches(facts.host));
        host && self.matches_path(facts)
    }

    /// Whether the request matches method and path.
    pub(crate) fn matches_path(&self, facts: &Facts<'_>) -> bool {
        self.descriptor.is_none()
            && method::covers(&self.methods, facts.method)
            && self.path.as_ref().is_none_or(|pattern| pattern.matches(facts.path))
    }

    /// Orders matchers by their path, and then by whether they have methods.
    pub(crate) fn specificity(&self) -> PathSpecificity {
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
            ..Matcher::default()
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
        let headers = http::HeaderMap::new();
        let facts = Facts::new(&Method::GET, "/", &headers);
        let entries = vec!["remote_address".parse().expect("an entry")];
        let descriptor = Some(DescriptorMatch { domain: "edge".to_owned(), entries, subset: false });
        assert!(!Matcher { descriptor, ..Matcher::default() }.matches(&facts));
        assert!(Matcher::default().matches(&facts));
    }
}
