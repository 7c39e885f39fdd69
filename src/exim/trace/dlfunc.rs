//! The entry points of the trace store, for
//! `${dlfunc{…/exirate-trace.so}{FUNCTION}{ARGUMENT}…}`.

use super::record::{Call, Recorder};
use super::recorded::RecordedError;
use crate::exim::host::boundary::{self, Boundary, entry_point};
use crate::exim::host::bypass::Stop;
use crate::exim::host::context::{self, Acls};
use crate::exim::host::exports::Host;
use crate::exim::host::table::Tables;
use crate::exim::host::variables::{VariableSource, Variables};

/// The session, behind the boundary that catches panics.
static SESSION: Boundary<TraceSession> = Boundary::new();

/// What is kept between calls. Unlike that of exirate.so, it marks none of Exim's
/// variables: of two libraries that did, neither would find its own marks.
struct TraceSession {
    host: Host,
    variables: Variables,
    acls: Acls,
    recorder: Recorder,
    stop: Stop,
}

// SAFETY: the addresses in it are those of Exim's global variables, which are the
// same in every thread; Exim, whose only thread calls us, does not touch them
// during a call.
unsafe impl Send for TraceSession {}

impl boundary::Session for TraceSession {
    type Error = RecordedError;

    fn begin() -> Self {
        let host = Host::find();
        let tables = Tables::find();
        let source = VariableSource::new(&host, &tables);
        let (variables, recorder) = (Variables::find(&source), Recorder::find(&source));
        let stop = Stop::default();
        Self { variables, acls: Acls::new(tables), recorder, stop, host }
    }

    fn host(&self) -> &Host {
        &self.host
    }

    fn lifts(&mut self, what: &dyn std::fmt::Display) -> bool {
        self.stop.lifts(&self.host, &self.variables, what)
    }

    fn abandon(self) {}
}

impl TraceSession {
    /// Records the message that Exim is receiving; whether it is recorded now.
    fn record(&mut self, arguments: &[&[u8]]) -> bool {
        let (recorder, call) = self.call();
        recorder.record(&call, arguments)
    }

    /// Whether a recorded message carried a text.
    fn recorded(&mut self, arguments: &[&[u8]]) -> Result<bool, RecordedError> {
        let (recorder, call) = self.call();
        recorder.recorded(&call, arguments)
    }

    fn call(&mut self) -> (&mut Recorder, Call<'_>) {
        let (host, variables) = (&self.host, &self.variables);
        let stage = context::stage(host, variables, &self.acls);
        (&mut self.recorder, Call { host, variables, stage })
    }
}

entry_point! {
    /// `${dlfunc{…}{record}{OPTIONS}}`, in the ACL of `acl_smtp_data` or
    /// `acl_not_smtp`: records a digest of the message in the trace store; `yes` where
    /// it is recorded, `no` where it is not.
    ///
    /// OPTIONS is a slash list such as `keep=90d / max_size=10G / scheme=hbf`; it may
    /// be empty or left out. A message is recorded once, however often this is called
    /// for it. This never fails the expansion: errors are logged in the main log, once a
    /// message, and `exim -be` prints them.
    record => SESSION.call(c"no", |session, _, options| {
        Ok(session.record(options).into())
    })
}

entry_point! {
    /// `${dlfunc{…}{recorded}{TEXT}{OPTIONS}}`: `yes` where a message in the trace
    /// store carried TEXT, `no` where none did.
    ///
    /// OPTIONS, which may be left out, is a slash list: `since=7d` searches only the last
    /// seven days; `short=no` (or `yes`) is the result where TEXT is too short to search
    /// for, which is an error otherwise. A search that takes too long is an error as well.
    /// The message that Exim is receiving is found once it is recorded.
    recorded => SESSION.call(c"no", |session, _, arguments| {
        Ok(session.recorded(arguments)?.into())
    })
}

entry_point! {
    /// `${dlfunc{…}{recorded_or_no}{TEXT}{OPTIONS}}`: as [`recorded`], but `no` where
    /// that fails, for any reason; the reason is logged in the main log, once a process.
    /// For lines that only log, and so must not defer mail.
    recorded_or_no => SESSION.call_or_no("recorded_or_no", |session, _, arguments| {
        Ok(session.recorded(arguments)?.into())
    })
}
