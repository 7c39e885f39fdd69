//! Publishes the state of this server in the store, for the tools of all servers, and shows
//! that of all of them in a file for the tools of this one.

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;

use super::link::{Backend, Link};
use crate::redis::{ANNOUNCED_EVERY, Announcement, KnownServers, write_servers};
use crate::serve::log::{Level, Log};
use crate::sys::clock;

/// How long the store may take. Decisions do not wait for it.
const ANNOUNCE_MAX: Duration = Duration::from_secs(3);

/// With many servers, each reads all of them less often: by so much for each.
const READ_LESS_OFTEN: Duration = Duration::from_millis(100);

/// What is known from one time to the next.
#[derive(Debug)]
pub(super) struct Announcer {
    id: u64,
    started: u64,
    /// The name under which the state was published last.
    name: RefCell<Option<String>>,
    /// Why it was not published the last time: the log has each reason once.
    failed: RefCell<Option<String>>,
    /// Whether the log says that another server has the same name.
    conflict: Cell<bool>,
    pub(super) every: Cell<Duration>,
    /// Where the state of all servers is shown.
    file: RefCell<Option<PathBuf>>,
    /// When it is read next; `None`: the next time.
    read_at: Cell<Option<Instant>>,
}

impl Default for Announcer {
    fn default() -> Self {
        Self {
            id: RandomState::new().hash_one(0),
            started: clock::now().0.try_into().unwrap_or(0),
            name: RefCell::default(),
            failed: RefCell::default(),
            conflict: Cell::default(),
            every: Cell::new(Duration::from_secs(ANNOUNCED_EVERY)),
            file: RefCell::default(),
            read_at: Cell::default(),
        }
    }
}

/// What changes from one time to the next.
pub(super) struct Now {
    /// The name of this server.
    pub(super) name: String,
    /// How many servers share the limits.
    pub(super) servers: u32,
    /// How many requests were decided.
    pub(super) decisions: u64,
    /// Tells apart configurations.
    pub(super) config: u32,
}

impl Announcer {
    /// Shows the state of all servers in this file from now on.
    pub(super) fn show_in(&self, file: PathBuf) {
        self.file.replace(Some(file));
    }

    /// The servers are read the next time, however many there are.
    pub(super) fn read_soon(&self) {
        self.read_at.set(None);
    }

    /// Publishes the state whenever the store is connected to, and from time to time; never
    /// ends.
    pub(super) async fn keep<B: Backend>(&self, link: &Link<B>, log: &Log, now: impl Fn() -> Now) {
        loop {
            link.connected_or_after(self.every.get()).await;
            self.announce(link, log, now()).await;
        }
    }

    async fn announce<B: Backend>(&self, link: &Link<B>, log: &Log, now: Now) {
        let Now { name, servers, decisions, config } = now;
        let again = self.name.borrow().as_ref() == Some(&name);
        let (id, started) = (self.id, self.started);
        let announcement =
            Announcement { name: &name, id, started, decisions, servers, again, config };
        let due = self.read_at.get().is_none_or(|time| time <= Instant::now());
        let read = due && self.file.borrow().is_some();
        let Some(done) = link.announce(&announcement, read, ANNOUNCE_MAX).await else { return };
        let why = match done {
            Ok((is_conflict, servers)) => {
                self.published(log, &name, is_conflict);
                match servers {
                    Some(servers) => self.show(servers, name).await.err(),
                    None => None,
                }
            }
            Err(why) => Some(why),
        };
        if let Some(why) = why.as_ref().filter(|why| self.failed.borrow().as_ref() != Some(*why)) {
            let text = format_args!("`exirate cluster status` does not show all servers: {why}");
            log.write(Level::Warning, text);
        }
        self.failed.replace(why);
    }

    /// The state was published under this name, which another server may have as well.
    fn published(&self, log: &Log, name: &str, is_conflict: bool) {
        if is_conflict && !self.conflict.get() {
            let text = format_args!(
                "another server has the name {name} as well: set another server_name in [agent]"
            );
            log.write(Level::Warning, text);
        }
        self.conflict.set(is_conflict);
        self.name.replace(Some(name.to_owned()));
    }

    /// Writes the file. That may wait for a disk, and so is done by another thread.
    async fn show(&self, servers: KnownServers, own: String) -> Result<(), String> {
        let Some(file) = self.file.borrow().clone() else { return Ok(()) };
        let count = u32::try_from(servers.servers.len()).unwrap_or(u32::MAX);
        self.read_at.set(Instant::now().checked_add(READ_LESS_OFTEN * count));
        let written = spawn_blocking(move || {
            let local = clock::now().0.unsigned_abs();
            write_servers(&file, &servers, &own, local)
                .map_err(|error| format!("cannot write {}: {error}", file.display()))
        });
        written.await.unwrap_or_else(|error| Err(error.to_string()))
    }
}
