//! What came back.

use http::{HeaderMap, StatusCode};
use serde_json::Value;

/// An answer that has arrived whole. Its checks say what they saw when they fail.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{self:#?}");
        self
    }

    /// Checks one member of the JSON body, found by its pointer: `/limits/0/name`.
    #[track_caller]
    pub(crate) fn says(self, pointer: &str, expected: impl Into<Value>) -> Self {
        assert_eq!(self.json().pointer(pointer), Some(&expected.into()), "{pointer} in {self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn carries(self, header: &str, expected: &str) -> Self {
        assert_eq!(self.header(header), Some(expected), "{header} in {self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn lacks(self, header: &str) -> Self {
        assert_eq!(self.header(header), None, "{header} in {self:#?}");
        self
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("header fields are ASCII"))
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|why| panic!("{why}: {self:#?}"))
    }
}
