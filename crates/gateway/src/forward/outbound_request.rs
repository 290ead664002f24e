//! A request that is ready to leave for an upstream.

use http::HeaderMap;
use http::request::Parts;

use super::headers::Introduction;
use crate::route::HeaderChanges;

/// What an upstream is asked, but for the body.
pub(crate) struct Errand<'r> {
    pub(crate) parts: &'r mut Parts,
    /// The gateway's own fields, until they are among the others.
    introduction: Option<Introduction<'r>>,
}

impl<'r> Errand<'r> {
    /// A request whose own fields are clean, with the route's changes. The introduction stays apart from the rest for
    /// as long as nothing needs to see all fields together.
    pub(crate) fn new(parts: &'r mut Parts, introduction: Introduction<'r>, changes: &HeaderChanges) -> Self {
        let mut errand = Self { parts, introduction: Some(introduction) };
        if !changes.is_empty() || !introduction.stands_alone() {
            changes.apply_to_request(errand.all_fields());
        }
        errand
    }

    /// All fields in one place.
    pub(crate) fn all_fields(&mut self) -> &mut HeaderMap {
        if let Some(introduction) = self.introduction.take() {
            introduction.insert(&mut self.parts.headers);
        }
        &mut self.parts.headers
    }

    /// Writes those fields that are not among the others, as lines of an HTTP/1.1 header.
    pub(crate) fn push_apart(&self, lines: &mut Vec<u8>) {
        if let Some(introduction) = &self.introduction {
            introduction.push(lines);
        }
    }
}
