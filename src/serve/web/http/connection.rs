//! A connection: its requests are read within limits, and replied to one after the other.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::time::Duration;

use hyper::body::{Body as _, Bytes, Incoming};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::watch;
use tokio::time::timeout;

use super::problem::{Problem, ProblemKind};
use super::reply::{self, Reply};
use super::timed::Timed;
use crate::serve::listen::{Peer, Stream};

/// The largest body.
const BODY_MAX: usize = 8 << 10;
/// The most bytes of a request's line and headers, and how many of these there may be.
const HEAD_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// How long a request may take to come, its headers and its body each. A connection that waits for
/// its next request is closed then as well.
const SLOW: Duration = Duration::from_secs(15);
/// How long a peer may take nothing of a reply.
const STALLED: Duration = Duration::from_secs(20);

/// A request that was read.
pub(in crate::serve::web) struct Call {
    /// Its line and headers.
    pub(in crate::serve::web) head: Parts,
    /// Its body.
    pub(in crate::serve::web) body: Bytes,
    /// The user and the group of who has connected; `None` over TCP.
    pub(in crate::serve::web) peer: Option<(u32, u32)>,
}

/// Of a reply: it is to somebody who has a role.
#[derive(Clone, Copy, Debug)]
pub(in crate::serve::web) struct ToSomebodyKnown;

/// Serves a connection: `answer` replies to each request. When `stop` is set, the request that is
/// being served is replied to.
pub(in crate::serve::web) async fn serve<F: Future<Output = Reply>>(
    stream: Stream,
    peer: Peer,
    mut stop: watch::Receiver<bool>,
    answer: impl Fn(Call) -> F,
) {
    let credentials = stream.peer();
    // While it waits for the peer, it may be closed for another.
    let waiting = RefCell::new(Some(peer.waits()));
    let (asking, waiting, answer) = (&peer, &waiting, &answer);
    let service = service_fn(|request: Request<Incoming>| async move {
        let reply = match read(request).await {
            Ok((head, body)) => {
                drop(waiting.take());
                answer(Call { head, body, peer: credentials }).await
            }
            Err(problem) => reply::problem(&problem),
        };
        // Of too many, those of unknown peers are closed first.
        if reply.extensions().get::<ToSomebodyKnown>().is_some() {
            asking.asks();
        }
        waiting.replace(Some(asking.waits()));
        Ok::<_, Infallible>(reply)
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(SLOW);
    builder.max_buf_size(HEAD_MAX).max_headers(HEADERS_MAX).half_close(false);
    let io = TokioIo::new(Timed::new(stream, STALLED));
    let mut connection = pin!(builder.serve_connection(io, service));
    tokio::select! {
        // What went wrong is the peer's: it has been replied to where it could be.
        _ = connection.as_mut() => return,
        () = peer.closed() => return,
        _ = stop.wait_for(|&stop| stop) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// Reads the body of a request.
async fn read(request: Request<Incoming>) -> Result<(Parts, Bytes), Problem> {
    let (head, mut body) = request.into_parts();
    if matches!(head.method, Method::GET | Method::HEAD) {
        return Ok((head, Bytes::new()));
    }
    let too_large = || {
        let detail = format!("a body has at most {BODY_MAX} bytes");
        Problem::new(ProblemKind::TooLarge, detail)
    };
    if body.size_hint().lower() > BODY_MAX as u64 {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    let whole = async {
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let frame =
                frame.map_err(|error| Problem::new(ProblemKind::Malformed, error.to_string()))?;
            if let Ok(data) = frame.into_data() {
                if bytes.len() + data.len() > BODY_MAX {
                    return Err(too_large());
                }
                bytes.extend_from_slice(&data);
            }
        }
        Ok(())
    };
    let late = |_| Err(Problem::new(ProblemKind::Malformed, "the body has not come in time"));
    timeout(SLOW, whole).await.unwrap_or_else(late)?;
    Ok((head, bytes.into()))
}
