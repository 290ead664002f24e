//! What the benchmarks share: medians, and tables that read well in a terminal and in Markdown.

mod median;
mod table;

pub use median::median;
pub use table::Table;
