//! The configuration file that a server is started on.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The common settings: loopback only, no persistence, and a socket for control, which works even if the port speaks
/// TLS, is full, or is behind a proxy.
///
/// `enable-debug-command` is unknown to 6.2, so only `debug_commands` sets it.
const COMMON: &str = "\
bind 127.0.0.1
protected-mode no
daemonize no
save \"\"
appendonly no
unixsocketperm 700
";

/// Writes `redis.conf` into `folder` and returns its path.
pub(super) fn write(folder: &Path, lines: &[String]) -> PathBuf {
    let mut text = COMMON.to_owned();
    let socket = socket(folder);
    let _ = writeln!(text, "dir {}\nunixsocket {}", folder.display(), socket.display());
    for line in lines {
        let _ = writeln!(text, "{line}");
    }
    let path = folder.join("redis.conf");
    std::fs::write(&path, text).expect("a configuration file");
    path
}

/// The Unix socket of the server that runs in `folder`.
pub(super) fn socket(folder: &Path) -> PathBuf {
    folder.join("redis.sock")
}
