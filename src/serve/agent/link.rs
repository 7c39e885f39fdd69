//! The connection to the store: made, lost and made again.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::cluster::wire::ReplyStatus;
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
/// How often what the log has of the store is looked at.
const WATCHED_EVERY: Duration = Duration::from_secs(1);
/// What the log calls changes of which there are too many.
const CHANGES: &str = "changes of the shared store";

/// As [`CHANGES`], for a part: one that flaps hides no change of another.
fn changes_of(part: &str) -> String {
    format!("{CHANGES} at {part}")
}

/// A store that decides for several servers.
pub trait Backend: Sized + 'static {
    /// What it needs to connect.
    type Settings: fmt::Display + PartialEq + 'static;

    /// Connects, and makes sure that the store replies; `old` is the connection of before.
    fn connect(
        settings: &Self::Settings,
        old: Option<&Self>,
    ) -> impl Future<Output = Result<Self, String>>;

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
    ) -> impl Future<Output = Result<bool, Failed>>;

    /// Looks at what changes without a request, until the store has to be connected to again: why.
    fn watch(&self) -> impl Future<Output = String>;

    /// Whether it has parts that fail one by one, each with keys of its own.
    fn has_parts(&self) -> bool;

    /// Whether all of its parts fail.
    fn is_away(&self) -> bool;

    /// The parts that have failed several times in a row, and why.
    fn parts_away(&self) -> Vec<(String, String)>;

    /// Returns, once, what the administrator should know, in one sentence each.
    fn take_incidents(&self) -> Vec<String>;

    /// The servers that have published their state.
    fn servers(&self) -> impl Future<Output = Result<KnownServers, String>>;
}

/// Why a store has not decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// It cannot be used: a new connection is needed.
    Lost(String),
    /// The part that has these keys cannot be used; other parts can.
    Part(String),
    /// It has records of these keys that this agent does not know; others are not affected.
    Keys(String),
    /// It cannot decide this request; others are not affected.
    Request(String),
}

/// Whether the store can be used.
enum LinkState<B> {
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
    state: RefCell<LinkState<B>>,
    settings: RefCell<Rc<B::Settings>>,
    /// The parts that are away: since when, and how many requests were not decided before.
    parts: RefCell<BTreeMap<String, (Instant, u64)>>,
    /// How many requests were not decided for a part that is away.
    missed_by_parts: Cell<u64>,
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
            state: RefCell::new(LinkState::Away { why, since: Instant::now(), missed: 0 }),
            settings: RefCell::new(Rc::new(settings)),
            parts: RefCell::default(),
            missed_by_parts: Cell::new(0),
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

    /// The state of this server is published at once.
    pub(super) fn announce_soon(&self) {
        self.connected.notify_one();
    }

    /// What is known of the store, in words.
    pub(super) fn status(&self) -> String {
        let settings = self.settings.borrow();
        match &*self.state.borrow() {
            LinkState::Connected(store) => {
                let away =
                    store.parts_away().into_iter().map(|(part, why)| format!("{part}: {why}"));
                let away: Vec<String> = away.collect();
                match &*away {
                    [] => format!("connected to {settings}"),
                    some => format!("connected to {settings}, parts away: {}", some.join(", ")),
                }
            }
            LinkState::Away { why, .. } => format!("{settings} is away: {why}"),
        }
    }

    /// Decides the checks of an event; the reply is needed within `limit`. That there is none in time
    /// says something about the store only if it `is_usual`: a process that was stopped, or is slow,
    /// leaves hardly any time.
    ///
    /// # Errors
    /// Why they are not decided: the status, and in words.
    pub(super) async fn decide(
        &self,
        event: u128,
        checks: &[Check<'_>],
        decisions: &mut Vec<Decision>,
        limit: Duration,
        is_usual: bool,
    ) -> Result<(), (ReplyStatus, Rc<str>)> {
        let away = |why| Err((ReplyStatus::Unavailable, why));
        let store = match &mut *self.state.borrow_mut() {
            LinkState::Connected(store) => Rc::clone(store),
            LinkState::Away { why, missed, .. } => {
                *missed += 1;
                return away(Rc::clone(why));
            }
        };
        // The process that asks must not give up before, as it would take all for lost.
        match timeout(limit * 9 / 10, store.decide(event, checks, decisions)).await {
            Ok(Ok(())) => {
                self.silent.set(None);
                Ok(())
            }
            Ok(Err(Failed::Request(why))) => {
                self.silent.set(None);
                self.log.write_seldom("requests that failed", Level::Warning, &why);
                away(why.into())
            }
            Ok(Err(Failed::Keys(why))) => {
                self.silent.set(None);
                self.log.write_seldom("records of a later version", Level::Warning, &why);
                Err((ReplyStatus::KeysAway, why.into()))
            }
            Ok(Err(Failed::Part(why))) => Err(self.without_part(why.into())),
            Ok(Err(Failed::Lost(why))) => {
                let why = Rc::from(why);
                self.lost(&store, &why);
                away(why)
            }
            Err(_) => {
                let why: Rc<str> = format!("no reply within {} ms", limit.as_millis()).into();
                if !is_usual {
                    return away(why);
                }
                if store.has_parts() {
                    if !store.is_away() {
                        return Err(self.without_part(why));
                    }
                    self.lost(&store, &why);
                    return away(why);
                }
                match self.silent.get() {
                    Some(since) if since.elapsed() >= SILENCE_MAX => self.lost(&store, &why),
                    Some(_) => {}
                    None => self.silent.set(Some(Instant::now())),
                }
                away(why)
            }
        }
    }

    fn without_part(&self, why: Rc<str>) -> (ReplyStatus, Rc<str>) {
        self.missed_by_parts.set(self.missed_by_parts.get() + 1);
        (ReplyStatus::KeysAway, why)
    }

    /// Logs what becomes of the parts of the store, and what else the administrator should
    /// know; never ends.
    pub(super) async fn watch(&self) {
        loop {
            sleep(WATCHED_EVERY).await;
            let store = match &*self.state.borrow() {
                LinkState::Connected(store) => Rc::clone(store),
                LinkState::Away { .. } => continue,
            };
            for incident in store.take_incidents() {
                self.log.write(Level::Warning, incident);
                // The servers show which secret they use.
                self.connected.notify_one();
            }
            self.look_at_parts(store.parts_away());
        }
    }

    /// Logs which parts of the store are away, and which are back.
    fn look_at_parts(&self, away: Vec<(String, String)>) {
        let (mut parts, settings) = (self.parts.borrow_mut(), self.settings.borrow());
        let missed = self.missed_by_parts.get();
        parts.retain(|part, (since, before)| {
            let stays = away.iter().any(|(one, _)| one == part);
            if !stays {
                let (seconds, missed) = (since.elapsed().as_secs_f64(), missed - *before);
                let text = format!(
                    "{part} of {settings} replies again after {seconds:.1}s; requests not decided \
                     meanwhile: {missed}"
                );
                self.log.write_change(changes_of(part), Level::Notice, text);
            }
            stays
        });
        for (part, why) in away {
            parts.entry(part).or_insert_with_key(|part| {
                let text = format!(
                    "{part} of {settings} is away: {why}; this server decides alone for its keys"
                );
                self.log.write_change(changes_of(part), Level::Error, text);
                (Instant::now(), missed)
            });
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
            LinkState::Connected(store) => Rc::clone(store),
            LinkState::Away { .. } => return None,
        };
        let both = async {
            let conflict = match store.announce(announcement).await {
                Ok(conflict) => conflict,
                Err(Failed::Lost(why)) => {
                    if self.leave(&store, &Rc::from(&*why)) {
                        self.changed.notify_one();
                    }
                    return Err(why);
                }
                Err(Failed::Part(why) | Failed::Keys(why) | Failed::Request(why)) => {
                    return Err(why);
                }
            };
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

    /// A request has found that `store` cannot be used any more.
    fn lost(&self, store: &Rc<B>, why: &Rc<str>) {
        if self.leave(store, why) {
            self.changed.notify_one();
        }
        if let LinkState::Away { missed, .. } = &mut *self.state.borrow_mut() {
            *missed += 1;
        }
    }

    /// `store` is not used any more; whether it was. A later request may have found that before, or
    /// there is a new connection.
    fn leave(&self, store: &Rc<B>, why: &Rc<str>) -> bool {
        let mut state = self.state.borrow_mut();
        match &*state {
            LinkState::Connected(current) if Rc::ptr_eq(current, store) => {
                let settings = self.settings.borrow();
                let text = format_args!("{settings} is away: {why}");
                self.log.write_change(CHANGES, Level::Error, text);
                *state = LinkState::Away { why: Rc::clone(why), since: Instant::now(), missed: 0 };
                true
            }
            _ => false,
        }
    }

    /// Connects whenever that is needed; never ends.
    pub(super) async fn keep(&self) {
        let mut pause = PAUSE_MIN;
        let mut first = true;
        // The latest store that was connected to.
        let mut latest: Option<Rc<B>> = None;
        loop {
            let settings = Rc::clone(&self.settings.borrow());
            let attempt = timeout(CONNECT_MAX, B::connect(&settings, latest.as_deref())).await;
            let attempt = attempt
                .unwrap_or_else(|_| Err(format!("no reply within {}s", CONNECT_MAX.as_secs())));
            match attempt {
                Ok(store) => {
                    let store = Rc::new(store);
                    latest = Some(Rc::clone(&store));
                    self.connected(Rc::clone(&store), &settings);
                    pause = PAUSE_MIN;
                    tokio::select! {
                        () = self.changed.notified() => {}
                        why = store.watch() => {
                            self.leave(&store, &why.into());
                        }
                    }
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

    fn connected(&self, store: Rc<B>, settings: &B::Settings) {
        self.silent.set(None);
        let old = self.state.replace(LinkState::Connected(store));
        self.connected.notify_one();
        match old {
            LinkState::Away { since, missed, .. } if missed > 0 => {
                let seconds = since.elapsed().as_secs_f64();
                let line = format!(
                    "connected to {settings} after {seconds:.1}s; requests not decided \
                     meanwhile: {missed}"
                );
                self.log.write_change(CHANGES, Level::Notice, line);
            }
            _ => {
                let text = format_args!("connected to {settings}");
                self.log.write_change(CHANGES, Level::Notice, text);
            }
        }
    }

    /// An attempt has failed: the log has the reason where it is another one than before.
    fn not_connected(&self, settings: &B::Settings, why: String, first: bool) {
        let mut state = self.state.borrow_mut();
        match &mut *state {
            LinkState::Away { why: known, .. } => {
                if first || **known != *why {
                    let text = format_args!("{settings} is away: {why}");
                    self.log.write_change(CHANGES, Level::Error, text);
                }
                *known = why.into();
            }
            // Only the settings have changed.
            LinkState::Connected(_) => {
                let text = format_args!("{settings} is away: {why}");
                self.log.write_change(CHANGES, Level::Error, text);
                let since = Instant::now();
                *state = LinkState::Away { why: why.into(), since, missed: 0 };
            }
        }
    }
}
