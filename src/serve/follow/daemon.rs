//! Start, reload and stop of the follower.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use tokio::runtime::Builder;
use tokio::task::spawn_blocking;

use super::reader::{Reader, Shared};
use crate::serve::config;
use crate::serve::log::{Level, Log};
use crate::serve::notify::Manager;
use crate::serve::supervise::{Signals, Unit, until_stopped};

/// Follows the mail log with the configuration at `path` until a signal stops it.
///
/// # Errors
/// Why it cannot start, in words.
pub fn run_follow(path: &Path) -> Result<(), String> {
    let log = Log::stderr();
    let config = config::read_follow(path)?.logged(path, &log)?;
    let cannot = |error: io::Error| format!("cannot start: {error}");
    let runtime = Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    let mut signals = Signals::within(&runtime).map_err(cannot)?;
    let shared = Arc::new(Shared::default());
    // What it cannot use is an error of the start.
    drop(Reader::open(config.clone(), &shared)?);
    let mut daemon = Daemon { path: path.to_owned(), shared: Arc::clone(&shared), log };
    runtime.block_on(async {
        let reading = Arc::clone(&shared);
        let mut serving = spawn_blocking(move || follow(config, &reading));
        let (log, manager) = (Log::stderr(), Manager::from_environment());
        until_stopped(&mut daemon, &mut signals, &manager, &log, &[], &mut serving).await?;
        shared.stop.store(true, Ordering::Relaxed);
        serving.await.map_err(|error| format!("the follower has failed: {error}"))?;
        log.write(Level::Notice, "stopped");
        Ok(())
    })
}

/// Reads until it is to stop, each time by the newest configuration.
fn follow(mut config: config::Follow, shared: &Shared) {
    while !shared.stop.load(Ordering::Relaxed) {
        match Reader::open(config.clone(), shared) {
            Ok(reader) => reader.run(),
            Err(why) => {
                Log::stderr().write(Level::Error, why);
                return;
            }
        }
        let new = shared.new.lock().unwrap_or_else(PoisonError::into_inner).take();
        config = new.unwrap_or(config);
    }
}

/// The running follower.
struct Daemon {
    path: PathBuf,
    shared: Arc<Shared>,
    log: Log,
}

impl Unit for Daemon {
    fn status(&self) -> String {
        self.shared.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn state(&self) -> String {
        self.status()
    }

    fn reload(&mut self) {
        let read = config::read_follow(&self.path);
        match read.and_then(|checked| checked.logged(&self.path, &self.log)) {
            Ok(new) => {
                *self.shared.new.lock().unwrap_or_else(PoisonError::into_inner) = Some(new);
                let path = self.path.display();
                let text = format_args!("{path} was read again, and is in use");
                self.log.write(Level::Notice, text);
            }
            Err(why) => {
                let text = format_args!("{why}; the configuration of before stays in use");
                self.log.write(Level::Error, text);
            }
        }
    }
}
