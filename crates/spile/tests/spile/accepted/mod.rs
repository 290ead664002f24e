//! Functions and methods that the attribute accepts. That they compile is the test.

mod functions;
mod macro_rules;
mod methods;
mod permits;
