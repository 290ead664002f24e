//! The arguments in the parentheses of `#[rate_limit(…)]`.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, Ident, Result, Token};

const KNOWN: &str = "`key`, `plan`, `plans`, `concurrency`, `tokens` and `limiter`";

/// The arguments, each an expression that is evaluated when the function starts.
pub(crate) struct Arguments {
    pub(crate) key: Expr,
    pub(crate) plans: PlanArgument,
    /// The plan whose permit is held while the function runs.
    pub(crate) concurrency: Option<Expr>,
    pub(crate) tokens: Option<Expr>,
    pub(crate) limiter: Option<Expr>,
}

/// The plans of a call: none if it only takes a permit, one, or any list.
pub(crate) enum PlanArgument {
    None,
    One(Expr),
    List(Expr),
}

impl PlanArgument {
    /// An expression that is a list of names.
    pub(crate) fn iterable(&self) -> TokenStream {
        match self {
            Self::None => quote!([""; 0]),
            Self::One(plan) => quote!([#plan]),
            Self::List(plans) => quote!(#plans),
        }
    }
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut given = Given::default();
        for Argument { name, value } in Punctuated::<Argument, Token![,]>::parse_terminated(input)? {
            given.put(&name, value)?;
        }
        given.checked(input.span())
    }
}

struct Argument {
    name: Ident,
    value: Expr,
}

impl Parse for Argument {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name: Ident = input.parse()?;
        if !input.peek(Token![=]) {
            return Err(Error::new(name.span(), format!("`{name}` takes a value: write `{name} = …`")));
        }
        input.parse::<Token![=]>()?;
        Ok(Self { name, value: input.parse()? })
    }
}

/// The arguments as they were typed. Some may be missing.
#[derive(Default)]
struct Given {
    key: Option<Expr>,
    plan: Option<Expr>,
    plans: Option<Expr>,
    concurrency: Option<Expr>,
    tokens: Option<Expr>,
    limiter: Option<Expr>,
}

impl Given {
    fn put(&mut self, name: &Ident, value: Expr) -> Result<()> {
        let place = match name.to_string().as_str() {
            "key" => &mut self.key,
            "plan" => &mut self.plan,
            "plans" => &mut self.plans,
            "concurrency" => &mut self.concurrency,
            "tokens" => &mut self.tokens,
            "limiter" => &mut self.limiter,
            _ => return Err(unknown(name)),
        };
        match place.replace(value) {
            Some(_) => Err(Error::new(name.span(), format!("`{name}` is given twice: keep one of them"))),
            None => Ok(()),
        }
    }

    fn checked(self, span: Span) -> Result<Arguments> {
        let key = self.key.ok_or_else(|| {
            Error::new(span, "`#[rate_limit]` needs to know who pays: add `key = …`, as in `key = user_id`")
        })?;
        let plans = match (self.plan, self.plans) {
            (Some(plan), None) => PlanArgument::One(plan),
            (None, Some(plans)) => PlanArgument::List(plans),
            (Some(_), Some(plans)) => {
                let message =
                    "give either `plan` or `plans`: for a chain write `plans = [\"gold\", \"daily\"]`";
                return Err(Error::new_spanned(plans, message));
            }
            (None, None) if self.concurrency.is_some() => PlanArgument::None,
            (None, None) => {
                let message = "`#[rate_limit]` needs a plan: add `plan = \"gold\"`, `plans = [\"gold\", \"daily\"]`, or \
                               `concurrency = \"jobs\"`";
                return Err(Error::new(span, message));
            }
        };
        let Self { concurrency, tokens, limiter, .. } = self;
        Ok(Arguments { key, plans, concurrency, tokens, limiter })
    }
}

fn unknown(name: &Ident) -> Error {
    let hint = match name.to_string().as_str() {
        "cost" | "token" => ": what a call costs is `tokens`",
        "keys" | "by" => ": who pays is `key`",
        "permit" | "permits" | "jobs" => ": the plan of a permit is `concurrency`",
        _ => "",
    };
    Error::new(name.span(), format!("`#[rate_limit]` knows no argument `{name}`{hint}; it takes {KNOWN}"))
}
