//! Functions and methods that the attribute accepts. That they compile is the test.

#![allow(
    clippy::cloned_ref_to_slice_refs,
    clippy::no_effect_underscore_binding,
    reason = "users may write so"
)]

mod functions;
mod macro_rules;
mod methods;
mod permits;
