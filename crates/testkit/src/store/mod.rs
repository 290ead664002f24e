//! Stores for tests: the simplest that keeps the contract, and one that fails as a test says.

mod faulty;
mod model;

pub use self::faulty::{CallFault, FaultyStore};
pub use self::model::ModelStore;
