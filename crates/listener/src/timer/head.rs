//! The timer that hyper sets for each head of a request, as one that lasts as long as the connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use parking_lot::Mutex;

use super::lasting::LastingTimer;

/// hyper's timer for one connection, which waits for one head at a time.
#[derive(Debug, Default)]
pub(crate) struct HeadTimer(Arc<Mutex<LastingTimer>>);

/// The wait for one head.
struct HeadSleep {
    timer: Arc<Mutex<LastingTimer>>,
    until: Instant,
}

impl Timer for HeadTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, until: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(HeadSleep { timer: Arc::clone(&self.0), until })
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

impl Future for HeadSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.timer.lock().poll_until(self.until.into(), cx)
    }
}

impl Sleep for HeadSleep {}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn look(sleep: &mut Pin<Box<dyn Sleep>>) -> Poll<()> {
        sleep.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()))
    }

    #[tokio::test(start_paused = true)]
    async fn each_head_has_its_whole_time_and_no_more() {
        let timer = HeadTimer::default();
        for _ in 0..3 {
            let mut arrives = timer.sleep(TIMEOUT);
            assert!(look(&mut arrives).is_pending());
            tokio::time::advance(TIMEOUT * 4 / 5).await;
            assert!(look(&mut arrives).is_pending());
        }
        let began = timer.now();
        timer.sleep(TIMEOUT).await;
        let took = timer.now() - began;
        assert!(took.abs_diff(TIMEOUT) <= Duration::from_millis(2), "{took:?}");
    }
}
