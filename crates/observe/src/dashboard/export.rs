//! Streams the minutes as one JSON or CSV document, part by part, so that a day is never in memory at once.

use axum::body::Body;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;

use super::problem;
use crate::analytics::{Analytics, AnalyticsQuery, CSV_HEAD, MinuteRow, MinuteStoreError, write_csv};

/// The format of the document.
#[derive(Clone, Copy)]
pub(super) enum ExportFormat {
    Json,
    Csv,
}

/// The minutes that the query selects. If the first of them cannot be read, the response is a 503. If later ones cannot
/// be read, the body ends with an error and the connection is closed.
pub(super) async fn stream(analytics: &Analytics, query: &AnalyticsQuery, format: ExportFormat) -> Response {
    try_stream(analytics, query, format).await.unwrap_or_else(|why| {
        problem(503, "scope", &format!("{why}; scope=instance gives the minutes of this instance alone"))
    })
}

async fn try_stream(
    analytics: &Analytics,
    query: &AnalyticsQuery,
    format: ExportFormat,
) -> Result<Response, MinuteStoreError> {
    let mut parts = analytics.parts(query);
    let mut text = String::from(if matches!(format, ExportFormat::Csv) { CSV_HEAD } else { "[" });
    let empty = text.len();
    let mut started = false;
    while text.len() == empty {
        let Some(part) = parts.next() else { break };
        format.write(&mut text, &analytics.rows(&part).await?, &mut started);
    }
    let rest = ExportStream { analytics: analytics.clone(), parts, format, started, text, ended: false };
    let body = Body::from_stream(unfold(rest, ExportStream::next));
    Ok(match format {
        ExportFormat::Json => ([(CONTENT_TYPE, "application/json")], body).into_response(),
        ExportFormat::Csv => {
            let name = "attachment; filename=\"spile-minutes.csv\"";
            let headers = [(CONTENT_TYPE, "text/csv; charset=utf-8"), (CONTENT_DISPOSITION, name)];
            (headers, body).into_response()
        }
    })
}

/// The rest of the document.
struct ExportStream<P> {
    analytics: Analytics,
    parts: P,
    format: ExportFormat,
    /// Whether a row was already written, so that JSON needs a comma before the next.
    started: bool,
    /// Text that was written and not yet returned.
    text: String,
    ended: bool,
}

impl<P: Iterator<Item = AnalyticsQuery>> ExportStream<P> {
    async fn next(mut self) -> Option<(Result<String, MinuteStoreError>, Self)> {
        while self.text.is_empty() {
            if self.ended {
                return None;
            }
            let Some(part) = self.parts.next() else {
                self.ended = true;
                self.text.push_str(self.format.end());
                continue;
            };
            match self.analytics.rows(&part).await {
                Ok(rows) => self.format.write(&mut self.text, &rows, &mut self.started),
                Err(why) => {
                    self.ended = true;
                    return Some((Err(why), self));
                }
            }
        }
        Some((Ok(std::mem::take(&mut self.text)), self))
    }
}

impl ExportFormat {
    fn write(self, text: &mut String, rows: &[MinuteRow], started: &mut bool) {
        match self {
            Self::Csv => write_csv(text, rows),
            Self::Json => {
                for row in rows {
                    if std::mem::replace(started, true) {
                        text.push(',');
                    }
                    text.push_str(&serde_json::to_string(row).expect("a row is plain JSON"));
                }
            }
        }
    }

    const fn end(self) -> &'static str {
        match self {
            Self::Csv => "",
            Self::Json => "]",
        }
    }
}
