//! Who writes the lines of a log: several servers may, each with queues and processes of its own.

use std::net::IpAddr;

use super::item::{SessionKey, Text};
use crate::event::Event;
use crate::hash::FastMap;
use crate::rate::Timestamp;

/// At most so many programs on hosts are distinguished.
const SOURCES_MAX: usize = 16_384;
/// At most so many processes are remembered.
const PROCESSES_MAX: usize = 100_000;
/// A process of which nothing was logged for so long, in seconds, has another client: as long as
/// mail servers wait for the next command.
const IDLE: i64 = 300;
/// The same, where the log shows the start of each session: a message may take long.
const IDLE_WHOLE: i64 = 3600;

/// Who writes a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LogWriter {
    /// The number of the host; 0 where the log does not name it.
    pub(super) host: u32,
    /// The number of the queue: of an instance of a mail server on a host.
    pub(super) queue: u32,
    /// The number of the service: of a program's name on a host.
    pub(super) service: u32,
}

/// The numbers of those who write lines.
#[derive(Debug, Default)]
pub(super) struct Sources {
    known: FastMap<String, LogWriter>,
    hosts: FastMap<String, u32>,
    queues: FastMap<String, u32>,
    name: String,
}

impl Sources {
    /// The numbers of a program of this instance of a mail server on a host; `None` if there
    /// are too many.
    pub(super) fn of(&mut self, host: &str, instance: &str, program: &str) -> Option<LogWriter> {
        let Self { known, hosts, queues, name } = self;
        let mut named = |one: &str| {
            name.clear();
            name.extend([host, "\0", one]);
        };
        named(program);
        if let Some(source) = known.get(name.as_str()) {
            return Some(*source);
        }
        if known.len() >= SOURCES_MAX {
            return None;
        }
        let next = |map: &FastMap<String, u32>| u32::try_from(map.len() + 1).ok();
        let host_number = match hosts.get(host) {
            Some(number) => *number,
            None => {
                let number = next(hosts)?;
                *hosts.entry(host.to_owned()).or_insert(number)
            }
        };
        let key = format!("{host}\0{instance}");
        let queue = match queues.get(&key) {
            Some(number) => *number,
            None => {
                let number = next(queues)?;
                *queues.entry(key).or_insert(number)
            }
        };
        let service = u32::try_from(known.len() + 1).ok()?;
        let source = LogWriter { host: host_number, queue, service };
        known.insert(name.clone(), source);
        Some(source)
    }
}

/// The client that a process serves, one after the other.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) client: Option<IpAddr>,
    /// The number of its session.
    run: u64,
    /// The log shows its start: all that follows is of this client's session.
    pub(super) is_whole: bool,
    latest: i64,
    /// Who has logged in.
    pub(super) auth: Option<Text>,
    /// The message that a filter has not accepted yet.
    pub(super) proxied: Option<Event<Text>>,
}

/// The processes that serve one client at a time.
#[derive(Debug, Default)]
pub(super) struct Processes {
    known: FastMap<(u32, u32), Process>,
    runs: u64,
}

impl Processes {
    /// The session of a line of this process that is about `client`, and what is known of it.
    /// A message that waited for a filter in the session before is handed over as `left`.
    pub(super) fn session(
        &mut self,
        (service, pid): (u32, u32),
        client: Option<IpAddr>,
        at: Timestamp,
        is_connect: bool,
        left: &mut bool,
    ) -> (SessionKey, &mut Process) {
        if self.known.len() >= PROCESSES_MAX && !self.known.contains_key(&(service, pid)) {
            self.known.clear();
        }
        let process = self.known.entry((service, pid)).or_default();
        let idle = if process.is_whole { IDLE_WHOLE } else { IDLE };
        let is_other = process.run == 0
            || is_connect
            || process.client != client
            || at.seconds.saturating_sub(process.latest) > idle;
        if is_other {
            self.runs += 1;
            *left = process.proxied.is_some();
            *process =
                Process { client, run: self.runs, is_whole: is_connect, ..Process::default() };
        }
        process.latest = process.latest.max(at.seconds);
        (SessionKey::Process { service, pid, run: process.run }, process)
    }

    /// The session that a process has now.
    pub(super) fn now(&mut self, (service, pid): (u32, u32)) -> Option<(SessionKey, &mut Process)> {
        let process = self.known.get_mut(&(service, pid))?;
        Some((SessionKey::Process { service, pid, run: process.run }, process))
    }

    /// The session of a process has ended.
    pub(super) fn close(&mut self, process: (u32, u32)) {
        self.known.remove(&process);
    }
}
