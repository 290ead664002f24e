//! A day of minutes as one document, written part by part: no more than one part of it is held at a time.

use axum::body::Body;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;

use crate::analytics::{Analytics, Asked, CSV_HEAD, write_csv};
use crate::minutes::MinuteRow;
use crate::sums::SumsError;

/// How rows are written.
#[derive(Clone, Copy)]
pub(super) enum Format {
    Json,
    Csv,
}

/// The minutes that were asked for. If the first of them cannot be read, that is the answer; if later ones cannot, the
/// document breaks off and the connection with it.
pub(super) async fn stream(
    analytics: &Analytics,
    asked: &Asked,
    format: Format,
) -> Result<Response, SumsError> {
    let mut parts = analytics.parts(asked);
    let mut text = String::from(if matches!(format, Format::Csv) { CSV_HEAD } else { "[" });
    let empty = text.len();
    let mut started = false;
    while text.len() == empty {
        let Some(part) = parts.next() else { break };
        format.write(&mut text, &analytics.rows(&part).await?, &mut started);
    }
    let rest = Rest { analytics: analytics.clone(), parts, format, started, text, ended: false };
    let body = Body::from_stream(unfold(rest, Rest::next));
    Ok(match format {
        Format::Json => ([(CONTENT_TYPE, "application/json")], body).into_response(),
        Format::Csv => {
            let name = "attachment; filename=\"spile-minutes.csv\"";
            let headers = [(CONTENT_TYPE, "text/csv; charset=utf-8"), (CONTENT_DISPOSITION, name)];
            (headers, body).into_response()
        }
    })
}

/// What is still to be written.
struct Rest<P> {
    analytics: Analytics,
    parts: P,
    format: Format,
    /// Whether a row was written before.
    started: bool,
    /// What was written and not handed out yet.
    text: String,
    ended: bool,
}

impl<P: Iterator<Item = Asked>> Rest<P> {
    async fn next(mut self) -> Option<(Result<String, SumsError>, Self)> {
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

impl Format {
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
