//! Three windows in a row.

use spile_calendar::{Calendar, Window};
use spile_core::Micros;

const EPOCH: Micros = Micros::new(0);
const NEVER: Micros = Micros::new(u64::MAX);

/// The window before the one that holds `now`, that one, and the one after it.
///
/// Before the first window and after the last one there is an empty one, which holds no moment.
pub(crate) fn windows_around(calendar: &Calendar, now: Micros) -> [Window; 3] {
    let current = calendar.window_at(now);
    let previous = match current.start {
        EPOCH => Window { start: EPOCH, end: EPOCH },
        start => calendar.window_at(Micros::new(start.get() - 1)),
    };
    let next = match current.end {
        NEVER => Window { start: NEVER, end: NEVER },
        end => calendar.window_at(end),
    };
    [previous, current, next]
}
