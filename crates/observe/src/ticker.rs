//! The thread that ends each second. It lives as long as its watch.

use std::thread;
use std::time::Duration;

use crate::watch::Watch;

const SECOND: Duration = Duration::from_secs(1);

/// Ticks once a second until the last clone of the watch is gone.
pub(crate) fn start(watch: &Watch) {
    let watch = watch.downgrade();
    let ticking = thread::Builder::new().name("spile-observe".to_owned()).spawn(move || {
        loop {
            // Nobody unparks it: parking is how a thread waits that has nothing else to do.
            thread::park_timeout(SECOND);
            match watch.upgrade() {
                Some(watch) => watch.tick(),
                None => return,
            }
        }
    });
    // Without its thread the watch still counts; figures are then as fresh as the last look.
    drop(ticking);
}
