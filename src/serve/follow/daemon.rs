//! Start, reload and stop of the follower.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use super::reader::Reader;
use super::shared::Shared;
use crate::serve::config;
use crate::serve::log::{Level, Log};
use crate::serve::notify::Manager;
use crate::serve::rates::{Purpose, may_use};
use crate::serve::supervise::{Unit, is_in_use, read_again, start, work_until_stopped};

/// Follows the mail log with the configuration at `path` until a signal stops it.
///
/// # Errors
/// Why it cannot start, in words.
pub fn run_follow(path: &Path) -> Result<(), String> {
    let log = Rc::new(Log::stderr());
    let config = config::read_follow(path)?.logged(path, &log)?;
    may_use(&config.spool, Purpose::Change, "exirate-follow")?;
    let started = start()?;
    let shared = Arc::new(Shared::default());
    let reader = Reader::open(config.clone(), Arc::clone(&shared))?;
    let mut daemon =
        FollowDaemon { path: path.to_owned(), shared: Arc::clone(&shared), log: Rc::clone(&log) };
    let (reading, manager) = (Arc::clone(&shared), Manager::from_environment());
    let work = move || follow(config, reader, &reading);
    work_until_stopped(started, &mut daemon, &manager, &log, work, || shared.stop())
}

/// Reads until it is to stop, each time by the newest configuration.
fn follow(mut config: config::Follow, mut reader: Reader, shared: &Arc<Shared>) {
    loop {
        reader.run();
        if shared.stops() {
            return;
        }
        let new = shared.take_new().unwrap_or_else(|| config.clone());
        reader = match Reader::open(new.clone(), Arc::clone(shared)) {
            Ok(reader) => {
                config = new;
                reader
            }
            Err(why) => {
                let text = format_args!("{why}; the previous configuration stays in use");
                Log::stderr().write(Level::Error, text);
                match Reader::open(config.clone(), Arc::clone(shared)) {
                    Ok(reader) => reader,
                    Err(why) => return Log::stderr().write(Level::Error, why),
                }
            }
        };
    }
}

/// The running follower.
struct FollowDaemon {
    path: PathBuf,
    shared: Arc<Shared>,
    log: Rc<Log>,
}

impl Unit for FollowDaemon {
    fn status(&self) -> String {
        self.shared.status()
    }

    fn state(&self) -> String {
        self.status()
    }

    fn reload(&mut self) {
        let read = config::read_follow(&self.path);
        let Some(new) = read_again(read, &self.path, &self.log) else { return };
        self.shared.set(new);
        is_in_use(&self.path, &self.log);
    }
}
