//! A pause.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use pin_project_lite::pin_project;

use crate::BoxFuture;

pin_project! {
    /// Completes at its moment. Created by [`Runtime::sleep`](crate::Runtime::sleep).
    #[project = SleepProjection]
    #[must_use = "a pause that is not waited for is none"]
    pub enum Sleep {
        /// Tokio's, without an allocation.
        #[doc(hidden)]
        Tokio { #[pin] sleep: tokio::time::Sleep },
        /// A driver's.
        #[doc(hidden)]
        Driven { sleep: BoxFuture<()> },
    }
}

impl Sleep {
    pub(crate) fn tokio(deadline: Instant) -> Self {
        Self::Tokio { sleep: tokio::time::sleep_until(deadline.into()) }
    }
}

impl Future for Sleep {
    type Output = ();

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.project() {
            SleepProjection::Tokio { sleep } => sleep.poll(cx),
            SleepProjection::Driven { sleep } => sleep.as_mut().poll(cx),
        }
    }
}

impl std::fmt::Debug for Sleep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sleep")
    }
}
