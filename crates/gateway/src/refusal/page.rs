//! Pages that operators write to replace the gateway's own refusals.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};

/// The placeholder for the seconds in `Retry-After`.
const RETRY_AFTER_PLACEHOLDER: &str = "{retry_after}";

/// The refusals that can have a custom page.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum RefusalKind {
    /// 429: a limit was reached.
    Limited,
    /// 401: there is no credential, or it is wrong.
    Unauthorized,
    /// 403: the caller may not do this.
    Forbidden,
    /// 404: no route matches.
    NotFound,
    /// 413: the body is larger than the route allows.
    TooLarge,
    /// 502, 503 and 504: the service failed, is busy, or did not respond in time.
    Unavailable,
}

/// The page for one kind of refusal.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct RefusalPage {
    status: Option<StatusCode>,
    content_type: HeaderValue,
    body: Bytes,
    names_wait: bool,
}

/// Pages by kind of refusal. Kinds without a page keep the gateway's own text.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct RefusalPages(Vec<(RefusalKind, RefusalPage)>);

impl RefusalKind {
    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::Limited,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::TooLarge,
        Self::Unavailable,
    ];

    /// The name in a configuration file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Limited => "limited",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::TooLarge => "too_large",
            Self::Unavailable => "unavailable",
        }
    }

    /// The kind of a refusal with this status.
    const fn of(status: StatusCode) -> Option<Self> {
        match status {
            StatusCode::TOO_MANY_REQUESTS => Some(Self::Limited),
            StatusCode::UNAUTHORIZED => Some(Self::Unauthorized),
            StatusCode::FORBIDDEN => Some(Self::Forbidden),
            StatusCode::NOT_FOUND => Some(Self::NotFound),
            StatusCode::PAYLOAD_TOO_LARGE => Some(Self::TooLarge),
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
                Some(Self::Unavailable)
            }
            _ => None,
        }
    }
}

impl RefusalPage {
    /// The largest page, 64 KiB. Pages are held in memory.
    pub const MAX_BYTES: usize = 64 << 10;

    /// A page of plain text with this body, of at most [`MAX_BYTES`](Self::MAX_BYTES). `{retry_after}` in it is
    /// replaced by the seconds in `Retry-After`, or 0 without that field.
    pub fn new(body: impl Into<Bytes>) -> Result<Self, RefusalPageError> {
        let body = body.into();
        if body.len() > Self::MAX_BYTES {
            return Err(RefusalPageError::TooLarge(body.len()));
        }
        let names_wait = memchr::memmem::find(&body, RETRY_AFTER_PLACEHOLDER.as_bytes()).is_some();
        let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
        Ok(Self { status: None, content_type, body, names_wait })
    }

    /// Sets the status, from 400 to 599. That of the refusal by default.
    pub fn status(mut self, status: u16) -> Result<Self, RefusalPageError> {
        let sound = StatusCode::from_u16(status).ok().filter(|_| (400..600).contains(&status));
        self.status = Some(sound.ok_or(RefusalPageError::Status(status))?);
        Ok(self)
    }

    /// Sets the content type.
    pub fn content_type(mut self, kind: &str) -> Result<Self, RefusalPageError> {
        let wrong = || RefusalPageError::ContentType(kind.to_owned());
        let (essence, _parameters) = kind.split_once(';').unwrap_or((kind, ""));
        // A type and a subtype are tokens, as the names of header fields are.
        let is_token = |text: &str| HeaderName::from_bytes(text.as_bytes()).is_ok();
        let sound =
            essence.trim_end().split_once('/').is_some_and(|(main, sub)| is_token(main) && is_token(sub));
        self.content_type = HeaderValue::from_str(kind).ok().filter(|_| sound).ok_or_else(wrong)?;
        Ok(self)
    }

    fn write(&self, response: &mut Response<Bytes>) {
        *response.body_mut() = self.body_for(response.headers());
        *response.status_mut() = self.status.unwrap_or(response.status());
        response.headers_mut().insert(CONTENT_TYPE, self.content_type.clone());
    }

    fn body_for(&self, headers: &HeaderMap) -> Bytes {
        if !self.names_wait {
            return self.body.clone();
        }
        let wait = headers.get(RETRY_AFTER).map_or(&b"0"[..], HeaderValue::as_bytes);
        let (mut body, mut rest) = (Vec::with_capacity(self.body.len()), &self.body[..]);
        while let Some(at) = memchr::memmem::find(rest, RETRY_AFTER_PLACEHOLDER.as_bytes()) {
            body.extend_from_slice(&rest[..at]);
            body.extend_from_slice(wait);
            rest = &rest[at + RETRY_AFTER_PLACEHOLDER.len()..];
        }
        body.extend_from_slice(rest);
        body.into()
    }
}

impl RefusalPages {
    /// Uses this page for refusals of this kind.
    #[must_use]
    pub fn page(mut self, kind: RefusalKind, page: RefusalPage) -> Self {
        self.0.retain(|(known, _)| *known != kind);
        self.0.push((kind, page));
        self
    }

    /// Renders the response with the page of its kind, from these pages or else the `usual` ones. Other headers stay.
    pub(crate) fn apply(&self, usual: &Self, response: &mut Response<Bytes>) {
        let page = RefusalKind::of(response.status()).and_then(|kind| self.find(kind).or(usual.find(kind)));
        if let Some(page) = page {
            page.write(response);
        }
    }

    fn find(&self, kind: RefusalKind) -> Option<&RefusalPage> {
        self.0.iter().find(|(known, _)| *known == kind).map(|(_, page)| page)
    }
}

/// Why a page cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusalPageError {
    /// The body is too large.
    #[error("a body of {0} bytes is too large: at most {max}", max = RefusalPage::MAX_BYTES)]
    TooLarge(usize),
    /// The status is not that of a refusal.
    #[error("{0} is not a status of a refusal: 400 to 599")]
    Status(u16),
    /// The content type is malformed.
    #[error("`{0}` is not a content type")]
    ContentType(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_the_wait_as_often_as_it_likes() {
        let page = RefusalPage::new("{retry_after} {retry_after}{x}").unwrap();
        let mut headers = HeaderMap::new();
        assert_eq!(page.body_for(&headers), "0 0{x}");
        headers.insert(RETRY_AFTER, HeaderValue::from_static("17"));
        assert_eq!(page.body_for(&headers), "17 17{x}");
    }

    #[test]
    fn what_is_no_page_is_refused() {
        let most = RefusalPage::MAX_BYTES;
        assert_eq!(RefusalPage::new(vec![0; most + 1]), Err(RefusalPageError::TooLarge(most + 1)));
        let page = RefusalPage::new(vec![0; most]).unwrap();
        for status in [0, 99, 200, 302, 399, 600, 1000] {
            assert_eq!(page.clone().status(status), Err(RefusalPageError::Status(status)));
        }
        for kind in [
            "",
            "html",
            "/html",
            "text/",
            "text/ html",
            "te xt/html",
            "text/html charset=utf-8",
            "text/html/5",
            "text;/html",
            "text/html\r\nx: y",
            "text/html; x\r\ny",
            "text/\u{e9}",
        ] {
            assert!(page.clone().content_type(kind).is_err(), "{kind}");
        }
        for kind in ["text/html", "application/problem+json", "text/html; charset=utf-8", "text/html ;a=b"] {
            assert!(page.clone().content_type(kind).is_ok(), "{kind}");
        }
    }
}
