//! A pool of threads that decide. The network side asks them, and never waits for a lock
//! or a disk.

use std::cell::{Cell, RefCell};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::event::{LogLine, MailEvent, MailVerdict};
use super::exim::request::EximCheck;
use super::queue::Queue;
use super::recorder::{Recorder, not_recorded};
use super::worker::{CheckError, Note, Worker};
use crate::bypass::Watch;
use crate::policy::check_info::CheckInfo;
use crate::policy::evaluator::PolicySession;
use crate::policy::word::{OnError, Verdict};
use crate::serve::config::Mail;
use crate::serve::count::Count;
use crate::serve::log::{Level, Log};
use crate::trace::Envelope;

/// How long a decision may take, with the time that it waits for a thread: mail servers wait
/// 10 seconds for a reply, and Exim 5 (`RATELIMIT_DEADLINE`). It must come before Exim gives up,
/// or else `on_error` of the policies has no effect.
const DEADLINE: Duration = Duration::from_secs(4);
/// How many messages may wait to be recorded.
pub(super) const RECORD_MAX: usize = 1000;
/// How many lines a minute are logged of each verdict.
const LINES_MAX: u32 = 1000;
/// How long the threads may take to end when the daemon stops.
const STOP_MAX: Duration = Duration::from_secs(10);
/// How often that is looked at.
const STOP_LOOK: Duration = Duration::from_millis(5);

/// What the configuration sets and a reload changes.
#[derive(Debug)]
struct DeciderSettings {
    /// The policies, as they are evaluated.
    names: String,
    on_error: OnError,
    max_in_flight: usize,
}

impl DeciderSettings {
    fn of(mail: &Mail) -> Arc<Self> {
        let Mail { policies, on_error, max_in_flight, .. } = mail;
        let names = policies.as_ref().map_or_else(|| "*".to_owned(), |names| names.join(","));
        Arc::new(Self { names, on_error: *on_error, max_in_flight: *max_in_flight })
    }

    /// The verdict without a decision; `bypassed`: nothing may be refused now.
    fn unavailable(&self, event: &MailEvent, bypassed: bool, why: &str) -> MailVerdict {
        let call = event.exim.as_ref();
        let of_account = call.filter(|call| call.is_of_account).map(|_| OnError::FailClosed);
        let of_call = of_account.or(call.and_then(|call| call.on_error));
        let verdict = match of_call.unwrap_or(self.on_error) {
            OnError::FailClosed if !bypassed => Verdict::Defer,
            OnError::FailOpen | OnError::FailClosed => Verdict::Accept,
        };
        MailVerdict::unavailable(verdict, why)
    }
}

/// A step to be decided.
struct Job {
    session: PolicySession,
    event: Arc<MailEvent>,
    /// The spec to be checked, instead of policies.
    check: Option<EximCheck>,
    settings: Arc<DeciderSettings>,
    reply: oneshot::Sender<Done>,
}

/// A step that was decided.
struct Done {
    session: PolicySession,
    decided: Decided,
    notes: Vec<Note>,
}

/// What was decided.
enum Decided {
    /// By policies.
    Verdict(MailVerdict),
    /// By a spec, or why it could not be.
    Check(Box<Result<CheckInfo, CheckError>>),
}

/// A message to be recorded.
struct RecordedMessage {
    envelope: Envelope,
    message: Vec<u8>,
    reply: oneshot::Sender<Vec<String>>,
}

/// The pool.
pub struct Decider {
    settings: RefCell<Arc<DeciderSettings>>,
    jobs: Arc<Queue<Job>>,
    messages: Arc<Queue<RecordedMessage>>,
    threads: RefCell<Vec<JoinHandle<()>>>,
    log: Rc<Log>,
    bypass: RefCell<Watch>,
    in_flight: Count,
    decided: Cell<u64>,
    refused: Cell<u64>,
    unavailable: Cell<u64>,
}

impl Decider {
    /// One with running threads.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn new(mail: &Mail, log: Rc<Log>) -> io::Result<Self> {
        let decider = Self {
            settings: RefCell::new(DeciderSettings::of(mail)),
            jobs: Arc::new(Queue::new()),
            messages: Arc::new(Queue::new()),
            threads: RefCell::default(),
            log,
            bypass: RefCell::new(Watch::new(&mail.spool)),
            in_flight: Count::default(),
            decided: Cell::default(),
            refused: Cell::default(),
            unavailable: Cell::default(),
        };
        for number in 0..mail.workers.max(1) {
            let (jobs, spool) = (Arc::clone(&decider.jobs), mail.spool.clone());
            let thread = thread::Builder::new().name(format!("decide-{number}"));
            let thread = thread.spawn(move || work(&jobs, &spool))?;
            decider.threads.borrow_mut().push(thread);
        }
        let (messages, spool) = (Arc::clone(&decider.messages), mail.spool.clone());
        let thread = thread::Builder::new().name("record".to_owned());
        let thread = thread.spawn(move || record(&messages, spool))?;
        decider.threads.borrow_mut().push(thread);
        Ok(decider)
    }

    /// Uses another configuration from now on. The directory of the database and the
    /// number of threads stay.
    pub fn set(&self, mail: &Mail) {
        *self.settings.borrow_mut() = DeciderSettings::of(mail);
    }

    /// Decides a step. The session moves to a thread and back; without a decision it may be
    /// a new one.
    pub async fn decide(
        &self,
        session: PolicySession,
        event: MailEvent,
    ) -> (PolicySession, MailVerdict) {
        let event = Arc::new(event);
        let settings = Arc::clone(&self.settings.borrow());
        let (session, decided) = self.ask(session, &event, None, &settings).await;
        let verdict = match decided {
            Ok(Decided::Verdict(verdict)) => verdict,
            Ok(Decided::Check(_)) => settings.unavailable(&event, self.is_bypassed(), ""),
            Err(why) => settings.unavailable(&event, self.is_bypassed(), &why),
        };
        self.count(&verdict);
        if event.exim.is_none() {
            let (client, local) = (event.event.client, event.event.local);
            self.log_verdict(&LogLine { verdict: &verdict, client, local });
        }
        (session, verdict)
    }

    /// Checks a spec at a step: the decision, or why there is none.
    pub(super) async fn check(
        &self,
        session: PolicySession,
        event: MailEvent,
        check: EximCheck,
    ) -> (PolicySession, Result<CheckInfo, CheckError>) {
        let settings = Arc::clone(&self.settings.borrow());
        let (session, decided) = self.ask(session, &Arc::new(event), Some(check), &settings).await;
        let checked = match decided {
            Ok(Decided::Check(checked)) => *checked,
            Ok(Decided::Verdict(_)) => Err(CheckError::Undecided("internal error".to_owned())),
            Err(why) => Err(CheckError::Undecided(why)),
        };
        let counter = if checked.is_ok() { &self.decided } else { &self.unavailable };
        counter.set(counter.get() + 1);
        (session, checked)
    }

    /// What a thread decides, or why none does.
    async fn ask(
        &self,
        session: PolicySession,
        event: &Arc<MailEvent>,
        check: Option<EximCheck>,
        settings: &Arc<DeciderSettings>,
    ) -> (PolicySession, Result<Decided, String>) {
        let most = settings.max_in_flight;
        if self.in_flight.get() >= most {
            return (session, Err(self.too_many(most)));
        }
        let _in_flight = self.in_flight.add(1);
        let (reply, done) = oneshot::channel();
        let (event, settings) = (Arc::clone(event), Arc::clone(settings));
        if let Err(job) = self.jobs.push(Job { session, event, check, settings, reply }, most) {
            return (job.session, Err(self.too_many(most)));
        }
        let Ok(Ok(Done { session, decided, notes })) = timeout(DEADLINE, done).await else {
            let text = format!("there was no decision in {}s", DEADLINE.as_secs());
            self.log.write_seldom("late decisions", Level::Error, &text);
            return (PolicySession::default(), Err(text));
        };
        for Note { subject, level, text } in notes {
            self.log.write_seldom(subject, level, text);
        }
        (session, Ok(decided))
    }

    /// Records an accepted message, and returns when that is done: until then it takes memory,
    /// and no mail waits for it. It never fails for the caller: errors are logged.
    pub async fn record(&self, envelope: Envelope, message: Vec<u8>) {
        let (reply, done) = oneshot::channel();
        let pushed = self.messages.push(RecordedMessage { envelope, message, reply }, RECORD_MAX);
        let lines = match pushed {
            Err(_) => vec![not_recorded(&format_args!("{RECORD_MAX} others wait for it"))],
            Ok(()) => done.await.unwrap_or_default(),
        };
        for line in lines {
            self.log.write_seldom("recording", Level::Warning, line);
        }
    }

    /// The state in words.
    #[must_use]
    pub fn status(&self) -> String {
        let (decided, refused) = (self.decided.get(), self.refused.get());
        let unavailable = self.unavailable.get();
        format!("{decided} decisions, {refused} refusals, {unavailable} without a decision")
    }

    /// Ends the threads when they have done what waits.
    pub async fn stop(&self) {
        self.jobs.close();
        self.messages.close();
        let threads = self.threads.take();
        let begun = Instant::now();
        while !threads.iter().all(JoinHandle::is_finished) {
            if begun.elapsed() > STOP_MAX {
                let text = "the threads have not ended in time; some messages may not be recorded";
                self.log.write(Level::Warning, text);
                return;
            }
            sleep(STOP_LOOK).await;
        }
    }

    #[cold]
    fn too_many(&self, most: usize) -> String {
        let text = format!("{most} steps wait for a decision, and no more may");
        self.log.write_seldom("steps without a decision", Level::Warning, &text);
        text
    }

    /// Whether nothing may be refused now.
    pub(super) fn is_bypassed(&self) -> bool {
        self.bypass.borrow_mut().is_active()
    }

    fn count(&self, verdict: &MailVerdict) {
        let counter = match verdict {
            MailVerdict { unavailable: Some(_), .. } => &self.unavailable,
            _ => &self.decided,
        };
        counter.set(counter.get() + 1);
        if verdict.outcome.verdict >= Verdict::Defer {
            self.refused.set(self.refused.get() + 1);
        }
    }

    fn log_verdict(&self, line: &LogLine<'_>) {
        if line.verdict.unavailable.is_some() {
            return;
        }
        let (subject, level) = match line.verdict.outcome.verdict {
            Verdict::Accept => return,
            Verdict::Log => ("policy verdicts to log", Level::Info),
            Verdict::Delay => ("policy verdicts to delay", Level::Info),
            Verdict::Hold => ("policy verdicts to hold", Level::Notice),
            Verdict::Defer => ("policy verdicts to defer", Level::Notice),
            Verdict::Reject => ("policy verdicts to reject", Level::Notice),
        };
        self.log.write_at_most(LINES_MAX, subject, level, line);
    }
}

impl Drop for Decider {
    fn drop(&mut self) {
        self.jobs.close();
        self.messages.close();
    }
}

/// What a thread does that decides.
fn work(jobs: &Queue<Job>, spool: &Path) {
    let mut worker = Worker::new(spool);
    while let Some(Job { mut session, event, check, settings, reply }) = jobs.pop() {
        // Nobody waits for it any more: nothing may be counted.
        if reply.is_closed() {
            continue;
        }
        let DeciderSettings { names, on_error, .. } = &*settings;
        let decide = || match &check {
            None => Decided::Verdict(worker.decide(&mut session, &event, names, *on_error)),
            Some(check) => Decided::Check(Box::new(worker.check(&mut session, &event, check))),
        };
        let decided = catch_unwind(AssertUnwindSafe(decide));
        let decided = decided.unwrap_or_else(|panic| {
            // They may be in any state.
            let notes = std::mem::take(&mut worker.notes);
            worker = Worker::new(spool);
            worker.notes = notes;
            session = PolicySession::default();
            let why = format!("internal error: {}", panic_text(&*panic));
            let text = format!("cannot decide: {why}");
            worker.notes.push(Note { subject: "faults", level: Level::Error, text });
            match check {
                None => {
                    let bypassed = worker.lifts(&why);
                    Decided::Verdict(settings.unavailable(&event, bypassed, &why))
                }
                Some(_) => Decided::Check(Box::new(Err(CheckError::Undecided(why)))),
            }
        });
        let notes = std::mem::take(&mut worker.notes);
        // Without the one who waits for it, it is counted all the same.
        let _ = reply.send(Done { session, decided, notes });
    }
}

/// What the thread does that records.
fn record(messages: &Queue<RecordedMessage>, spool: PathBuf) {
    let mut recorder = Recorder::new(&spool);
    while let Some(RecordedMessage { envelope, message, reply }) = messages.pop() {
        let record = || recorder.record(&envelope, &message);
        let lines = catch_unwind(AssertUnwindSafe(record)).unwrap_or_else(|panic| {
            recorder = Recorder::new(&spool);
            let why = format!("internal error: {}", panic_text(&*panic));
            vec![not_recorded(&why)]
        });
        // It is recorded, or not, also if nobody waits.
        let _ = reply.send(lines);
    }
}

/// What a panic says.
fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_decision_is_replied_to_before_exim_gives_up() {
        let macros = include_str!("../../../exim/exirate.conf");
        let waits = macros.lines().find_map(|line| line.strip_prefix("RATELIMIT_DEADLINE = "));
        let waits = waits.and_then(|text| text.strip_suffix('s')).unwrap().parse().unwrap();
        assert!(DEADLINE < Duration::from_secs(waits));
    }
}
