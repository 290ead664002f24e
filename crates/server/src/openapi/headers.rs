//! The header fields of answers: described once, and named wherever they occur.

use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{Header, HeaderBuilder, Ref, RefOr, ResponseBuilder};

/// The header fields of every answer about a limit.
pub(crate) const LIMITED: [&str; 6] = [
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
    "RateLimit-Policy",
    "RateLimit",
    "X-RateLimit-Degraded",
];
/// The header fields of a denial, which also has `Retry-After`.
pub(crate) const REFUSED: [&str; 8] = [
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
    "RateLimit-Policy",
    "RateLimit",
    "X-RateLimit-Degraded",
    "Retry-After",
    "Cache-Control",
];

/// Every header field there is.
pub(super) fn all() -> Vec<(&'static str, Header)> {
    vec![
        ("Allow", text("The methods that the path takes.")),
        ("Cache-Control", text("`no-store`: the next answer may be another.")),
        ("ETag", text("Changes whenever the entry does. Send it back as `If-Match`.")),
        ("Location", text("Where the entry is.")),
        ("RateLimit", text("Each limit now: `\"gold/burst\";r=73;t=1`, `r` left and `t` seconds to wait.")),
        (
            "RateLimit-Policy",
            text("Each limit: `\"gold/burst\";q=100;w=2`, `q` at once and all back in `w` seconds."),
        ),
        ("Retry-After", whole("Seconds to wait, rounded up.", 1)),
        ("WWW-Authenticate", text("`Bearer`.")),
        ("X-RateLimit-Degraded", degraded()),
        ("X-RateLimit-Limit", whole("Capacity of the limit that binds.", 1)),
        ("X-RateLimit-Remaining", whole("Whole tokens left under the limit that binds.", 0)),
        ("X-RateLimit-Reset", whole("When its bucket is full again, in seconds since the epoch.", 0)),
    ]
}

/// The answer with these fields.
pub(super) fn with(response: ResponseBuilder, names: &[&str]) -> utoipa::openapi::Response {
    let mut response = response.build();
    for name in names {
        let header = RefOr::Ref(Ref::new(format!("#/components/headers/{name}")));
        response.headers.insert((*name).to_owned(), header);
    }
    response
}

fn degraded() -> Header {
    let word = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(["true"]));
    described("There where the store did not decide, but the failure policy.", word)
}

fn whole(description: &str, minimum: u32) -> Header {
    described(description, ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(minimum)))
}

fn text(description: &str) -> Header {
    described(description, ObjectBuilder::new().schema_type(Type::String))
}

fn described(description: &str, schema: ObjectBuilder) -> Header {
    HeaderBuilder::new().description(Some(description)).schema(Some(schema)).build()
}
