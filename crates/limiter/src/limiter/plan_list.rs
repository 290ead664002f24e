//! The plans that a call names.

use spile_core::PlanName;

/// The plans that a call names: one name, or a list of names. All of them are charged, or none is.
///
/// Implemented for `str`, `String` and [`PlanName`], for arrays, slices and vectors of anything that reads as a `str`, and
/// for references to all of these. It cannot be implemented outside this crate.
///
/// ```
/// # mod spile { pub use spile_core::*; pub use spile_limiter::*; pub use spile_memory::*; }
/// # use spile::{Limit, MemoryStore, Plan, RateLimiter};
/// # let plans = [Plan::new("free", Limit::per_second(9))?, Plan::new("daily", Limit::per_day(99))?];
/// # let limiter = RateLimiter::builder().store(MemoryStore::new()).plans(plans).build();
/// let one = limiter.try_allow("user:123", "free", 1)?;
/// let both = limiter.try_allow("user:123", ["free", "daily"], 1)?;
/// assert_eq!((one.limits().len(), both.limits().len()), (1, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait PlanList: sealed::Names {
    /// The names, in order.
    fn to_names(&self) -> Vec<String> {
        self.names().map(str::to_owned).collect()
    }
}

impl<T: sealed::Names + ?Sized> PlanList for T {}

pub(crate) mod sealed {
    use super::PlanName;

    pub trait Names {
        /// The names, in order.
        fn names(&self) -> impl Iterator<Item = &str>;

        /// The name, if it is the only one.
        #[inline]
        fn only(&self) -> Option<&str> {
            let mut names = self.names();
            names.next().filter(|_| names.next().is_none())
        }
    }

    impl<T: Names + ?Sized> Names for &T {
        #[inline]
        fn names(&self) -> impl Iterator<Item = &str> {
            (**self).names()
        }
    }

    macro_rules! one_name {
        ($($name:ty),*) => {$(
            impl Names for $name {
                #[inline]
                fn names(&self) -> impl Iterator<Item = &str> {
                    std::iter::once(self.as_ref())
                }
            }
        )*};
    }

    one_name!(str, String, PlanName);

    impl<N: AsRef<str>> Names for [N] {
        #[inline]
        fn names(&self) -> impl Iterator<Item = &str> {
            self.iter().map(AsRef::as_ref)
        }
    }

    macro_rules! list_of_names {
        ($([$($generic:tt)*] $list:ty),*) => {$(
            impl<$($generic)*> Names for $list {
                #[inline]
                fn names(&self) -> impl Iterator<Item = &str> {
                    self[..].names()
                }
            }
        )*};
    }

    list_of_names!([N: AsRef<str>, const COUNT: usize] [N; COUNT], [N: AsRef<str>] Vec<N>);
}
