//! The request that a spec makes.

use crate::engine::{Algorithm, AlgorithmKind, BlockTime, Check, Kind, RecordKey, Update};
use crate::event::{AclStage, Scope};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Messages (the default).
    PerMail,
    /// Recipients.
    PerRcpt,
    /// Different recipient addresses.
    PerAddr,
    /// Connections.
    PerConn,
    /// Evaluations.
    PerCmd,
    /// Bytes of messages.
    PerByte,
}

/// The request that a spec makes at one ACL stage; it is turned into a
/// [`Check`].
#[derive(Clone, Debug, PartialEq)]
pub struct SpecRequest {
    /// The record's name: `p/mode/[unique/]key`, with `p` as written and `mode`
    /// as Exim stores it (`per_byte` is stored as `per_mail`, `per_addr` as
    /// `per_rcpt/unique`).
    pub key: Vec<u8>,
    /// Where the administrator's key begins in [`SpecRequest::key`].
    pub key_start: usize,
    /// The limit: the maximum of events per period. Not negative, not NaN; may
    /// be infinite.
    pub limit: f64,
    /// The period in seconds; greater than zero.
    pub period: f64,
    /// What is counted, as written.
    pub mode: Mode,
    /// When the event is counted.
    pub update: Update,
    /// The size of this event; 0 in [`Update::ReadOnly`]. Not negative, not
    /// NaN.
    pub count: f64,
    /// The text of a unique event, counted at most once a period.
    pub unique: Option<Vec<u8>>,
    /// How long the decision may be reused.
    pub scope: Scope,
}

impl SpecRequest {
    /// The check for this request.
    #[must_use]
    #[inline]
    pub fn check(&self) -> Check<'_> {
        Check {
            key: RecordKey {
                name: &self.key,
                identity_start: self.identity_start(),
                kind: Kind::Spec,
                algorithm: AlgorithmKind::MovingAverage,
            },
            algorithm: Algorithm::MovingAverage { limit: self.limit, period: self.period },
            count: self.count,
            event: self.unique.as_deref(),
            update: self.update,
            refuses: (self.update != Update::ReadOnly).then_some(1.0),
            total: false,
            overridden: None,
            blocks: BlockTime::Ignored,
        }
    }

    /// The same, which counts nothing.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { update: Update::ReadOnly, count: 0.0, ..self }
    }

    /// Where the identity begins in the record's name. A key `unique/x` has the
    /// same record as unique events of `x`, as in Exim, and so the same identity.
    #[inline]
    fn identity_start(&self) -> usize {
        match self.written_key().strip_prefix(b"unique/") {
            Some(identity) if self.unique.is_none() => self.key.len() - identity.len(),
            _ => self.key_start,
        }
    }

    /// The key as the administrator wrote it, or the default key.
    #[must_use]
    pub fn written_key(&self) -> &[u8] {
        self.key.get(self.key_start..).unwrap_or_default()
    }
}

/// Whether `mode` can count at `stage`.
pub(super) fn counts_at(mode: Mode, stage: AclStage) -> bool {
    match mode {
        _ if stage == AclStage::Outside => true,
        Mode::PerCmd => true,
        Mode::PerConn => !matches!(stage, AclStage::NotSmtp | AclStage::NotSmtpStart),
        Mode::PerMail | Mode::PerByte => {
            matches!(stage, AclStage::Rcpt | AclStage::Mail) || stage.has_all_recipients()
        }
        Mode::PerRcpt => stage == AclStage::Rcpt || stage.has_all_recipients(),
        Mode::PerAddr => stage == AclStage::Rcpt,
    }
}
