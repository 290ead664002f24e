//! What refusals look like, as it was written.

use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;
use spile_gateway::{RefusalKind, RefusalPage, RefusalPageError, RefusalPages};

use super::files::RouteFiles;
use crate::config::file::{Faults, RefusalFile, RefusalsFile, Spot};
use crate::config::quoted::Quoted;

/// Refusals with pages that the operator has written.
#[derive(Clone, Debug, Default)]
pub(crate) struct RefusalWords {
    words: Vec<Words>,
    /// The same as the gateway takes it.
    pub(crate) pages: RefusalPages,
}

#[derive(Clone, Debug)]
struct Words {
    kind: RefusalKind,
    status: Option<u16>,
    body: Body,
    content_type: Option<String>,
}

#[derive(Clone, Debug)]
enum Body {
    Text(String),
    File(PathBuf),
}

impl RefusalWords {
    pub(in crate::config) fn check(
        file: Option<RefusalsFile>,
        opened: &mut RouteFiles,
        faults: &mut Faults,
    ) -> Self {
        let mut checked = Self::default();
        for (kind, file) in file.map(|file| file.0).unwrap_or_default() {
            if let Some((words, page)) = check_page(kind, file, opened, faults) {
                checked.words.push(words);
                checked.pages = checked.pages.page(kind, page);
            }
        }
        checked
    }

    /// Writes it as a file would have it.
    pub(in crate::config) fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<String> = self.words.iter().map(Words::show).collect();
        if shown.is_empty() { Ok(()) } else { writeln!(f, "refusals = {{ {} }}", shown.join(", ")) }
    }
}

impl Words {
    fn show(&self) -> String {
        let status = self.status.map_or_else(String::new, |status| format!("status = {status}, "));
        let content_type = self.content_type.as_ref();
        let kind = content_type.map_or_else(String::new, |kind| format!("content_type = {}, ", Quoted(kind)));
        let body = match &self.body {
            Body::Text(text) => format!("body = {}", Quoted(text)),
            Body::File(path) => format!("body_file = {}", Quoted(path.display())),
        };
        format!("{} = {{ {status}{kind}{body} }}", self.kind.name())
    }
}

fn check_page(
    kind: RefusalKind,
    file: RefusalFile,
    opened: &mut RouteFiles,
    faults: &mut Faults,
) -> Option<(Words, RefusalPage)> {
    let RefusalFile { place, status, body, body_file, content_type } = file;
    let (body, content, spot) = match (body, body_file) {
        (Some(Spot { value, place }), None) => {
            let content = Bytes::from(value.clone());
            (Body::Text(value), content, place)
        }
        (None, Some(Spot { value, place })) => {
            let (path, content) = opened.read_page(&value);
            let content = content.map_err(|why| {
                let message = format!("{}: {why}", path.display());
                faults.add(&place, message, "a file of at most 64KiB that can be read");
            });
            (Body::File(path), content.ok()?, place)
        }
        (body, _) => {
            let both = if body.is_some() { "both `body` and `body_file`" } else { "no `body`" };
            let message = format!("the page for `{}` has {both}", kind.name());
            faults.add(&place, message, "either `body = \"…\"` or `body_file = \"…\"`");
            return None;
        }
    };
    let mut page =
        RefusalPage::new(content).map_err(|why| faults.add(&spot, why, "a body of at most 64KiB")).ok()?;
    if let Some(Spot { value, place }) = &status {
        let checked = u16::try_from(*value).map_err(|_| RefusalPageError::Status(u16::MAX));
        let checked = checked.and_then(|status| page.clone().status(status));
        page = checked
            .map_err(|_| {
                faults.add(place, format_args!("{value} is not a status of a refusal"), "400 to 599");
            })
            .ok()?;
    }
    if let Some(Spot { value, place }) = &content_type {
        let checked = page.content_type(value);
        page = checked.map_err(|why| faults.add(place, why, "for instance `application/json`")).ok()?;
    }
    let status = status.map(|status| status.value as u16);
    Some((Words { kind, status, body, content_type: content_type.map(|kind| kind.value) }, page))
}
