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
        let mut names = Vec::new();
        let Ok(()) = self.try_each(|name| {
            names.push(name.to_owned());
            Ok::<(), std::convert::Infallible>(())
        });
        names
    }
}

impl<T: sealed::Names + ?Sized> PlanList for T {}

pub(crate) mod sealed {
    use super::PlanName;

    pub trait Names {
        /// Calls `visit` with each name, up to the first that fails.
        fn try_each<E>(&self, visit: impl FnMut(&str) -> Result<(), E>) -> Result<(), E>;

        /// The name, if it is the only one.
        fn only(&self) -> Option<&str>;
    }

    impl<T: Names + ?Sized> Names for &T {
        #[inline]
        fn try_each<E>(&self, visit: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
            (**self).try_each(visit)
        }

        #[inline]
        fn only(&self) -> Option<&str> {
            (**self).only()
        }
    }

    macro_rules! one_name {
        ($($name:ty),*) => {$(
            impl Names for $name {
                #[inline]
                fn try_each<E>(&self, mut visit: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
                    visit(self.as_ref())
                }

                #[inline]
                fn only(&self) -> Option<&str> {
                    Some(self.as_ref())
                }
            }
        )*};
    }

    one_name!(str, String, PlanName);

    impl<N: AsRef<str>> Names for [N] {
        #[inline]
        fn try_each<E>(&self, mut visit: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
            self.iter().try_for_each(|name| visit(name.as_ref()))
        }

        #[inline]
        fn only(&self) -> Option<&str> {
            if let [only] = self { Some(only.as_ref()) } else { None }
        }
    }

    macro_rules! list_of_names {
        ($([$($generic:tt)*] $list:ty),*) => {$(
            impl<$($generic)*> Names for $list {
                #[inline]
                fn try_each<E>(&self, visit: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
                    self[..].try_each(visit)
                }

                #[inline]
                fn only(&self) -> Option<&str> {
                    self[..].only()
                }
            }
        )*};
    }

    list_of_names!([N: AsRef<str>, const COUNT: usize] [N; COUNT], [N: AsRef<str>] Vec<N>);
}
