use spile::{RateLimitExceeded, rate_limit};

/// A function whose signature comes from a macro, which hands on types in groups of their own.
macro_rules! limited {
    ($name:ident, $key:expr => $ret:ty) => {
        #[rate_limit(key = $key, plan = "gold")]
        async fn $name() -> $ret {
            Ok(())
        }
    };
}

/// One macro inside another: the type is in two groups.
macro_rules! nested {
    ($name:ident => $ret:ty) => {
        limited!($name, "everybody" => $ret);
    };
}

limited!(print, "ann" => Result<(), RateLimitExceeded>);
nested!(scan => Result<(), RateLimitExceeded>);

fn is_send<T: Send>(_: T) {}

#[test]
fn they_compile() {
    is_send(print());
    is_send(scan());
}
