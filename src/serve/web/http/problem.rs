//! What went wrong, as RFC 9457 has it: a problem in JSON that says what would be right.

use hyper::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use crate::serve::web::broker::wire::{Refused, Why};
use crate::standing::one_key::NotOne;

/// The kinds of problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve::web) enum ProblemKind {
    /// The request cannot be understood.
    Malformed,
    /// Nobody is known by what the request has.
    Unknown,
    /// The role does not allow it.
    Role,
    /// A change without the token against forged requests, or from another site.
    Forged,
    /// There is nothing of this name.
    NotFound,
    /// The route has no such method.
    Method,
    /// More than one who helps may do.
    Bounds,
    /// There is nothing to change.
    Nothing,
    /// The body is too large.
    TooLarge,
    /// The body is not JSON.
    MediaType,
    /// The name of the host is not one of this service.
    Host,
    /// Too much at the same time.
    Busy,
    /// The database, or the broker, cannot be used.
    Unavailable,
}

impl ProblemKind {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::Unknown => StatusCode::UNAUTHORIZED,
            Self::Role | Self::Forged | Self::Bounds => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Nothing => StatusCode::CONFLICT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Host => StatusCode::MISDIRECTED_REQUEST,
            Self::Busy => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// A word for programs, and a title for people.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Malformed => ("malformed", "The request cannot be understood"),
            Self::Unknown => ("unknown", "A token is needed"),
            Self::Role => ("role", "The role does not allow this"),
            Self::Forged => ("forged", "The request may be forged"),
            Self::NotFound => ("not-found", "There is no such resource"),
            Self::Method => ("method", "The resource has no such method"),
            Self::Bounds => ("bounds", "This is more than the role help may do"),
            Self::Nothing => ("nothing", "There is nothing to change"),
            Self::TooLarge => ("too-large", "The body is too large"),
            Self::MediaType => ("media-type", "The body is not JSON"),
            Self::Host => ("host", "This service has another name"),
            Self::Busy => ("busy", "Too much at the same time"),
            Self::Unavailable => ("unavailable", "This cannot be done now"),
        }
    }
}

/// What went wrong.
#[derive(Clone, Debug)]
pub(in crate::serve::web) struct Problem {
    pub(in crate::serve::web) kind: ProblemKind,
    /// What would be right.
    pub(in crate::serve::web) detail: String,
}

/// That something cannot be used, for this reason.
pub(in crate::serve::web) fn unavailable(error: impl std::fmt::Display) -> Problem {
    Problem::new(ProblemKind::Unavailable, error.to_string())
}

impl From<NotOne> for Problem {
    fn from(fault: NotOne) -> Self {
        match fault {
            NotOne::Wrong(why) => Self::new(ProblemKind::Malformed, why),
            NotOne::Glob => Self::new(ProblemKind::Malformed, "expected one key, not a glob"),
        }
    }
}

impl Problem {
    pub(in crate::serve::web) fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }

    pub(super) fn json(&self) -> ProblemJson {
        let (word, title) = self.kind.words();
        ProblemJson {
            r#type: format!("urn:exirate:problem:{word}"),
            title,
            status: u64::from(self.kind.status().as_u16()),
            detail: self.detail.clone(),
        }
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        let kind = match refused.why {
            Why::Malformed => ProblemKind::Malformed,
            Why::Unknown => ProblemKind::Unknown,
            Why::Role => ProblemKind::Role,
            Why::Bounds => ProblemKind::Bounds,
            Why::Nothing => ProblemKind::Nothing,
            Why::Database | Why::Queue => ProblemKind::Unavailable,
        };
        Self::new(kind, refused.detail)
    }
}

/// What went wrong (RFC 9457).
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::serve::web) struct ProblemJson {
    /// The kind, for programs: urn:exirate:problem:KIND.
    r#type: String,
    /// The kind, for people.
    title: &'static str,
    /// The status of the reply.
    status: u64,
    /// What is wrong here, and what would be right.
    detail: String,
}
