//! The function under the attribute: checked, and given a first statement that asks the limiter.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::{Error, Ident, ItemFn, Result, ReturnType, Signature, Type, TypeGroup, TypeParen, parse_quote};

use crate::arguments::Arguments;

/// The function with the question before its body.
pub(crate) fn limited(arguments: &Arguments, item: TokenStream) -> Result<TokenStream> {
    let mut function: ItemFn = syn::parse2(item.clone()).map_err(|_| {
        Error::new_spanned(item, "`#[rate_limit]` goes on an async function or method that has a body")
    })?;
    check(&function.sig)?;
    let question = question(arguments);
    function.block.stmts.insert(0, parse_quote!(#question));
    Ok(function.into_token_stream())
}

fn check(signature: &Signature) -> Result<()> {
    if signature.asyncness.is_none() {
        let message = "`#[rate_limit]` needs an `async fn`, for the decision may have to wait for the store: write \
                       `async fn`, or call `RateLimiter::allow` yourself";
        return Err(Error::new_spanned(signature.fn_token, message));
    }
    if !returns_result(&signature.output) {
        let message = "`#[rate_limit]` needs a function that returns `Result<_, E>` where \
                       `E: From<spile::RateLimitExceeded>`: that is how a caller hears of the limit";
        return match &signature.output {
            ReturnType::Default => Err(Error::new_spanned(&signature.ident, message)),
            ReturnType::Type(_, output) => Err(Error::new_spanned(output, message)),
        };
    }
    Ok(())
}

/// True if the name of the type ends with `Result`: `io::Result<()>`, `ApiResult`. If it is another type, the compiler
/// reports it.
fn returns_result(output: &ReturnType) -> bool {
    let ReturnType::Type(_, output) = output else { return false };
    let Type::Path(path) = ungrouped(output) else { return false };
    path.path.segments.last().is_some_and(|last| last.ident.to_string().ends_with("Result"))
}

/// The type itself. A `$ret` of `macro_rules!` arrives in groups that have no delimiters.
fn ungrouped(mut output: &Type) -> &Type {
    while let Type::Group(TypeGroup { elem, .. }) | Type::Paren(TypeParen { elem, .. }) = output {
        output = elem;
    }
    output
}

fn question(arguments: &Arguments) -> TokenStream {
    let Arguments { key, concurrency, tokens, limiter, .. } = arguments;
    let plans = arguments.plans.iterable();
    let tokens = tokens.as_ref().map_or_else(|| quote!(1), ToTokens::to_token_stream);
    let limiter =
        limiter.as_ref().map_or_else(|| quote!(::spile::attribute::Global), ToTokens::to_token_stream);
    // The key becomes a string before the first await, so that the values it is made from need not be `Send`. Its name is
    // hygienic: no expression of the user can see it.
    let written = Ident::new("key", Span::mixed_site());
    if let Some(concurrency) = concurrency {
        // The first variable of a function is the last to be dropped, also if its future is.
        let permit = Ident::new("_permit", Span::mixed_site());
        return quote! {
            let #permit = {
                let #written = ::spile::attribute::key(&(#key));
                ::spile::attribute::acquire(&(#limiter), #written, #plans, #concurrency, #tokens).await?
            };
        };
    }
    quote! {
        {
            let #written = ::spile::attribute::key(&(#key));
            ::spile::attribute::admit(&(#limiter), #written, #plans, #tokens).await?;
        }
    }
}
