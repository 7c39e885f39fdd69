//! Test binaries that start themselves again as workers: several processes, and one that may be
//! killed.

use std::process::{Child, Command, Stdio};

/// The environment variable that makes this test binary a worker.
const WORKER: &str = "EXIRATE_TEST_WORKER";

/// Starts this test binary again as a worker: its test `worker_process`
/// receives `arguments`.
pub fn start(arguments: &[&str]) -> Child {
    start_by(Command::new(std::env::current_exe().unwrap()), arguments)
}

/// As [`start`], by a command to which the worker's arguments are added.
pub fn start_by(mut command: Command, arguments: &[&str]) -> Child {
    command
        .args(["worker_process", "--exact", "--nocapture", "--test-threads=1"])
        .env(WORKER, arguments.join("\n"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// The arguments of a worker; `None` in the test run itself.
pub fn arguments() -> Option<Vec<String>> {
    std::env::var(WORKER).ok().map(|text| text.lines().map(str::to_owned).collect())
}

/// Waits for workers, which must all succeed.
pub fn finish(children: Vec<Child>) {
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
}
