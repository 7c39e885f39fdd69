//! Keeping the message that passes in the trace store, and asking that store.
//!
//! Nothing that goes wrong with keeping concerns the message: it is logged, the
//! answer is `no`, and the mail goes its way.

use super::boundary::panic_text;
use super::directory::{self, NoDirectory};
use super::host::Host;
use super::message::{Message, NoMessage};
use super::record_options::{RecordOptions, WrongOptions};
use super::recorded::{Asking, NoAnswer};
use super::table::Tables;
use super::variables::{Source, Variables};
use crate::spec::AclStage;
use crate::trace::{self, Access, TraceError, TraceStore};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// Why a message is not recorded.
#[derive(Debug)]
enum NotRecorded {
    Options(WrongOptions),
    Message(NoMessage),
    Directory(NoDirectory),
    Trace(TraceError),
    /// A mistake of ours.
    Panic(String),
}

impl fmt::Display for NotRecorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(error) => error.fmt(f),
            Self::Message(error) => error.fmt(f),
            Self::Directory(error) => error.fmt(f),
            Self::Trace(error) => error.fmt(f),
            Self::Panic(text) => write!(f, "internal error: {}", text.escape_debug()),
        }
    }
}

/// Where Exim stands while it asks.
pub(super) struct Stand<'a> {
    pub(super) host: &'a Host,
    pub(super) variables: &'a Variables,
    pub(super) place: AclStage,
}

/// Records messages, each once, and answers what was recorded.
pub(super) struct Recorder {
    message: Message,
    /// The store, and for what it is open.
    trace: Option<(Access, TraceStore)>,
    /// The id of the message that was recorded last.
    recorded: Option<Vec<u8>>,
    /// The id of the message about which something was logged last; empty
    /// where there was none.
    told: Option<Vec<u8>>,
    /// Whether it was logged that not all of the store can answer.
    told_damage: bool,
}

impl Recorder {
    /// Finds out where Exim has a message: only now, as most processes that
    /// load this library have none to record.
    pub(super) fn find(host: &Host) -> Self {
        let tables = Tables::find();
        let message = Message::find(&Source::new(host, &tables));
        Self { message, trace: None, recorded: None, told: None, told_damage: false }
    }

    /// Records the message that is there, if it has not been; whether it is
    /// recorded now. If not, the main log has the reason, which `exim -be` shows.
    pub(super) fn record(&mut self, stand: &Stand<'_>, arguments: &[&[u8]]) -> bool {
        let result = catch_unwind(AssertUnwindSafe(|| self.try_record(stand, arguments)));
        let result = result.unwrap_or_else(|panic| {
            // Whatever state it is in, it is not used again.
            self.trace = None;
            Err(NotRecorded::Panic(panic_text(&*panic).to_owned()))
        });
        if let Err(reason) = &result {
            if matches!(reason, NotRecorded::Trace(_)) {
                // What is wrong may be gone when it is opened anew.
                self.trace = None;
            }
            self.tell(stand, reason);
        }
        result.is_ok()
    }

    fn try_record(&mut self, stand: &Stand<'_>, arguments: &[&[u8]]) -> Result<(), NotRecorded> {
        #[cfg(exirate_test_panics)]
        super::session::panic_on_demand(arguments.first().copied().unwrap_or_default());
        let options = match arguments {
            [] => Ok(RecordOptions::default()),
            [text] => RecordOptions::parse(text),
            _ => Err(WrongOptions::Arguments(arguments.len())),
        };
        let options = options.map_err(NotRecorded::Options)?;
        let Stand { host, variables, place } = stand;
        let begun = Instant::now();
        let id = self.message.id(host, variables, *place).map_err(NotRecorded::Message)?;
        if self.recorded.as_ref() == Some(&id) {
            return Ok(());
        }
        let passing = self.message.read(host, variables, &id).map_err(NotRecorded::Message)?;
        let trace = self.trace(stand, Access::Write, NotRecorded::Directory, NotRecorded::Trace)?;
        let wanted = options.over(trace.options());
        if wanted != *trace.options() {
            trace.set_options(wanted).map_err(NotRecorded::Trace)?;
        }
        let recorded = trace.record(&passing.envelope, &passing.message);
        // Damage that was met on the way, and other messages' concerns.
        for incident in trace.take_incidents() {
            host.log(&format!("exirate: {incident}"));
        }
        recorded.map_err(NotRecorded::Trace)?;
        self.recorded = Some(id);
        if variables.debugs_acls(host) {
            let (bytes, taken) = (passing.message.len(), begun.elapsed().as_micros());
            host.debug(&format!("record: kept a message of {bytes} bytes in {taken} us"));
        }
        Ok(())
    }

    /// Whether a message that was recorded carried the text that is the first
    /// argument.
    ///
    /// # Errors
    /// There is no answer.
    pub(super) fn recorded(
        &mut self,
        stand: &Stand<'_>,
        arguments: &[&[u8]],
    ) -> Result<bool, NoAnswer> {
        let (text, asking) = match arguments {
            [text] => (text, Asking::default()),
            [text, options] => (text, Asking::parse(options)?),
            _ => return Err(NoAnswer::Arguments(arguments.len())),
        };
        match self.trace(stand, Access::Read, NoAnswer::Directory, NoAnswer::Trace) {
            Ok(trace) => {
                let (answer, damage) = asking.ask(trace, text)?;
                if let Some(damage) = damage.filter(|_| !self.told_damage) {
                    stand.host.log(&format!("exirate: recorded: {damage}"));
                    self.told_damage = true;
                }
                Ok(answer)
            }
            // Nothing was recorded yet.
            Err(NoAnswer::Trace(TraceError::Absent { .. })) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The store, open for this.
    fn trace<E>(
        &mut self,
        stand: &Stand<'_>,
        access: Access,
        no_directory: fn(NoDirectory) -> E,
        unusable: fn(TraceError) -> E,
    ) -> Result<&mut TraceStore, E> {
        let open = self.trace.take().filter(|(open, trace)| {
            (*open == access || *open == Access::Write) && trace.is_current()
        });
        let open = match open {
            Some(open) => open,
            None => {
                let spool = directory::spool(stand.host, stand.variables).map_err(no_directory)?;
                let directory = trace::trace_directory(&spool);
                (access, TraceStore::open(&directory, access).map_err(unusable)?)
            }
        };
        Ok(&mut self.trace.insert(open).1)
    }

    /// Logs why a message is not recorded, once a message.
    fn tell(&mut self, stand: &Stand<'_>, reason: &NotRecorded) {
        let id = stand.variables.message_id.read(stand.host).unwrap_or_default().into_owned();
        if self.told.as_ref() != Some(&id) {
            stand.host.log(&format!("exirate: not recorded: {reason}"));
            self.told = Some(id);
        }
    }
}
