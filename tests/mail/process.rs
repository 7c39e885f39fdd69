//! What is known of the daemon's process.

use crate::redis_common::Process;

/// The most memory that it had in use, in bytes.
pub(crate) fn most_memory(daemon: &Process) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}
