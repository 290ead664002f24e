//! A small language for the tests: start a Spile, ask it, look at the answer.

mod answer;
mod process;
mod spile;

pub(crate) use answer::Answer;
pub(crate) use process::Process;
pub(crate) use spile::Spile;
