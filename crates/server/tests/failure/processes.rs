//! What the kernel says of processes: memory, threads, open files.

use std::fs;

/// Of several processes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) resident_kib: u64,
    pub(crate) threads: u64,
    pub(crate) files: u64,
}

impl Usage {
    /// Of the processes with these ids. Those that have ended count nothing.
    pub(crate) fn of(pids: impl Iterator<Item = u32>) -> Self {
        let mut sum = Self::default();
        for pid in pids {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0_u64)
            };
            sum.resident_kib += field("VmRSS");
            sum.threads += field("Threads");
            let files = fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
            sum.files += u64::try_from(files).unwrap();
        }
        sum
    }
}
