//! What a thief has sent: who has got it is to be warned.

use std::path::PathBuf;
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

use super::wire::{Done, MailOfThief};
use crate::history::habits::{SentMail, SentSince};
use crate::identity::fold::Folding;
use crate::logs::usual;
use crate::serve::config::{FollowedLog, Web};
use crate::serve::rates::{self, Purpose};
use crate::standing::accounts::Account;
use crate::standing::changer::Changer;
use crate::standing::{alarm, sent};
use crate::text;

/// How long a log is read, and how many recipients are looked for.
const LOOKED_UP: Duration = Duration::from_secs(10);
const RECIPIENTS_MAX: usize = 100_000;
/// How many recipients, of how many bytes, and how many clients a reply has.
const PEOPLE_MAX: usize = 500;
const PEOPLE_BYTES: usize = 20_000;
const CLIENTS_MAX: usize = 20;

/// Accounts that are stolen, and denied: who has got their mail is to be looked up.
#[derive(Debug)]
pub struct Thief {
    spool: PathBuf,
    log: FollowedLog,
    folding: Folding,
    accounts: Vec<Account>,
    by: Changer,
    /// Nothing is said of others.
    is_alone: bool,
}

impl Thief {
    /// These accounts.
    pub(super) fn new(web: &Web, folding: Folding, accounts: Vec<Account>, by: Changer) -> Self {
        let (spool, log) = (web.spool.clone(), web.log.clone());
        Self { spool, log, folding, accounts, by, is_alone: false }
    }

    /// For somebody who may know nothing of the others in the log.
    pub(super) fn alone(self) -> Self {
        Self { is_alone: true, ..self }
    }

    /// Looks up what was sent, says so, and has the accounts forget it.
    #[must_use]
    pub fn look_up(mut self, mut done: Done) -> Done {
        match self.sent(&mut done) {
            Ok(sent) => done.sent = Some(sent),
            Err(why) => {
                done.said.push(format!("what was sent is not known: {why}; {}", self.elsewhere()));
            }
        }
        done
    }

    /// Where all of it is.
    fn elsewhere(&self) -> String {
        let names: Vec<String> = self.accounts.iter().map(Account::name).collect();
        let names = names.join(" ");
        format!("an administrator runs `exirate habits stolen --addresses {names}`")
    }

    fn sent(&mut self, done: &mut Done) -> Result<MailOfThief, String> {
        static LOOKING: Mutex<()> = Mutex::new(());
        let _looking = match LOOKING.try_lock() {
            Err(TryLockError::WouldBlock) => return Err("another account is looked up".into()),
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(_)) => None,
        };
        let FollowedLog::File(log) = &self.log else {
            return Err(match usual::hidden() {
                Some(log) => format!("this service may not read {}", log.display()),
                None => "the mail server's log is in the journal".to_owned(),
            });
        };
        let since = |one: &Account| (one.identity(), one.habits.since());
        let mut counted = SentSince::new(self.accounts.iter().map(since));
        let (begun, mut is_all) = (Instant::now(), true);
        let goes_on = |counted: &SentSince| {
            is_all = begun.elapsed() < LOOKED_UP && counted.recipients() < RECIPIENTS_MAX;
            is_all
        };
        let read = |from, see: sent::See<'_>| sent::read_file(log, from, see);
        let without = sent::count(&mut counted, &self.folding, goes_on, read);
        let without = without.map_err(|error| error.to_string())?;
        let mut own = rates::own(&self.spool, Purpose::Change)?;
        let mut all = MailOfThief { since: i64::MAX, ..MailOfThief::default() };
        for account in &self.accounts {
            let mail = counted.of(&account.identity());
            let forgotten = alarm::stolen(&mut own, account, Some(&mail), &mut self.by);
            forgotten.map_err(|error| error.to_string())?;
            done.said.push(alarm::sent(account.habits.since(), &mail));
            add(&mut all, account.habits.since(), &mail);
        }
        if without > 0 && !self.is_alone {
            let messages = text::counted(without, "message", "messages");
            done.said.push(format!("the log does not name the recipients of {messages}"));
        }
        if !is_all || all.recipients > all.people.len() as u64 {
            done.said.push(format!("not all of it is here; {}", self.elsewhere()));
        }
        Ok(all)
    }
}

/// Adds the mail of an account.
fn add(all: &mut MailOfThief, since: i64, mail: &SentMail) {
    all.since = all.since.min(since);
    all.messages += mail.messages;
    all.recipients += mail.recipients.len() as u64;
    let mut bytes: usize = all.people.iter().map(String::len).sum();
    // The thief has chosen them.
    for one in mail.recipients.keys().map(|one| text::printable(one.as_bytes())) {
        bytes += one.len();
        if all.people.len() >= PEOPLE_MAX || bytes > PEOPLE_BYTES {
            break;
        }
        all.people.push(one);
    }
    let mut clients: Vec<_> = mail.clients.iter().collect();
    clients.sort_by(|(a, of_a), (b, of_b)| of_b.cmp(of_a).then(a.cmp(b)));
    let room = CLIENTS_MAX.saturating_sub(all.clients.len());
    all.clients.extend(clients.iter().take(room).map(|(client, _)| client.to_string()));
}
