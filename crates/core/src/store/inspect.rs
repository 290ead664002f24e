//! Inspection of stored state, for operators.

use std::sync::Arc;
use std::time::Duration;

use crate::{Charges, HeldPermit, Store, StoreError};

/// A store whose state can be inspected.
pub trait Inspect: Store {
    /// The permits that are held under each charge: at most a thousand, those that end first. Empty for charges that take no
    /// permit.
    fn holders(
        &self,
        charges: &Charges<'_>,
    ) -> impl Future<Output = Result<Vec<Vec<HeldPermit>>, StoreError>> + Send;

    /// Whether, and for how long, the store keeps the bucket of each charge.
    fn kept(&self, charges: &Charges<'_>) -> impl Future<Output = Result<Vec<Kept>, StoreError>> + Send;
}

/// Whether a store keeps a bucket. A bucket that was never spent from is not kept, and one that is full need not be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kept {
    /// The bucket is not kept: its key starts full.
    Absent,
    /// The bucket is kept until it is full again.
    UntilFull,
    /// The bucket is kept for this long.
    For(Duration),
}

impl<S: Inspect> Inspect for Arc<S> {
    fn holders(
        &self,
        charges: &Charges<'_>,
    ) -> impl Future<Output = Result<Vec<Vec<HeldPermit>>, StoreError>> + Send {
        (**self).holders(charges)
    }

    fn kept(&self, charges: &Charges<'_>) -> impl Future<Output = Result<Vec<Kept>, StoreError>> + Send {
        (**self).kept(charges)
    }
}
