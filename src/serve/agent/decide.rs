//! What the agent decides, and how much of it at the same time.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use super::announce::{Announcer, Now};
use super::link::{Backend, Link};
use crate::cluster::wire::{
    ReplyStatus, WireFault, event_of, read_request, write_decisions, write_refusal,
};
use crate::serve::config;
use crate::serve::count::{Count, CountGuard};
use crate::serve::log::{Level, Log};

/// The most memory for large messages of all connections together.
pub(super) const LARGE_BYTES_MAX: usize = 64 << 20;

/// Less time than this, or than half of the deadline, is left to a process that was stopped, or is slow.
const HARDLY_ANY: Duration = Duration::from_millis(10);

/// How long peers may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// Without any request.
    pub(super) idle: Duration,
    /// For a whole request, or to take a reply.
    pub(super) message: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        // An SMTP client may take minutes between two recipients.
        Self { idle: Duration::from_mins(15), message: Duration::from_secs(5) }
    }
}

/// What the configuration sets and a reload changes.
#[derive(Debug)]
pub(super) struct AgentLimits {
    pub(super) agent: config::Agent,
    /// The longest that a request may take.
    deadline: Duration,
}

/// The agent.
pub struct Agent<B: Backend> {
    pub(super) limits: RefCell<Rc<AgentLimits>>,
    link: Link<B>,
    pub(super) announcer: Announcer,
    pub(super) log: Rc<Log>,
    pub(super) timeouts: Timeouts,
    in_flight: Count,
    pub(super) large_bytes: Count,
    pub(super) connections: Count,
    /// The connections of each process.
    pub(super) processes: RefCell<HashMap<i32, usize>>,
    decided: Cell<u64>,
}

impl<B: Backend> Agent<B> {
    /// One that is not yet connected to its store.
    #[must_use]
    pub fn new(agent: config::Agent, deadline: Duration, store: B::Settings, log: Rc<Log>) -> Self {
        Self {
            limits: RefCell::new(Rc::new(AgentLimits { agent, deadline })),
            link: Link::new(store, Rc::clone(&log)),
            announcer: Announcer::default(),
            log,
            timeouts: Timeouts::default(),
            in_flight: Count::default(),
            large_bytes: Count::default(),
            connections: Count::default(),
            processes: RefCell::default(),
            decided: Cell::new(0),
        }
    }

    /// Uses another configuration from now on. Connections stay.
    pub fn set(&self, agent: config::Agent, deadline: Duration, store: B::Settings) {
        *self.limits.borrow_mut() = Rc::new(AgentLimits { agent, deadline });
        self.link.set(store);
        self.announcer.read_soon();
        self.link.announce_soon();
    }

    /// The state in words, for `systemctl status`.
    #[must_use]
    pub fn status(&self) -> String {
        let (connections, decided) = (self.connections.get(), self.decided.get());
        let store = self.store_status();
        format!("{store}; {connections} processes connected, {decided} decisions")
    }

    /// The state of the store in words.
    #[must_use]
    pub fn store_status(&self) -> String {
        self.link.status()
    }

    /// Keeps the store connected, and publishes the state of this server there; never ends.
    pub async fn keep_connected(&self) {
        let now = || {
            let agent = &self.limits.borrow().agent;
            let (name, servers) = (agent.server_name.clone(), agent.servers);
            Now { name, servers, decisions: self.decided.get(), config: agent.digest }
        };
        let announced = self.announcer.keep(&self.link, &self.log, now);
        tokio::join!(self.link.keep(), self.link.watch(), announced);
    }

    /// Shows the state of all servers in this file from now on.
    pub fn show_servers_in(&self, file: PathBuf) {
        self.announcer.show_in(file);
    }

    /// Decides what a message asks, and appends the reply to `reply`. Whether the messages
    /// that follow in the same connection can be read.
    pub(super) async fn decide(&self, message: &[u8], reply: &mut Vec<u8>) -> bool {
        let request = match read_request(message) {
            Ok(request) => request,
            Err(fault) => return self.refuse_bad(message, fault, reply),
        };
        let asked = Duration::from_micros(u64::from(request.deadline));
        let deadline = self.limits.borrow().deadline;
        let limit = asked.min(deadline);
        let mut decisions = Vec::with_capacity(request.checks.len());
        let event = request.event;
        let is_usual = limit >= (deadline / 2).min(HARDLY_ANY);
        match self.link.decide(event, &request.checks, &mut decisions, limit, is_usual).await {
            Ok(()) => {
                self.decided.set(self.decided.get() + 1);
                write_decisions(reply, event, &decisions);
            }
            Err((status, why)) => write_refusal(reply, event, status, &why),
        }
        true
    }

    /// Replies to a message that is no request. Whether its size can be relied on, so that
    /// what follows can be read.
    pub(super) fn refuse_bad(&self, message: &[u8], fault: WireFault, reply: &mut Vec<u8>) -> bool {
        self.log.write_seldom("bad requests", Level::Warning, format_args!("bad request: {fault}"));
        let status = match fault {
            WireFault::Version(_) => ReplyStatus::OtherVersion,
            _ => ReplyStatus::BadRequest,
        };
        write_refusal(reply, event_of(message), status, &fault.to_string());
        !matches!(fault, WireFault::Magic | WireFault::Size(_) | WireFault::Checksum)
    }

    /// Room for a message of this size, if it is not too much with all others.
    pub(super) fn room(&self, bytes: usize) -> Option<CountGuard> {
        let fits = self.large_bytes.get() + bytes <= LARGE_BYTES_MAX;
        fits.then(|| self.large_bytes.add(bytes))
    }

    /// A place for one more request, if there may be one.
    pub(super) fn place(&self) -> Option<CountGuard> {
        let most = self.limits.borrow().agent.max_in_flight;
        let fits = self.in_flight.get() < most;
        if !fits {
            let text = format_args!("{most} requests wait for a decision, and no more may");
            self.log.write_seldom("requests refused", Level::Warning, text);
        }
        fits.then(|| self.in_flight.add(1))
    }
}
