//! Pages of refusals.

use std::path::PathBuf;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use spile_gateway::{RefusalKind, RefusalPage, RefusalPageError, RefusalPages};

use super::files::RouteFiles;
use crate::config::source::{Faults, Location};
use crate::config::value::table;

/// `refusals`: the pages that the operator has written, by kind.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct RefusalsSpec {
    #[serde(deserialize_with = "table")]
    limited: Option<PageSpec>,
    #[serde(deserialize_with = "table")]
    unauthorized: Option<PageSpec>,
    #[serde(deserialize_with = "table")]
    forbidden: Option<PageSpec>,
    #[serde(deserialize_with = "table")]
    not_found: Option<PageSpec>,
    #[serde(deserialize_with = "table")]
    too_large: Option<PageSpec>,
    #[serde(deserialize_with = "table")]
    unavailable: Option<PageSpec>,
}

/// The page of one kind of refusal.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
struct PageSpec {
    status: Option<u64>,
    body: Option<String>,
    body_file: Option<PathBuf>,
    content_type: Option<String>,
}

/// Refusals with pages that the operator has written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusals {
    pub(in crate::config) spec: Option<RefusalsSpec>,
    /// The pages in the gateway's type.
    pub(crate) pages: RefusalPages,
}

impl RefusalsSpec {
    fn each(&mut self) -> [(RefusalKind, &mut Option<PageSpec>); 6] {
        [
            (RefusalKind::Limited, &mut self.limited),
            (RefusalKind::Unauthorized, &mut self.unauthorized),
            (RefusalKind::Forbidden, &mut self.forbidden),
            (RefusalKind::NotFound, &mut self.not_found),
            (RefusalKind::TooLarge, &mut self.too_large),
            (RefusalKind::Unavailable, &mut self.unavailable),
        ]
    }
}

impl Refusals {
    pub(in crate::config) fn check(
        mut spec: Option<RefusalsSpec>,
        at: &Location<'_>,
        opened: &mut RouteFiles,
        faults: &mut Faults,
    ) -> Self {
        let mut pages = RefusalPages::default();
        for (kind, page) in spec.iter_mut().flat_map(RefusalsSpec::each) {
            if let Some(page) = page
                && let Some(checked) = page.check(kind, &at.key(kind.name()), opened, faults)
            {
                pages = pages.page(kind, checked);
            }
        }
        Self { spec, pages }
    }
}

impl PageSpec {
    /// Converts the page into the gateway's type. The file's full path replaces the written one.
    fn check(
        &mut self,
        kind: RefusalKind,
        at: &Location<'_>,
        opened: &mut RouteFiles,
        faults: &mut Faults,
    ) -> Option<RefusalPage> {
        let (content, key) = match (&self.body, &mut self.body_file) {
            (Some(body), None) => (Bytes::from(body.clone()), "body"),
            (None, Some(file)) => {
                let (path, content) = opened.read_page(file);
                let content = content.map_err(|why| {
                    let message = format!("{}: {why}", path.display());
                    faults.add(&at.key("body_file"), message, "a file of at most 64KiB that can be read");
                });
                *file = path;
                (content.ok()?, "body_file")
            }
            (body, _) => {
                let both = if body.is_some() { "both `body` and `body_file`" } else { "no `body`" };
                let message = format!("the page for `{}` has {both}", kind.name());
                faults.add(at, message, "either `body = \"…\"` or `body_file = \"…\"`");
                return None;
            }
        };
        let too_large = |why| faults.add(&at.key(key), why, "a body of at most 64KiB");
        let mut page = RefusalPage::new(content).map_err(too_large).ok()?;
        if let Some(status) = self.status {
            let checked = u16::try_from(status).map_err(|_| RefusalPageError::Status(u16::MAX));
            let wrong = |_| {
                let message = format!("{status} is not a status of a refusal");
                faults.add(&at.key("status"), message, "400 to 599");
            };
            page = checked.and_then(|status| page.status(status)).map_err(wrong).ok()?;
        }
        if let Some(content_type) = &self.content_type {
            let wrong = |why| faults.add(&at.key("content_type"), why, "for instance `application/json`");
            page = page.content_type(content_type).map_err(wrong).ok()?;
        }
        Some(page)
    }
}
