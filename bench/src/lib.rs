//! What the benchmarks share: CPU time, medians, and tables that read well in a terminal and in Markdown.

mod cpu;
mod median;
mod table;

pub use cpu::{process_cpu_ns, thread_cpu_ns};
pub use median::median;
pub use table::Table;
