//! A process that ends with its test.

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

/// How long a test waits for what must happen: longer than any load of a machine can delay it.
pub const TIMEOUT: Duration = Duration::from_mins(5);

/// Waits until `done`.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until every process that runs sees another second: what it looks for once a second, it
/// looks for again.
pub fn until_another_second() {
    let second = |clock| clock_gettime(clock).tv_sec;
    let begun = second(ClockId::Monotonic);
    // Processes read this clock, which is some milliseconds late.
    until("another second", || second(ClockId::MonotonicCoarse) > begun);
}

/// A process that is killed when it is dropped.
pub struct Process(pub Child);

impl Process {
    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, signal).unwrap();
    }

    /// Waits until it ends.
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        until("the process ends", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The most memory that a process had in use, in bytes.
pub fn most_memory(process: &Process) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}
