//! How much is measured.

use std::time::Duration;

/// The amount of measurements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Interleaved rounds, of which the median is taken.
    pub(crate) rounds: usize,
    /// RCPT commands in a session.
    pub(crate) recipients: usize,
    /// Concurrent sessions.
    pub(crate) sessions: usize,
    /// SMTP sessions that are open while they ask the socket.
    pub(crate) smtp_sessions: usize,
    /// New processes whose first check is measured.
    pub(crate) processes: usize,
    /// Keys in the databases that are measured in process.
    pub(crate) keys: &'static [usize],
    /// Keys with which a database is filled to measure growth.
    pub(crate) growth: usize,
    /// Users in the table of the large policy.
    pub(crate) users: usize,
    /// Users of the policy file whose commands are measured as a whole.
    pub(crate) many_users: usize,
    /// Rounds in process, which are short.
    pub(crate) short_rounds: usize,
    /// How often the large policy is applied.
    pub(crate) applied_rounds: usize,
    /// Streams of the web service.
    pub(crate) streams: usize,
    /// For how long a route of it is asked, and checks are made meanwhile.
    pub(crate) asked: Duration,
    /// For how long it is left alone with its streams.
    pub(crate) watched: Duration,
}

pub(crate) const FULL: Effort = Effort {
    rounds: 5,
    recipients: 3_000,
    sessions: 8,
    smtp_sessions: 5_000,
    processes: 201,
    keys: &[1_000, 10_000, 100_000, 1_000_000, 10_000_000],
    growth: 10_000_000,
    users: 100_000,
    many_users: 1_000_000,
    short_rounds: 301,
    applied_rounds: 7,
    streams: 200,
    asked: Duration::from_secs(4),
    watched: Duration::from_secs(30),
};
pub(crate) const SMOKE: Effort = Effort {
    rounds: 1,
    recipients: 20,
    sessions: 2,
    smtp_sessions: 50,
    processes: 2,
    keys: &[500],
    growth: 2_000,
    users: 100,
    many_users: 10_000,
    short_rounds: 2,
    applied_rounds: 1,
    streams: 3,
    asked: Duration::ZERO,
    watched: Duration::ZERO,
};
