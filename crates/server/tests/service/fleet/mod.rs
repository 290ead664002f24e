//! Several instances on one Redis: what is changed at one holds at all, and what they count is summed.

mod instance;
mod registry;

use instance::{Instance, SOON, becomes};
