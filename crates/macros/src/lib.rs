//! The attribute `#[rate_limit]`. Use it through the crate `spile` with the feature `macros`: the generated code calls that
//! crate.
//!
//! ```ignore
//! #[spile::rate_limit(key = user_id, plan = "gold")]
//! async fn print(user_id: u64) -> Result<String, spile::RateLimitExceeded> {
//!     Ok("printed".to_owned())
//! }
//! ```
//!
//! This crate only reads and writes tokens. It must not know how a decision is made.

#![deny(missing_docs)]

use proc_macro::TokenStream;

mod arguments;
mod function;

use arguments::Arguments;

/// Lets an async function or method run only if its caller may spend the tokens.
///
/// | argument | is | without it |
/// |---|---|---|
/// | `key` | who pays: any expression over the arguments that can be displayed | an error |
/// | `plan` | the name of a plan, as any expression that reads as `&str` | give `plans` |
/// | `plans` | several plans, all charged or none: `["gold", "daily"]` | give `plan` |
/// | `concurrency` | the plan of a permit, which is held while the function runs | no permit is taken |
/// | `tokens` | what a call costs, as any expression that is a `u64` | 1 |
/// | `limiter` | which limiter decides, as any expression: `self.limiter` | the one given to `spile::set_global_limiter` |
///
/// A permit is taken together with the tokens of the plans, or neither is. It ends when the function returns or panics, or when
/// its future is dropped. With `concurrency`, neither `plan` nor `plans` is needed.
///
/// The function returns `Result<_, E>`, where `E` implements `From<spile::RateLimitExceeded>`. A call that is over
/// a limit returns that error before any of the function's body runs.
#[proc_macro_attribute]
pub fn rate_limit(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let limited = syn::parse(arguments).and_then(|arguments: Arguments| {
        let item = item.clone().into();
        function::limited(&arguments, item)
    });
    match limited {
        Ok(tokens) => tokens.into(),
        // The item is kept as it was written, so that one mistake is not also an error at each call.
        Err(error) => TokenStream::from_iter([error.into_compile_error().into(), item]),
    }
}
