//! The `http` listener: the decision API, its description, and what browsers and rude clients may not do.

mod bad_input;
mod clients;
mod decisions;
mod hosts;
mod manners;
mod openapi;
mod permits;
mod reservations;
mod sample_endpoint;
mod schemathesis;
