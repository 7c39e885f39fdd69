//! A session of which a log shows what came of it: who it is of, its transactions, and the
//! attempts that these are.

use std::rc::Rc;

use super::super::attempt::{Attempt, AttemptPart, InLog};
use crate::event::{Circumstances, Event, HandedOver, Origin};
use crate::logs::item::{ItemKind, LoginShown, Message, Stage, Text};
use crate::rate::Timestamp;

/// A session that is open.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) number: u64,
    pub(super) latest: Timestamp,
    /// What is known of the client, as its latest line has it.
    pub(super) said: Event<Text>,
    pub(super) login: Login,
    /// Which wait of all is the latest one of this session.
    pub(super) wait: u64,
    /// Whether it is known to be SMTP.
    pub(super) is_smtp: bool,
    /// Whether its latest line is of what a program hands over.
    pub(super) is_program: bool,
    /// Refused commands of which no line had shown who had logged in when they were complete.
    pub(super) without_login: u64,
    /// Whether AUTH is among the attempts.
    has_auth: bool,
    /// Transactions that have ended without DATA, of which it is not known who sent them.
    pub(super) ended: Vec<Transaction>,
    /// The one that has not ended.
    pub(super) transaction: Option<Transaction>,
}

/// Whether the client of a session has authenticated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Login {
    #[default]
    Unknown,
    No,
    Yes(Text),
}

impl Login {
    /// Whether an event shows that it is of another session than the one with this login.
    pub(super) fn is_not_of(
        &self,
        event: &Event<Text>,
        shown: LoginShown,
        what: &ItemKind,
        is_guessed: bool,
    ) -> bool {
        let has_login = match what {
            ItemKind::Message(_) => true,
            ItemKind::Refusal(one) | ItemKind::Discarded(one) => {
                matches!(one.stage, Stage::Rcpt | Stage::Data)
            }
            _ => false,
        };
        match (self, shown) {
            (Self::Unknown, _) | (_, LoginShown::InSession) => false,
            // Nobody has logged in before, and may do so now.
            (Self::No, LoginShown::InLine) => has_login && is_guessed && event.auth.is_some(),
            (Self::No, LoginShown::Nowhere) => false,
            // Nobody logs out.
            (Self::Yes(auth), LoginShown::InLine) => has_login && event.auth.as_ref() != Some(auth),
            (Self::Yes(_), LoginShown::Nowhere) => has_login,
        }
    }
}

/// A message between MAIL and its end.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    pub(super) at: Timestamp,
    /// What is known of it, but its recipients.
    pub(super) said: Event<Text>,
    pub(super) accepted: Vec<Text>,
    pub(super) refused: Vec<(Timestamp, Text, InLog)>,
    /// Refused commands whose lines do not show who has logged in.
    pub(super) without_login: u64,
}

/// How a transaction ends.
pub(super) enum TransactionEnd {
    Data { size: Option<u64>, id: Option<Text>, in_log: InLog },
    Mail { in_log: InLog },
    Incomplete,
}

pub(super) type Visit<'v> = dyn FnMut(&Attempt) + 'v;

impl Open {
    /// The session with this number, of which something is logged at `at` first.
    pub(super) fn new(number: u64, at: Timestamp) -> Self {
        Self {
            number,
            latest: at,
            said: Event::default(),
            login: Login::Unknown,
            wait: 0,
            is_smtp: false,
            is_program: false,
            without_login: 0,
            has_auth: false,
            ended: Vec::new(),
            transaction: None,
        }
    }

    /// How many recipients and transactions wait for their end.
    pub(super) fn held(&self) -> usize {
        let of = |one: &Transaction| 1 + one.accepted.len() + one.refused.len();
        self.ended.iter().chain(&self.transaction).map(of).sum()
    }

    /// It is known now who the client is.
    pub(super) fn logged_in(&mut self, auth: Option<Text>, visit: &mut Visit<'_>) {
        let login = match (auth, &self.login) {
            (Some(auth), _) => Login::Yes(auth),
            // Nobody logs out.
            (None, Login::Yes(_)) => return,
            (None, _) => Login::No,
        };
        if self.login == Login::No && login != Login::No {
            // Nobody logs in between MAIL and DATA.
            end_all(self, visit);
        }
        let before = std::mem::replace(&mut self.login, login);
        if before == Login::Unknown || before == self.login {
            self.end_ended(visit);
        }
    }

    /// The client has not authenticated until now, but may do so later.
    pub(super) fn not_yet(&mut self, visit: &mut Visit<'_>) {
        end_all(self, visit);
        self.login = Login::Unknown;
    }

    /// The transaction of this sender, which may have begun before.
    pub(super) fn begun(
        &mut self,
        at: Timestamp,
        said: Event<Text>,
        visit: &mut Visit<'_>,
    ) -> Transaction {
        match self.transaction.take() {
            Some(begun) if begun.said.sender == said.sender => Transaction { said, ..begun },
            Some(other) => {
                if self.login == Login::Unknown && other.without_login > 0 {
                    // A line that follows may show it.
                    self.ended.push(other);
                } else {
                    let end = other.latest();
                    self.end(other, end, TransactionEnd::Incomplete, visit);
                }
                Transaction { at, said, ..Transaction::default() }
            }
            None => Transaction { at, said, ..Transaction::default() },
        }
    }

    /// Ends the transactions that had ended without its being known who sent them.
    fn end_ended(&mut self, visit: &mut Visit<'_>) {
        for transaction in std::mem::take(&mut self.ended) {
            let at = transaction.latest();
            self.end(transaction, at, TransactionEnd::Incomplete, visit);
        }
    }

    pub(super) fn end(
        &mut self,
        one: Transaction,
        at: Timestamp,
        end: TransactionEnd,
        visit: &mut Visit<'_>,
    ) {
        let begun = one.at.min(at);
        if !matches!(self.login, Login::Yes(_)) {
            self.without_login += one.without_login;
        }
        self.said.clone_from(&one.said);
        if let Login::Yes(_) = &self.login
            && !self.has_auth
        {
            self.has_auth = true;
            let said = Event { sender: None, ..one.said.clone() };
            let login = std::mem::take(&mut self.login);
            self.visit(begun, &said, AttemptPart::Auth, InLog::Accepted, visit);
            self.login = login;
        }
        let id = match &end {
            TransactionEnd::Data { id, .. } => id.clone(),
            _ => None,
        };
        let system = one.said.system && one.said.client != Origin::Program;
        let handed_over = HandedOver::Said(system);
        let event = self.event(Event { message_id: id, ..one.said }, handed_over);
        let session = self.number;
        let mut step = |at, part, in_log| {
            visit(&Attempt { at, session, event: Rc::clone(&event), part, in_log });
        };
        let of_mail = match end {
            TransactionEnd::Mail { in_log } => in_log,
            _ => InLog::Accepted,
        };
        step(begun, AttemptPart::Mail, of_mail);
        for recipient in one.accepted {
            step(begun, AttemptPart::Rcpt { recipient }, InLog::Accepted);
        }
        for (at, recipient, in_log) in one.refused {
            step(at, AttemptPart::Rcpt { recipient }, in_log);
        }
        match end {
            TransactionEnd::Data { size, in_log, .. } => {
                step(at, AttemptPart::Data { size }, in_log)
            }
            TransactionEnd::Mail { .. } | TransactionEnd::Incomplete => {
                step(at, AttemptPart::Incomplete, InLog::Accepted)
            }
        }
    }

    pub(super) fn visit(
        &self,
        at: Timestamp,
        said: &Event<Text>,
        part: AttemptPart,
        in_log: InLog,
        visit: &mut Visit<'_>,
    ) {
        let handed_over = match part {
            AttemptPart::NotSmtp { .. } => HandedOver::Said(said.system),
            _ => HandedOver::Dialogue,
        };
        let event = self.event(said.clone(), handed_over);
        visit(&Attempt { at, session: self.number, event, part, in_log });
    }

    /// The event that the log shows, of whoever has logged in.
    fn event(&self, said: Event<Text>, handed_over: HandedOver<'_>) -> Rc<Event<Text>> {
        let auth = match &self.login {
            Login::Yes(auth) => Some(Rc::clone(auth)),
            _ => None,
        };
        let has_used_auth = auth.is_some();
        // A log seldom names the server's own address.
        let circumstances =
            Circumstances { has_used_auth, handed_over, ..Circumstances::default() };
        Rc::new(Event { auth, ..said }.complete(&circumstances))
    }
}

impl Transaction {
    fn latest(&self) -> Timestamp {
        self.refused.last().map_or(self.at, |(at, ..)| *at)
    }
}

/// Ends all transactions of a session.
pub(super) fn end_all(open: &mut Open, visit: &mut Visit<'_>) {
    open.end_ended(visit);
    if let Some(transaction) = open.transaction.take() {
        let at = transaction.latest();
        open.end(transaction, at, TransactionEnd::Incomplete, visit);
    }
}

pub(super) fn close(open: &mut Open, at: Timestamp, visit: &mut Visit<'_>) {
    end_all(open, visit);
    let said = Event { sender: None, message_id: None, ..std::mem::take(&mut open.said) };
    open.visit(at, &said, AttemptPart::Close, InLog::Accepted, visit);
}

/// A message that was handed over without SMTP.
pub(super) fn not_smtp(
    open: &mut Open,
    at: Timestamp,
    event: Event<Text>,
    message: Message,
    visit: &mut Visit<'_>,
) {
    open.said = Event { helo: None, ..event };
    let mut recipients = message.recipients;
    if !message.recipients_known && recipients.is_empty() {
        recipients.push(Text::default());
    }
    let part = AttemptPart::NotSmtp { recipients, size: message.size };
    open.visit(at, &open.said, part, InLog::Accepted, visit);
}
