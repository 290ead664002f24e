//! The gateway of the real binary, before and behind software that knows nothing of it.

mod access_log;
mod slow_readers;
mod streams;

use std::path::Path;

use crate::support::Process;

/// A gateway with this configuration, whose files lie in the folder.
fn serve(folder: &Path, config: &str) -> Process {
    let path = folder.join("spile.toml");
    std::fs::write(&path, config).expect("the folder is ours");
    Process::serve(&[
        "--config",
        path.to_str().expect("the folder's name is text"),
        "--gateway",
        "127.0.0.1:0",
    ])
}
