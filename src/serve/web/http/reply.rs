//! Replies: whole ones, and streams of events.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;
use tokio::sync::mpsc;

use super::problem::{Problem, ProblemKind};
use crate::text;

/// The reply to a request.
pub(in crate::serve::web) type Reply = Response<Content>;

/// What a reply contains.
pub(in crate::serve::web) enum Content {
    /// These bytes.
    Whole(Option<Bytes>),
    /// What is sent while it lasts.
    Events(mpsc::Receiver<Bytes>),
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().filter(|bytes| !bytes.is_empty())),
            Self::Events(events) => events.poll_recv(cx),
        };
        bytes.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Events(_) => SizeHint::default(),
        }
    }
}

/// Headers of all replies. Nothing is loaded from elsewhere, nothing is kept by others, and no
/// other page may show this one in itself.
const HEADERS: [(header::HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src \
         'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

fn reply(status: StatusCode, kind: &'static str, content: Content) -> Reply {
    let mut reply = Response::new(content);
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    reply
}

/// A reply in JSON.
///
/// # Errors
/// It cannot be written.
pub(in crate::serve::web) fn json(what: &impl Serialize) -> Result<Reply, Problem> {
    let written = text::json(what);
    let bytes =
        written.map_err(|error| Problem::new(ProblemKind::Unavailable, error.to_string()))?;
    Ok(reply(StatusCode::OK, "application/json", Content::Whole(Some(bytes.into()))))
}

/// A file of the page.
pub(in crate::serve::web) fn file(kind: &'static str, text: &'static str) -> Reply {
    reply(StatusCode::OK, kind, Content::Whole(Some(Bytes::from_static(text.as_bytes()))))
}

/// A stream of events.
pub(in crate::serve::web) fn events(events: mpsc::Receiver<Bytes>) -> Reply {
    let mut reply = reply(StatusCode::OK, "text/event-stream", Content::Events(events));
    // A proxy such as nginx would keep events until it has many.
    let name = header::HeaderName::from_static("x-accel-buffering");
    reply.headers_mut().insert(name, HeaderValue::from_static("no"));
    reply
}

/// A reply to a request that has a problem.
pub(in crate::serve::web) fn problem(problem: &Problem) -> Reply {
    let json = problem.json();
    let bytes = text::json(&json).unwrap_or_default();
    let status = problem.kind.status();
    let mut reply = reply(status, "application/problem+json", Content::Whole(Some(bytes.into())));
    if status == StatusCode::UNAUTHORIZED {
        let value = HeaderValue::from_static("Bearer realm=\"exirate\"");
        reply.headers_mut().insert(header::WWW_AUTHENTICATE, value);
    }
    reply
}
