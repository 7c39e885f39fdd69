//! The connection to the store: made, lost and made again.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::engine::{Check, Decision};
use crate::redis::{Announcement, KnownServers};
use crate::serve::log::{Level, Log};

/// The first pause between two attempts to connect.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(800);
/// How long an attempt may take.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// For so long requests may stay without a reply in time until the store is away.
const SILENCE_MAX: Duration = Duration::from_millis(300);

/// A store that decides for several servers.
pub trait Backend: Sized + 'static {
    /// What it needs to connect.
    type Settings: fmt::Display + PartialEq + 'static;

    /// Connects, and makes sure that the store replies.
    fn connect(settings: &Self::Settings) -> impl Future<Output = Result<Self, String>>;

    /// Decides the checks of the event with this number; an event that was counted lately is
    /// not counted again. `decisions` is empty at first.
    fn decide(
        &self,
        event: u128,
        checks: &[Check<'_>],
        decisions: &mut Vec<Decision>,
    ) -> impl Future<Output = Result<(), Failed>>;

    /// Publishes the state of this server, for the tools of all servers. Whether another
    /// server publishes under the same name.
    fn announce(
        &self,
        announcement: &Announcement<'_>,
    ) -> impl Future<Output = Result<bool, String>>;

    /// The servers that have published their state.
    fn servers(&self) -> impl Future<Output = Result<KnownServers, String>>;
}

/// Why a store has not decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// It cannot be used: a new connection is needed.
    Lost(String),
    /// It cannot decide this request; others are not affected.
    Request(String),
}

/// Whether the store can be used.
enum State<B> {
    Connected(Rc<B>),
    Away {
        why: Rc<str>,
        since: Instant,
        /// How many requests were not decided since then.
        missed: u64,
    },
}

/// The connection.
pub(super) struct Link<B: Backend> {
    state: RefCell<State<B>>,
    settings: RefCell<Rc<B::Settings>>,
    /// Since when no request has had a reply in time.
    silent: Cell<Option<Instant>>,
    /// The state or the settings have changed: [`Link::keep`] looks at them.
    changed: Notify,
    /// There is a new connection: the state of this server is published at once.
    connected: Notify,
    log: Rc<Log>,
}

impl<B: Backend> Link<B> {
    /// Not yet connected.
    pub(super) fn new(settings: B::Settings, log: Rc<Log>) -> Self {
        let why = Rc::from("not yet connected");
        Self {
            state: RefCell::new(State::Away { why, since: Instant::now(), missed: 0 }),
            settings: RefCell::new(Rc::new(settings)),
            silent: Cell::new(None),
            changed: Notify::new(),
            connected: Notify::new(),
            log,
        }
    }

    /// Connects with these settings, if they are others.
    pub(super) fn set(&self, settings: B::Settings) {
        if **self.settings.borrow() != settings {
            *self.settings.borrow_mut() = Rc::new(settings);
            self.changed.notify_one();
        }
    }

    /// What is known of the store, in words.
    pub(super) fn status(&self) -> String {
        let settings = self.settings.borrow();
        match &*self.state.borrow() {
            State::Connected(_) => format!("connected to {settings}"),
            State::Away { why, .. } => format!("{settings} is away: {why}"),
        }
    }

    /// Decides the checks of an event within `limit`.
    ///
    /// # Errors
    /// Why they are not decided, in words.
    pub(super) async fn decide(
        &self,
        event: u128,
        checks: &[Check<'_>],
        decisions: &mut Vec<Decision>,
        limit: Duration,
    ) -> Result<(), Rc<str>> {
        let store = match &mut *self.state.borrow_mut() {
            State::Connected(store) => Rc::clone(store),
            State::Away { why, missed, .. } => {
                *missed += 1;
                return Err(Rc::clone(why));
            }
        };
        match timeout(limit, store.decide(event, checks, decisions)).await {
            Ok(Ok(())) => {
                self.silent.set(None);
                Ok(())
            }
            Ok(Err(Failed::Request(why))) => {
                self.silent.set(None);
                self.log.write_seldom("requests that failed", Level::Warning, &why);
                Err(why.into())
            }
            Ok(Err(Failed::Lost(why))) => {
                let why = Rc::from(why);
                self.lost(&store, &why);
                Err(why)
            }
            Err(_) => {
                let why: Rc<str> = format!("no reply within {} ms", limit.as_millis()).into();
                match self.silent.get() {
                    Some(since) if since.elapsed() >= SILENCE_MAX => self.lost(&store, &why),
                    Some(_) => {}
                    None => self.silent.set(Some(Instant::now())),
                }
                Err(why)
            }
        }
    }

    /// Publishes the state of this server, and reads that of all servers if `read` says so:
    /// within `limit`. `None` while the store is away.
    ///
    /// # Errors
    /// Why that is not done, in words. The store is used nevertheless.
    pub(super) async fn announce(
        &self,
        announcement: &Announcement<'_>,
        read: bool,
        limit: Duration,
    ) -> Option<Result<(bool, Option<KnownServers>), String>> {
        let store = match &*self.state.borrow() {
            State::Connected(store) => Rc::clone(store),
            State::Away { .. } => return None,
        };
        let both = async {
            let conflict = store.announce(announcement).await?;
            let servers = if read { Some(store.servers().await?) } else { None };
            Ok((conflict, servers))
        };
        let done = timeout(limit, both).await;
        Some(done.unwrap_or_else(|_| Err(format!("no reply within {}s", limit.as_secs()))))
    }

    /// Waits for a new connection, or until `time` has passed.
    pub(super) async fn connected_or_after(&self, time: Duration) {
        let _ = timeout(time, self.connected.notified()).await;
    }

    /// `store` cannot be used any more.
    fn lost(&self, store: &Rc<B>, why: &Rc<str>) {
        let mut state = self.state.borrow_mut();
        match &mut *state {
            State::Connected(current) if Rc::ptr_eq(current, store) => {
                let settings = self.settings.borrow();
                self.log.write(Level::Error, format_args!("{settings} is away: {why}"));
                *state = State::Away { why: Rc::clone(why), since: Instant::now(), missed: 1 };
                self.changed.notify_one();
            }
            // A later request has found that before, or there is a new connection.
            State::Connected(_) => {}
            State::Away { missed, .. } => *missed += 1,
        }
    }

    /// Connects whenever that is needed; never ends.
    pub(super) async fn keep(&self) {
        let mut pause = PAUSE_MIN;
        let mut first = true;
        loop {
            let settings = Rc::clone(&self.settings.borrow());
            let attempt = timeout(CONNECT_MAX, B::connect(&settings)).await;
            let attempt = attempt
                .unwrap_or_else(|_| Err(format!("no reply within {}s", CONNECT_MAX.as_secs())));
            match attempt {
                Ok(store) => {
                    self.connected(store, &settings);
                    pause = PAUSE_MIN;
                    self.changed.notified().await;
                }
                Err(why) => {
                    self.not_connected(&settings, why, first);
                    // New settings are tried at once.
                    let _ = timeout(pause, self.changed.notified()).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
            first = false;
        }
    }

    fn connected(&self, store: B, settings: &B::Settings) {
        self.silent.set(None);
        let old = self.state.replace(State::Connected(Rc::new(store)));
        self.connected.notify_one();
        match old {
            State::Away { since, missed, .. } if missed > 0 => {
                let seconds = since.elapsed().as_secs_f64();
                let line = format!(
                    "connected to {settings} after {seconds:.1}s; requests not decided \
                     meanwhile: {missed}"
                );
                self.log.write(Level::Notice, line);
            }
            _ => self.log.write(Level::Notice, format_args!("connected to {settings}")),
        }
    }

    /// An attempt has failed: the log has the reason where it is another one than before.
    fn not_connected(&self, settings: &B::Settings, why: String, first: bool) {
        let mut state = self.state.borrow_mut();
        match &mut *state {
            State::Away { why: known, .. } => {
                if first || **known != *why {
                    self.log.write(Level::Error, format_args!("{settings} is away: {why}"));
                }
                *known = why.into();
            }
            // Only the settings have changed.
            State::Connected(_) => {
                self.log.write(Level::Error, format_args!("{settings} is away: {why}"));
                let since = Instant::now();
                *state = State::Away { why: why.into(), since, missed: 0 };
            }
        }
    }
}
