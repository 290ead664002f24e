//! Metrics of the process, by the names that Prometheus' client libraries use. Read from `/proc` on each scrape; systems without it have
//! no such metrics.

use std::fmt::Write;
use std::fs;

use rustix::param::clock_ticks_per_second;

/// The kernel's figures of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ProcessStats {
    cpu_seconds: f64,
    /// `None` if the kernel does not report when it was booted.
    start_time_seconds: Option<f64>,
    threads: u64,
    virtual_bytes: u64,
    resident_bytes: u64,
    open_fds: u64,
    /// `None` if there is no limit.
    max_fds: Option<u64>,
}

impl ProcessStats {
    /// The current figures. `None` if the kernel does not report them.
    pub(super) fn read() -> Option<Self> {
        let text = |name: &str| fs::read_to_string(format!("/proc/{name}")).ok();
        let open_fds = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
        let mut stats = Self::parse(
            &text("self/stat")?,
            &text("self/status")?,
            &text("self/limits")?,
            &text("stat").unwrap_or_default(),
            clock_ticks_per_second() as f64,
        )?;
        // The directory that was just read was open, too.
        stats.open_fds = open_fds.saturating_sub(1);
        Some(stats)
    }

    fn parse(stat: &str, status: &str, limits: &str, system: &str, ticks: f64) -> Option<Self> {
        // The name of the program comes second, in brackets, and may hold spaces and brackets.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        // The first of these is the third in `man 5 proc`.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1_024)
        };
        let boot = system.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse::<u64>().ok());
        let started = field(22)? as f64 / ticks;
        let files = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        Some(Self {
            cpu_seconds: (field(14)? + field(15)?) as f64 / ticks,
            start_time_seconds: boot.map(|boot| boot as f64 + started),
            threads: field(20)?,
            virtual_bytes: kib("VmSize:")?,
            resident_bytes: kib("VmRSS:")?,
            open_fds: 0,
            max_fds: files.split_whitespace().next()?.parse().ok(),
        })
    }

    /// Appends the metrics in the format of Prometheus. Counters of the `metrics` crate hold whole numbers, which would
    /// round CPU time to seconds.
    pub(super) fn write(&self, to: &mut String) {
        let mut metric = |name: &str, kind: &str, help: &str, value: f64| {
            // Writing to memory does not fail.
            let _written = write!(
                to,
                "# HELP process_{name} {help}\n# TYPE process_{name} {kind}\nprocess_{name} {value}\n\n"
            );
        };
        metric("cpu_seconds_total", "counter", "CPU time of the process, in seconds.", self.cpu_seconds);
        if let Some(started) = self.start_time_seconds {
            let help = "When the process started, in seconds since the epoch.";
            metric("start_time_seconds", "gauge", help, started);
        }
        metric("threads", "gauge", "Threads of the process.", self.threads as f64);
        metric("virtual_memory_bytes", "gauge", "Virtual memory, in bytes.", self.virtual_bytes as f64);
        metric("resident_memory_bytes", "gauge", "Resident memory, in bytes.", self.resident_bytes as f64);
        metric("open_fds", "gauge", "Open file descriptors.", self.open_fds as f64);
        if let Some(max) = self.max_fds {
            metric("max_fds", "gauge", "Most file descriptors that may be open.", max as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str =
        "42 (spile (a) b) S 1 42 42 0 -1 4194560 2317 0 0 0 150 50 0 0 20 0 5 0 1000 1073741824 2560";
    const STATUS: &str = "Name:\tspile\nVmSize:\t 1048576 kB\nVmRSS:\t   10240 kB\n";
    const LIMITS: &str = "Limit Soft Limit Hard Limit Units\nMax open files            1024                 524288               files\n";

    #[test]
    fn what_the_kernel_tells_is_read_whatever_the_program_is_called() {
        let stats = ProcessStats::parse(STAT, STATUS, LIMITS, "cpu 1 2\nbtime 1700000000\n", 100.0);
        let expected = ProcessStats {
            cpu_seconds: 2.0,
            start_time_seconds: Some(1_700_000_010.0),
            threads: 5,
            virtual_bytes: 1 << 30,
            resident_bytes: 10 << 20,
            open_fds: 0,
            max_fds: Some(1_024),
        };
        assert_eq!(stats, Some(expected));
        let unlimited = LIMITS.replace("1024 ", "unlimited ");
        let stats = ProcessStats::parse(STAT, STATUS, &unlimited, "btime 1\n", 100.0);
        assert_eq!(stats.and_then(|stats| stats.max_fds), None);
        assert_eq!(ProcessStats::parse("", "", "", "", 100.0), None, "other systems have other files");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_threads_memory_and_files() {
        let stats = ProcessStats::read().expect("Linux tells");
        assert!(stats.threads > 0 && stats.resident_bytes > 1 << 20 && stats.open_fds >= 3, "{stats:?}");
        assert!(stats.start_time_seconds.is_some_and(|at| at > 1_600_000_000.0), "{stats:?}");
        let mut text = String::new();
        stats.write(&mut text);
        assert!(
            text.contains("# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total "),
            "{text}"
        );
    }
}
