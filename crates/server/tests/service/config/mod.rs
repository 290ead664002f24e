//! The configuration: the file, its defaults, its secrets, and changes while the process runs.

mod collector;
mod example;
mod file;
mod permits;
mod reloads;
mod safe_defaults;
mod secrets;
