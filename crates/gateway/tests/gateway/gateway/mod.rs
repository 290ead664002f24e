//! The gateway as a whole.

mod guide;
mod reload;
mod security;
mod traces;
