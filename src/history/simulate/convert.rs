//! Turns what a log shows into attempts.
//!
//! A log has a line for a message when it has been received, and one for each refusal when
//! it happens; it has none for MAIL, for a recipient that was accepted, or for a login that
//! succeeded. So the steps of a message are put together when its end is known:
//!
//! 1. AUTH, if the message is the first in its session that has a login;
//! 2. MAIL;
//! 3. RCPT for each recipient that was accepted;
//! 4. RCPT for each one that was refused, in the order of the log: a client that is over a
//!    limit was below it before;
//! 5. DATA, or the end without it.
//!
//! Steps 1 to 4 get the time of the first refused recipient, if there is one, and each
//! refused recipient its own. What has not ended [`HELD_SECONDS`] later ends then.

mod session;

use std::collections::{HashSet, VecDeque};
use std::rc::Rc;

use self::session::{Login, Open, Transaction, TransactionEnd, Visit, close, end_all, not_smtp};
use super::attempt::{Attempt, AttemptPart, InLog};
use crate::event::{Event, Origin};
use crate::hash::{FastHash, FastMap};
use crate::logs::failure::Failure;
use crate::logs::item::{
    Item, ItemKind, LoginShown, Refusal, Server, SessionKey, Stage, Text, Undelivered,
};
use crate::rate::Timestamp;

/// So many recipients that were put off are remembered.
const THROTTLED_MAX: usize = 1 << 18;
/// For how long a refused recipient waits for the end of its message: as long as Exim waits
/// for the next command.
const HELD_SECONDS: i64 = 300;
/// A session of which nothing was logged for so long has ended.
const SESSION_SECONDS: i64 = 3600;
/// The same, where sessions are guessed from the client.
const GUESSED_SECONDS: i64 = 300;
/// So often, in seconds of the log, those sessions are ended.
const IDLE_SECONDS: i64 = 300;
/// The most sessions that are remembered, and the most recipients that wait.
const SESSIONS_MAX: usize = 100_000;
const HELD_MAX: usize = 100_000;

/// What the log showed and did not show of the attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unshown {
    /// Events that the log does not assign to a session: those of a client with the same HELO
    /// name and login, at most 5 minutes apart, are taken as one session.
    pub without_session: u64,
    /// Events that it does.
    pub with_session: u64,
    /// Connections that the log shows when they begin.
    pub connections: u64,
    /// Messages whose recipients are not known; each is taken to have one.
    pub without_recipients: u64,
    /// Messages refused after DATA, of which no log shows the recipients; as above.
    pub refused_after_data: u64,
    /// Received messages whose size is not known: they count no bytes.
    pub without_size: u64,
    /// Refused commands of which the log does not show whether the client had logged in, or
    /// which login it used: they count for no login.
    pub without_login: u64,
}

/// Turns the items of a log into attempts, in the order of the log.
#[derive(Debug, Default)]
pub struct Converter {
    sessions: FastMap<SessionBy, Box<Open>>,
    /// Sessions in which something waits, since when, and which wait of all it is.
    waiting: VecDeque<(Timestamp, u64, SessionBy)>,
    waits: u64,
    held: usize,
    numbers: u64,
    /// The second in which idle sessions were ended last.
    ended_idle: i64,
    /// The recipients of messages that their receivers put off: each counts once.
    throttled: HashSet<(Option<Text>, Text), FastHash>,
    unshown: Unshown,
}

/// What tells sessions apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum SessionBy {
    /// The log does.
    Logged(SessionKey),
    /// The client and its HELO name, where the log has no more.
    Guessed(std::net::IpAddr, Option<Text>),
}

impl SessionBy {
    /// Whether the session has ended at `now`, as nothing was logged of it for so long.
    fn is_over(&self, open: &Open, now: Timestamp) -> bool {
        let most = match self {
            Self::Logged(_) => SESSION_SECONDS,
            Self::Guessed(..) => GUESSED_SECONDS,
        };
        now.seconds.saturating_sub(open.latest.seconds) > most
    }
}

impl Converter {
    /// What the log did not show so far.
    #[must_use]
    pub fn unshown(&self) -> Unshown {
        self.unshown
    }

    /// Whether the receiver puts off this recipient of a message for the first time.
    fn is_first(&mut self, message: &Option<Text>, recipient: &Text) -> bool {
        if self.throttled.len() >= THROTTLED_MAX {
            self.throttled.clear();
        }
        self.throttled.insert((message.clone(), recipient.clone()))
    }

    /// Adds an item; `visit` gets the attempts that are complete.
    pub fn add(&mut self, item: Item, visit: &mut Visit<'_>) {
        if let ItemKind::Failed(Undelivered { failure, received, .. }) = item.what {
            let (at, event) = (item.at, Rc::new(item.submitter()));
            let recipient = event.recipient.clone().unwrap_or_default();
            if failure == Failure::Throttled && !self.is_first(&event.message_id, &recipient) {
                return;
            }
            let age = u64::try_from(at.seconds.saturating_sub(received.seconds)).unwrap_or(0);
            let part = AttemptPart::Failed { recipient, failure, age };
            self.numbers += 1;
            let session = self.numbers;
            return visit(&Attempt { at, session, event, part, in_log: InLog::Accepted });
        }
        let Item { at, session, login, server, event, what } = item;
        // Sendmail's programs speak SMTP to the server.
        let is_program = event.client == Origin::Program && server != Server::Sendmail;
        let event = server.decided(event);
        self.end_what_waits(at, visit);
        self.end_idle(at, visit);
        let is_event = !matches!(what, ItemKind::Connect | ItemKind::Close);
        let is_message = matches!(what, ItemKind::Message(_));
        let is_local = is_message && is_program;
        match session {
            _ if is_local || !is_event => {}
            Some(_) => self.unshown.with_session += 1,
            None => self.unshown.without_session += 1,
        }
        let key = match session {
            Some(session) => Some(SessionBy::Logged(session)),
            // Connections do not begin one: their lines have no HELO name.
            None if is_event && !is_program => {
                let client = event.client.address();
                client.map(|client| SessionBy::Guessed(client, event.helo.clone()))
            }
            None => None,
        };
        let Some(key) = key else {
            let mut open = self.open(at);
            open.is_program = is_program;
            self.in_session(&mut open, at, event, login, what, visit);
            if is_event {
                self.close(&mut open, at, visit);
            }
            return;
        };
        let mut open = self.take(&key, at, (&event, login), &what, visit);
        open.is_program = is_program;
        let before = open.held();
        let is_end = matches!(what, ItemKind::Close);
        self.in_session(&mut open, at, event, login, what, visit);
        if is_end {
            end_all(&mut open, visit);
            if login != LoginShown::Nowhere && !matches!(open.login, Login::Yes(_)) {
                // Nobody has logged in.
                open.without_login = 0;
            }
            self.close(&mut open, at, visit);
        }
        let after = open.held();
        self.held = (self.held + after).saturating_sub(before);
        if is_end {
            return;
        }
        if after > 0 && before == 0 {
            self.waits += 1;
            open.wait = self.waits;
            self.waiting.push_back((at, self.waits, key.clone()));
        }
        self.sessions.insert(key, open);
        while self.held > HELD_MAX && self.end_first(visit) {}
    }

    /// The log has ended.
    pub fn finish(&mut self, visit: &mut Visit<'_>) {
        while self.end_first(visit) {}
        let mut open: Vec<Box<Open>> = self.sessions.drain().map(|(_, open)| open).collect();
        open.sort_unstable_by_key(|open| (open.latest, open.number));
        for mut open in open {
            let at = open.latest;
            self.close(&mut open, at, visit);
        }
    }

    /// A session has ended.
    fn close(&mut self, open: &mut Open, at: Timestamp, visit: &mut Visit<'_>) {
        close(open, at, visit);
        self.unshown.without_login += std::mem::take(&mut open.without_login);
    }

    fn open(&mut self, at: Timestamp) -> Box<Open> {
        self.numbers += 1;
        Box::new(Open::new(self.numbers, at))
    }

    /// The session of an item, which may be a new one.
    fn take(
        &mut self,
        key: &SessionBy,
        at: Timestamp,
        (event, shown): (&Event<Text>, LoginShown),
        what: &ItemKind,
        visit: &mut Visit<'_>,
    ) -> Box<Open> {
        if let Some(mut open) = self.sessions.remove(key) {
            let is_guessed = matches!(key, SessionBy::Guessed(..));
            let is_other = open.login.is_not_of(event, shown, what, is_guessed);
            let is_over = is_other || key.is_over(&open, at);
            if !is_over && !matches!(what, ItemKind::Connect) {
                open.latest = open.latest.max(at);
                return open;
            }
            self.held = self.held.saturating_sub(open.held());
            let latest = open.latest;
            self.close(&mut open, latest, visit);
        }
        if self.sessions.len() >= SESSIONS_MAX {
            self.forget_half(visit);
        }
        self.open(at)
    }

    /// Ends the half of the sessions of which nothing was logged for the longest time.
    fn forget_half(&mut self, visit: &mut Visit<'_>) {
        let mut times: Vec<Timestamp> = self.sessions.values().map(|open| open.latest).collect();
        let middle = times.len() / 2;
        let (_, middle, _) = times.select_nth_unstable(middle);
        let middle = *middle;
        self.end_sessions(|_, open| open.latest <= middle, visit);
    }

    /// Ends the sessions of which nothing was logged for so long that they are over.
    fn end_idle(&mut self, now: Timestamp, visit: &mut Visit<'_>) {
        if now.seconds.saturating_sub(self.ended_idle) >= IDLE_SECONDS {
            self.ended_idle = now.seconds;
            self.end_sessions(|key, open| key.is_over(open, now), visit);
        }
    }

    /// Ends the sessions for which `is_over` returns true.
    fn end_sessions(&mut self, is_over: impl Fn(&SessionBy, &Open) -> bool, visit: &mut Visit<'_>) {
        let old = self.sessions.extract_if(|key, open| is_over(key, open));
        let mut old: Vec<Box<Open>> = old.map(|(_, open)| open).collect();
        old.sort_unstable_by_key(|open| (open.latest, open.number));
        for mut open in old {
            self.held = self.held.saturating_sub(open.held());
            let latest = open.latest;
            self.close(&mut open, latest, visit);
        }
    }

    /// Ends the transactions that have waited for too long.
    fn end_what_waits(&mut self, now: Timestamp, visit: &mut Visit<'_>) {
        while let Some((since, ..)) = self.waiting.front()
            && now.seconds.saturating_sub(since.seconds) > HELD_SECONDS
        {
            self.end_first(visit);
        }
    }

    /// Ends the transactions of the session that has waited for the longest time, unless they
    /// have ended and others wait now.
    fn end_first(&mut self, visit: &mut Visit<'_>) -> bool {
        let Some((_, wait, key)) = self.waiting.pop_front() else { return false };
        if let Some(open) = self.sessions.get_mut(&key)
            && open.wait == wait
        {
            self.held = self.held.saturating_sub(open.held());
            end_all(open, visit);
        }
        true
    }

    fn in_session(
        &mut self,
        open: &mut Open,
        at: Timestamp,
        mut event: Event<Text>,
        login: LoginShown,
        what: ItemKind,
        visit: &mut Visit<'_>,
    ) {
        match what {
            ItemKind::Connect => {
                self.unshown.connections += 1;
                open.is_smtp = true;
                open.visit(at, &event, AttemptPart::Connect, InLog::Accepted, visit);
            }
            ItemKind::Failed(_) => {}
            ItemKind::Close => end_all(open, visit),
            ItemKind::FailedLogin(login) => {
                open.not_yet(visit);
                let in_log = if login.temporary { InLog::Deferred } else { InLog::Rejected };
                open.visit(at, &event, AttemptPart::Auth, in_log, visit);
            }
            ItemKind::Incomplete { recipients } => {
                open.is_smtp = true;
                let auth = event.auth.take();
                if auth.is_some() {
                    open.logged_in(auth, visit);
                }
                let has_client = event.client.address().is_some();
                let mut transaction = open.begun(at, event, visit);
                transaction.accepted = recipients;
                if open.login == Login::Unknown && has_client {
                    open.ended.push(transaction);
                } else {
                    open.end(transaction, at, TransactionEnd::Incomplete, visit);
                }
            }
            ItemKind::Message(message) => {
                self.unshown.without_recipients += u64::from(!message.recipients_known);
                self.unshown.without_size += u64::from(message.size.is_none());
                if open.is_program && !open.is_smtp {
                    return not_smtp(open, at, event, message, visit);
                }
                open.logged_in(event.auth.take(), visit);
                let id = event.message_id.take();
                let mut transaction = open.begun(at, event, visit);
                transaction.accepted = message.recipients;
                let is_accepted = |one: &(Timestamp, Text, InLog)| one.2 == InLog::Accepted;
                let is_unknown = !message.recipients_known && transaction.accepted.is_empty();
                if is_unknown && !transaction.refused.iter().any(is_accepted) {
                    transaction.accepted.push(Text::default());
                }
                let end = TransactionEnd::Data { size: message.size, id, in_log: InLog::Accepted };
                open.end(transaction, at, end, visit);
            }
            ItemKind::Refusal(refusal) => {
                let in_log = in_log(&refusal);
                self.refusal(open, at, (event, login), refusal.stage, in_log, visit);
            }
            // For the client it was accepted.
            ItemKind::Discarded(one) => {
                self.refusal(open, at, (event, login), one.stage, InLog::Accepted, visit);
            }
        }
    }

    fn refusal(
        &mut self,
        open: &mut Open,
        at: Timestamp,
        (mut event, login): (Event<Text>, LoginShown),
        stage: Stage,
        in_log: InLog,
        visit: &mut Visit<'_>,
    ) {
        let (auth, recipient) = (event.auth.take(), event.recipient.take());
        event.message_id = None;
        if open.is_program && stage == Stage::Data && !open.is_smtp {
            self.unshown.refused_after_data += 1;
            let part = AttemptPart::NotSmtp { recipients: vec![Text::default()], size: None };
            open.visit(at, &event, part, in_log, visit);
            open.said = event;
            return;
        }
        open.is_smtp = true;
        let is_of_message = matches!(stage, Stage::Rcpt | Stage::Data);
        let is_hidden = login != LoginShown::InLine && auth.is_none();
        if is_of_message && !is_hidden {
            open.logged_in(auth, visit);
        }
        match stage {
            Stage::Connect | Stage::Helo => {
                end_all(open, visit);
                if stage == Stage::Connect {
                    open.visit(at, &event, AttemptPart::Connect, in_log, visit);
                }
            }
            Stage::Auth => {
                open.not_yet(visit);
                open.visit(at, &event, AttemptPart::Auth, in_log, visit);
            }
            Stage::Mail => {
                end_all(open, visit);
                let transaction = Transaction { at, said: event, ..Transaction::default() };
                open.end(transaction, at, TransactionEnd::Mail { in_log }, visit);
            }
            Stage::Rcpt => {
                let mut transaction = open.begun(at, event, visit);
                transaction.without_login += u64::from(is_hidden);
                transaction.refused.push((at, recipient.unwrap_or_default(), in_log));
                open.transaction = Some(transaction);
            }
            Stage::Data => {
                self.unshown.refused_after_data += 1;
                let mut transaction = open.begun(at, event, visit);
                transaction.without_login += u64::from(is_hidden);
                transaction.accepted = vec![recipient.unwrap_or_default()];
                open.end(
                    transaction,
                    at,
                    TransactionEnd::Data { size: None, id: None, in_log },
                    visit,
                );
            }
            Stage::Other => end_all(open, visit),
        }
    }
}

fn in_log(refusal: &Refusal) -> InLog {
    match refusal {
        Refusal { limited: true, .. } => InLog::Limited,
        Refusal { temporary: true, .. } => InLog::Deferred,
        _ => InLog::Rejected,
    }
}

#[cfg(test)]
mod tests;
