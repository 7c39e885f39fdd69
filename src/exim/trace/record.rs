//! Recording messages in the trace store, and searching that store.
//!
//! An error of recording does not affect the message: it is logged, `record` returns
//! `no`, and the message is delivered.

use super::message::{Message, NoMessage};
use super::record_options::RecordOptions;
use super::recorded::{RecordedError, RecordedOptions};
use super::wrong_options::WrongOptions;
use crate::exim::host::directory::{self, NoDirectory};
use crate::exim::host::exports::Host;
use crate::exim::host::text::panic_text;
use crate::exim::host::variables::{VariableSource, Variables};
use crate::spec::AclStage;
use crate::trace::{self, Access, TraceError, TraceStore};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// Why a message is not recorded.
#[derive(Debug, thiserror::Error)]
enum NotRecorded {
    #[error("{0}")]
    Options(WrongOptions),
    #[error(transparent)]
    Message(NoMessage),
    #[error(transparent)]
    Directory(NoDirectory),
    #[error(transparent)]
    Trace(TraceError),
    /// An error in our code.
    #[error("internal error: {}", .0.escape_debug())]
    Panic(String),
}

/// A call by Exim.
pub(in crate::exim) struct Call<'a> {
    pub(in crate::exim) host: &'a Host,
    pub(in crate::exim) variables: &'a Variables,
    pub(in crate::exim) stage: AclStage,
}

/// Records messages, each once, and searches what was recorded.
pub(in crate::exim) struct Recorder {
    message: Message,
    /// The store, and how it is open.
    trace: Option<(Access, TraceStore)>,
    /// The id of the message that was recorded latest.
    recorded: Option<Vec<u8>>,
    /// The id of the message for which an error was logged latest; empty if there was
    /// no message.
    logged: Option<Vec<u8>>,
    /// Whether damage of the store was logged.
    logged_damage: bool,
}

impl Recorder {
    /// Finds Exim's variables of a message.
    pub(in crate::exim) fn find(source: &VariableSource<'_>) -> Self {
        let message = Message::find(source);
        Self { message, trace: None, recorded: None, logged: None, logged_damage: false }
    }

    /// Records the message that Exim is receiving, unless it has been; whether it is
    /// recorded now. If not, the reason is logged, which `exim -be` prints.
    pub(in crate::exim) fn record(&mut self, call: &Call<'_>, arguments: &[&[u8]]) -> bool {
        let result = catch_unwind(AssertUnwindSafe(|| self.try_record(call, arguments)));
        let result = result.unwrap_or_else(|panic| {
            // The store may be in any state, so it is not used again.
            self.trace = None;
            Err(NotRecorded::Panic(panic_text(&*panic).to_owned()))
        });
        if let Err(reason) = &result {
            if matches!(reason, NotRecorded::Trace(_)) {
                // The error may be gone when it is opened again.
                self.trace = None;
            }
            self.log_once(call, reason);
        }
        result.is_ok()
    }

    fn try_record(&mut self, call: &Call<'_>, arguments: &[&[u8]]) -> Result<(), NotRecorded> {
        #[cfg(exirate_test_panics)]
        crate::exim::host::text::panic_on_demand(arguments.first().copied().unwrap_or_default());
        let options = match arguments {
            [] => Ok(RecordOptions::default()),
            [text] => RecordOptions::parse(text),
            _ => Err(WrongOptions::Arguments(arguments.len())),
        };
        let options = options.map_err(NotRecorded::Options)?;
        let Call { host, variables, stage } = call;
        let begun = Instant::now();
        let id = self.message.id(host, variables, *stage).map_err(NotRecorded::Message)?;
        if self.recorded.as_ref() == Some(&id) {
            return Ok(());
        }
        let received = self.message.read(host, variables, &id).map_err(NotRecorded::Message)?;
        let trace = self.trace(call, Access::Write, NotRecorded::Directory, NotRecorded::Trace)?;
        let wanted = options.over(trace.options());
        if wanted != *trace.options() {
            trace.set_options(wanted).map_err(NotRecorded::Trace)?;
        }
        let recorded = trace.record(&received.envelope, &received.message);
        // Damage that was found, and other messages' errors.
        for incident in trace.take_incidents() {
            host.log(&format!("exirate: {incident}"));
        }
        recorded.map_err(NotRecorded::Trace)?;
        self.recorded = Some(id);
        if variables.debugs_acls(host) {
            let (bytes, taken) = (received.message.len(), begun.elapsed().as_micros());
            host.debug(&format!("record: recorded a message of {bytes} bytes in {taken} us"));
        }
        Ok(())
    }

    /// Whether a recorded message carried the text in the first argument.
    ///
    /// # Errors
    /// That cannot be known.
    pub(in crate::exim) fn recorded(
        &mut self,
        call: &Call<'_>,
        arguments: &[&[u8]],
    ) -> Result<bool, RecordedError> {
        let (text, options) = match arguments {
            [text] => (text, RecordedOptions::default()),
            [text, options] => (text, RecordedOptions::parse(options)?),
            _ => return Err(RecordedError::Arguments(arguments.len())),
        };
        match self.trace(call, Access::Read, RecordedError::Directory, RecordedError::Trace) {
            Ok(trace) => {
                let (found, damage) = options.search(trace, text)?;
                if let Some(damage) = damage.filter(|_| !self.logged_damage) {
                    call.host.log(&format!("exirate: recorded: {damage}"));
                    self.logged_damage = true;
                }
                Ok(found)
            }
            // Nothing has been recorded yet.
            Err(RecordedError::Trace(TraceError::Absent { .. })) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The store, opened for `access` unless it is open.
    fn trace<E>(
        &mut self,
        call: &Call<'_>,
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
                let spool = directory::spool(call.host, call.variables).map_err(no_directory)?;
                let directory = trace::trace_directory(&spool);
                (access, TraceStore::open(&directory, access).map_err(unusable)?)
            }
        };
        Ok(&mut self.trace.insert(open).1)
    }

    /// Logs why a message is not recorded, once a message.
    fn log_once(&mut self, call: &Call<'_>, reason: &NotRecorded) {
        let id = call.variables.message_id.read(call.host).unwrap_or_default().into_owned();
        if self.logged.as_ref() != Some(&id) {
            call.host.log(&format!("exirate: not recorded: {reason}"));
            self.logged = Some(id);
        }
    }
}
