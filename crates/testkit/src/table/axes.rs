//! The axes of the table.

use spile_core::{Operation, PermitStep, Shape, SpendTime};

/// Defines an enum and the list of its variants, so that none can be left out of the table.
macro_rules! axis {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
        }
    };
}

axis! {
    /// The operations, one for each that a store answers in another way.
    OperationKind {
        /// Spends.
        Spend,
        /// Peeks.
        Peek,
        /// Spends what is available.
        SpendUpTo,
        /// Charges late.
        Charge,
        /// Refunds a spend whose time is unknown.
        Refund,
        /// Refunds a spend of the window that holds now.
        RefundThisWindow,
        /// Refunds a spend of the moment at which the story begins.
        RefundSpentAt,
        /// Refunds with an id.
        RefundOnce,
        /// Spends, and marks a reservation.
        Reserve,
        /// Settles a reservation.
        Settle,
        /// Takes a permit.
        Acquire,
        /// Takes or keeps a permit.
        Retake,
        /// Keeps a permit.
        Renew,
        /// Ends a permit.
        Release,
        /// Forgets.
        Reset,
    }
}

impl OperationKind {
    /// True if it returns what was spent.
    pub const fn is_refund(self) -> bool {
        matches!(self, Self::Refund | Self::RefundThisWindow | Self::RefundSpentAt | Self::RefundOnce)
    }

    /// The row of an operation. A new operation does not compile without one.
    pub const fn of(operation: &Operation<'_>) -> Self {
        match operation {
            Operation::Spend => Self::Spend,
            Operation::Peek => Self::Peek,
            Operation::SpendUpTo => Self::SpendUpTo,
            Operation::Charge => Self::Charge,
            Operation::Refund { once: Some(_), .. } => Self::RefundOnce,
            Operation::Refund { spent: SpendTime::Unknown, once: None } => Self::Refund,
            Operation::Refund { spent: SpendTime::ThisWindow, once: None } => Self::RefundThisWindow,
            Operation::Refund { spent: SpendTime::At(_), once: None } => Self::RefundSpentAt,
            Operation::Reserve(_) => Self::Reserve,
            Operation::Settle(..) => Self::Settle,
            Operation::Permit(_, PermitStep::Acquire) => Self::Acquire,
            Operation::Permit(_, PermitStep::Retake) => Self::Retake,
            Operation::Permit(_, PermitStep::Renew) => Self::Renew,
            Operation::Permit(_, PermitStep::Release(_)) => Self::Release,
            Operation::Reset => Self::Reset,
        }
    }
}

axis! {
    /// The shapes of limits.
    ShapeKind {
        /// A rate.
        Rate,
        /// A quota.
        Quota,
        /// A concurrency.
        Concurrency,
    }
}

impl ShapeKind {
    /// The kind of a shape. A new shape does not compile without one.
    pub const fn of(shape: &Shape) -> Self {
        match shape {
            Shape::Rate(_) => Self::Rate,
            Shape::Quota(_) => Self::Quota,
            Shape::Concurrency(_) => Self::Concurrency,
        }
    }
}

axis! {
    /// The cost, compared with the capacity.
    CostKind {
        /// Nothing is spent.
        Zero,
        /// A fraction of a token.
        Fraction,
        /// Less than the capacity.
        Below,
        /// The capacity.
        Equal,
        /// More than the capacity.
        Above,
    }
}

axis! {
    /// The state of the bucket before the question.
    StateKind {
        /// The key was never seen.
        Absent,
        /// It was used, and is full again.
        Full,
        /// Some is left.
        Partial,
        /// Nothing is left.
        Empty,
        /// Late charges took more than there was.
        InDebt,
        /// The clock stepped back after it was written.
        InFuture,
        /// The limit was wider when it was written.
        Tightened,
        /// The limit was tighter when it was written.
        Widened,
        /// It was used under a limit of another shape, and then under this one.
        OtherShape,
        /// It is drained, its limit was tightened and asked about, and the store had time to forget it by the former limit.
        Lingering,
        /// The key has a type that no store writes.
        Broken,
        /// The stored numbers cannot be those of a bucket.
        Corrupt,
    }
}

axis! {
    /// The buckets that a question is about.
    KeysKind {
        /// One bucket.
        One,
        /// One bucket each of two keys.
        Two,
        /// One bucket twice, at two costs.
        Same,
        /// A bucket, and one of a rate that has enough.
        Beside,
    }
}
