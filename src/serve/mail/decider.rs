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
use super::queue::Queue;
use super::recorder::{Recorder, not_recorded};
use super::worker::{Note, Worker};
use crate::bypass::Watch;
use crate::policy::evaluator::PolicySession;
use crate::policy::word::{OnError, Verdict};
use crate::serve::config::Mail;
use crate::serve::count::Count;
use crate::serve::log::{Level, Log};
use crate::trace::Envelope;

/// How long a decision may take, with the time that it waits for a thread: mail servers wait
/// 10 seconds for a reply.
const DEADLINE: Duration = Duration::from_secs(5);
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
struct Settings {
    /// The policies, as they are evaluated.
    names: String,
    on_error: OnError,
    max_in_flight: usize,
}

impl Settings {
    fn of(mail: &Mail) -> Arc<Self> {
        let Mail { policies, on_error, max_in_flight, .. } = mail;
        let names = policies.as_ref().map_or_else(|| "*".to_owned(), |names| names.join(","));
        Arc::new(Self { names, on_error: *on_error, max_in_flight: *max_in_flight })
    }

    /// The verdict without a decision; `bypassed`: nothing may be refused now.
    fn unavailable(&self, bypassed: bool) -> MailVerdict {
        MailVerdict::unavailable(match self.on_error {
            OnError::FailClosed if !bypassed => Verdict::Defer,
            OnError::FailOpen | OnError::FailClosed => Verdict::Accept,
        })
    }
}

/// A step to be decided.
struct Job {
    session: PolicySession,
    event: MailEvent,
    settings: Arc<Settings>,
    reply: oneshot::Sender<Done>,
}

/// A step that was decided.
struct Done {
    session: PolicySession,
    verdict: MailVerdict,
    notes: Vec<Note>,
}

/// A message to be recorded.
struct Message {
    envelope: Envelope,
    message: Vec<u8>,
    reply: oneshot::Sender<Vec<String>>,
}

/// The pool.
pub struct Decider {
    settings: RefCell<Arc<Settings>>,
    jobs: Arc<Queue<Job>>,
    messages: Arc<Queue<Message>>,
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
            settings: RefCell::new(Settings::of(mail)),
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
        *self.settings.borrow_mut() = Settings::of(mail);
    }

    /// Decides a step. The session moves to a thread and back; without a decision it may be
    /// a new one.
    pub async fn decide(
        &self,
        session: PolicySession,
        event: MailEvent,
    ) -> (PolicySession, MailVerdict) {
        let settings = Arc::clone(&self.settings.borrow());
        let most = settings.max_in_flight;
        if self.in_flight.get() >= most {
            return (session, self.too_many(&settings));
        }
        let _in_flight = self.in_flight.add(1);
        let (client, local) = (event.event.client, event.event.local);
        let (reply, done) = oneshot::channel();
        let job = Job { session, event, settings: Arc::clone(&settings), reply };
        if let Err(job) = self.jobs.push(job, most) {
            return (job.session, self.too_many(&settings));
        }
        let Ok(Ok(Done { session, verdict, notes })) = timeout(DEADLINE, done).await else {
            let seconds = DEADLINE.as_secs();
            let text = format_args!("there was no decision in {seconds}s");
            self.log.write_seldom("late decisions", Level::Error, text);
            self.unavailable.set(self.unavailable.get() + 1);
            return (PolicySession::default(), settings.unavailable(self.is_bypassed()));
        };
        for Note { subject, level, text } in notes {
            self.log.write_seldom(subject, level, text);
        }
        self.count(&verdict);
        self.log_verdict(&LogLine { verdict: &verdict, client, local });
        (session, verdict)
    }

    /// Records an accepted message, and returns when that is done: until then it takes memory,
    /// and no mail waits for it. It never fails for the caller: errors are logged.
    pub async fn record(&self, envelope: Envelope, message: Vec<u8>) {
        let (reply, done) = oneshot::channel();
        let pushed = self.messages.push(Message { envelope, message, reply }, RECORD_MAX);
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
    fn too_many(&self, settings: &Settings) -> MailVerdict {
        let most = settings.max_in_flight;
        let text = format_args!("{most} steps wait for a decision, and no more may");
        self.log.write_seldom("steps without a decision", Level::Warning, text);
        self.unavailable.set(self.unavailable.get() + 1);
        settings.unavailable(self.is_bypassed())
    }

    fn is_bypassed(&self) -> bool {
        self.bypass.borrow_mut().is_active_now()
    }

    fn count(&self, verdict: &MailVerdict) {
        let counter = match verdict {
            MailVerdict { unavailable: true, .. } => &self.unavailable,
            _ => &self.decided,
        };
        counter.set(counter.get() + 1);
        if verdict.verdict >= Verdict::Defer {
            self.refused.set(self.refused.get() + 1);
        }
    }

    fn log_verdict(&self, line: &LogLine<'_>) {
        if line.verdict.unavailable {
            return;
        }
        let (subject, level) = match line.verdict.verdict {
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
    while let Some(Job { mut session, event, settings, reply }) = jobs.pop() {
        // Nobody waits for it any more: nothing may be counted.
        if reply.is_closed() {
            continue;
        }
        let Settings { names, on_error, .. } = &*settings;
        let decide = || worker.decide(&mut session, &event, names, *on_error);
        let decided = catch_unwind(AssertUnwindSafe(decide));
        let verdict = decided.unwrap_or_else(|panic| {
            // They may be in any state.
            let notes = std::mem::take(&mut worker.notes);
            worker = Worker::new(spool);
            worker.notes = notes;
            session = PolicySession::default();
            let why = format!("internal error: {}", panic_text(&*panic));
            let text = format!("cannot decide: {why}");
            worker.notes.push(Note { subject: "faults", level: Level::Error, text });
            settings.unavailable(worker.lifts(&why))
        });
        let notes = std::mem::take(&mut worker.notes);
        // Without the one who waits for it, it is counted all the same.
        let _ = reply.send(Done { session, verdict, notes });
    }
}

/// What the thread does that records.
fn record(messages: &Queue<Message>, spool: PathBuf) {
    let mut recorder = Recorder::new(&spool);
    while let Some(Message { envelope, message, reply }) = messages.pop() {
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
