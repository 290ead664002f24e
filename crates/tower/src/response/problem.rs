//! Anything else that is wrong with a request, as a problem of RFC 9457.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Response, StatusCode};

use super::PROBLEM_JSON;

/// The answer to a request that cannot be limited at all: `detail` says what is wrong and what to do.
pub fn problem(status: StatusCode, detail: &str) -> Response<Bytes> {
    let title = status.canonical_reason().unwrap_or("Error");
    let body = format!(
        "{{\"type\":\"about:blank\",\"title\":\"{title}\",\"status\":{code},\"detail\":\"{detail}\"}}",
        code = status.as_u16(),
        detail = escaped(detail),
    );
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, PROBLEM_JSON);
    response
}

/// The text as it stands between the quotes of a JSON string.
fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut escaped, letter| {
        match letter {
            '"' | '\\' => escaped.extend(['\\', letter]),
            letter if letter.is_control() => escaped.push(' '),
            letter => escaped.push(letter),
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detail_cannot_break_out_of_its_quotes() {
        let response = problem(StatusCode::BAD_REQUEST, "say \"x\\y\"\n");
        assert!(response.body().ends_with(br#""detail":"say \"x\\y\" "}"#));
    }
}
