//! Processes that are stopped while others wait for them.

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use exirate::spool::{Options, Spool, SpoolError};
use exirate::sys::secure_dir::DirError;
use rustix::process::{Pid, Signal, getpid, kill_process};

use super::documents::assert_documented;
use super::{count, rate};
use crate::common::{assert_sound, open, request};
use kit::worker::start;

/// A worker that is killed if the test fails.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.kill().unwrap();
        }
        let status = self.0.wait().unwrap();
        assert!(std::thread::panicking() || status.success());
    }
}

/// Whether a process is stopped.
fn is_stopped(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.starts_with('T')
}

#[test]
fn a_stopped_process_is_named_after_a_bounded_wait() {
    let folder = tempfile::tempdir().unwrap();
    let worker = Worker(start(&["hard_world", "stop", folder.path().to_str().unwrap()]));
    let process = worker.0.id();
    let begun = Instant::now();
    while !is_stopped(process) {
        assert!(begun.elapsed() < kit::TIMEOUT, "it does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
    let timeout = Duration::from_millis(250);
    let mut spool = Spool::open(folder.path(), Options { timeout }).unwrap();
    let begun = Instant::now();
    let error = count(&mut spool, "key").unwrap_err();
    // At least this long; not for ever, even on a slow machine.
    assert!(begun.elapsed() >= timeout);
    assert!(matches!(error, SpoolError::Directory(DirError::Busy { .. })));
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap();
    let (number, name) = (process.to_string(), format!("({})", name.trim_end()));
    assert_documented(
        &error.to_string(),
        folder.path(),
        &[("PID", &number), ("(NAME)", &name), ("5s", "0.25s")],
    );
    // Other shards are not affected.
    let counted = (0..20).filter(|n| count(&mut spool, &n.to_string()).is_ok()).count();
    assert!(counted >= 15, "{counted}");
    std::fs::write(folder.path().join("go on"), "").unwrap();
    let pid = Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
    kill_process(pid, Signal::CONT).unwrap();
    drop(worker);
    let mut spool = open(folder.path());
    assert_eq!(count(&mut spool, "key").map(f64::round).unwrap(), 2.0);
    assert_sound(&mut spool);
}

/// Stops while a key is being counted, and continues after SIGCONT.
pub(crate) fn stop_while_locked(folder: &Path) {
    let mut spool = open(folder);
    let request = request("key", None);
    spool
        .update(request.check().key, None, |_, _| {
            kill_process(getpid(), Signal::STOP).unwrap();
            // Another thread may be stopped first.
            while !folder.join("go on").exists() {
                std::thread::sleep(Duration::from_millis(1));
            }
            ((), None)
        })
        .unwrap();
    count(&mut spool, "key").unwrap();
    assert!(rate(&mut spool, "key").is_some());
}
