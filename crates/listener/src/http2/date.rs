//! The `Date` header, formatted once a second.

use std::cell::RefCell;
use std::sync::LazyLock;
use std::time::{Duration, UNIX_EPOCH};

use http::header::HeaderValue;
use spile_core::{Clock, SystemClock};

thread_local! {
    /// The second that was formatted last, and its text.
    static WRITTEN: RefCell<(u64, HeaderValue)> = const { RefCell::new((0, HeaderValue::from_static(""))) };
}

/// The current date as a header value.
pub(crate) fn now() -> HeaderValue {
    static CLOCK: LazyLock<SystemClock> = LazyLock::new(SystemClock::new);
    at(CLOCK.wall().get() / 1_000_000)
}

fn at(second: u64) -> HeaderValue {
    WRITTEN.with_borrow_mut(|(written, value)| {
        if *written != second {
            let text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
            // A date is made of letters, digits, blanks, commas and colons.
            if let Ok(text) = HeaderValue::try_from(text) {
                (*written, *value) = (second, text);
            }
        }
        value.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_of_its_own_second() {
        assert_eq!(at(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(at(784_111_778), "Sun, 06 Nov 1994 08:49:38 GMT");
    }
}
