//! Who sends a request.

mod callers;
mod tokens;
