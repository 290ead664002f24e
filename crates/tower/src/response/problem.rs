//! The answer to a request that cannot be charged, as a problem of RFC 9457.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Response, StatusCode};

use spile_core::ChargeError;
use spile_limiter::LimiterError;

use super::PROBLEM_JSON;

/// The answer to a request that could never be decided: 400 if the request has a mistake, 500 if the service's configuration
/// has one.
pub fn invalid(error: &LimiterError) -> Response<Bytes> {
    let at_fault =
        if is_callers_fault(error) { StatusCode::BAD_REQUEST } else { StatusCode::INTERNAL_SERVER_ERROR };
    problem(at_fault, &error.to_string())
}

/// The answer to a request that cannot be charged: `detail` says what is wrong and what to do.
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

/// True if the mistake is in the request, and not in the service's configuration.
pub(crate) const fn is_callers_fault(error: &LimiterError) -> bool {
    matches!(
        error,
        LimiterError::Key(_)
            | LimiterError::Cost(_)
            | LimiterError::Charge(ChargeError::CostAboveCapacity { .. })
    )
}

/// The text, escaped for a JSON string.
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
