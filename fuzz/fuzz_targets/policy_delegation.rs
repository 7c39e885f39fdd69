//! Requests of Postfix's policy delegation: what is read does not depend on the pieces in
//! which it arrives, agrees with a plain reader, and leads to a reply of one action.
#![no_main]

use std::collections::HashMap;

use arbitrary::Arbitrary;
use exirate::identity::written;
use exirate::policy::outcome::Outcome;
use exirate::policy::word::Verdict;
use exirate::serve::mail::event::MailVerdict;
use exirate::serve::mail::postfix::reply::{action, reply};
use exirate::serve::mail::postfix::request::{
    LINE_MAX, LINES_MAX, PolicyRequest, REQUEST_MAX, Request, RequestFault, RequestParser,
};
use libfuzzer_sys::fuzz_target;

/// The start of a request of Exim.
const EXIM: &[u8] = b"request=exirate_";

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    /// The sizes of the pieces.
    pieces: Vec<u8>,
    verdict: u8,
    unavailable: bool,
    header: bool,
    /// How often the bytes are repeated: so the limits are reached.
    repeated: u8,
    bytes: &'a [u8],
}

type Read = (Vec<Request>, Option<RequestFault>);

fuzz_target!(|input: Input<'_>| {
    let bytes = input.bytes.repeat(1 + usize::from(input.repeated % 64));
    let whole = read([&bytes[..]].into_iter());
    let pieces = pieces(&bytes, &input.pieces);
    assert_eq!(read(pieces.into_iter()), whole);
    // Those of Exim begin with another line.
    if !bytes.windows(EXIM.len()).any(|part| part == EXIM) {
        assert_eq!(plain(&bytes), whole);
    }
    assert!(whole.1.is_none_or(|fault| !fault.to_string().is_empty()));
    let verdicts = [
        Verdict::Accept,
        Verdict::Log,
        Verdict::Delay,
        Verdict::Hold,
        Verdict::Defer,
        Verdict::Reject,
    ];
    for request in whole.0 {
        let request = match request {
            Request::Postfix(request) => request,
            Request::Exim(request) => {
                let _ = request.step();
                continue;
            }
        };
        let Some(event) = request.event() else { continue };
        let outcome = Outcome {
            verdict: verdicts[usize::from(input.verdict) % verdicts.len()],
            text: format!("{}{}", request.sender, request.recipient),
            ..Outcome::default()
        };
        let policy = request.helo_name.as_str().into();
        let unavailable = input.unavailable.then(String::new);
        let verdict = MailVerdict { policy, outcome, unavailable };
        let reply = reply(&action(&verdict, event.stage, input.header));
        let text = std::str::from_utf8(&reply).expect("a reply is UTF-8");
        let line = text.strip_suffix("\n\n").expect("a reply ends with an empty line");
        assert!(line.starts_with("action=") && !line.contains(char::is_control), "{text:?}");
        assert!(line.len() < 512, "{text:?}");
    }
});

fn pieces<'b>(bytes: &'b [u8], sizes: &[u8]) -> Vec<&'b [u8]> {
    let (mut rest, mut pieces) = (bytes, Vec::new());
    for &size in sizes {
        let (piece, after) = rest.split_at(usize::from(size).min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

fn read<'b>(pieces: impl Iterator<Item = &'b [u8]>) -> Read {
    let (mut parser, mut requests) = (RequestParser::default(), Vec::new());
    let mut has_begun = false;
    for mut piece in pieces {
        loop {
            has_begun |= !piece.is_empty();
            match parser.take(&mut piece) {
                Ok(Some(request)) => {
                    requests.push(request);
                    has_begun = false;
                }
                Ok(None) => break,
                Err(fault) => return (requests, Some(fault)),
            }
        }
        assert!(piece.is_empty());
        assert_eq!(parser.has_begun(), has_begun);
    }
    (requests, None)
}

/// The same in another way: line by line, of all bytes.
fn plain(bytes: &[u8]) -> Read {
    let mut requests = Vec::new();
    let (mut known, mut lines, mut total) = (HashMap::new(), 0, 0);
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        total += line.len();
        if text.len() > LINE_MAX {
            return (requests, Some(RequestFault::LongLine));
        }
        if total > REQUEST_MAX {
            return (requests, Some(RequestFault::Large));
        }
        if text.len() == line.len() {
            break;
        }
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if !text.is_empty() {
            let Some(sign) = text.iter().position(|&byte| byte == b'=') else {
                return (requests, Some(RequestFault::NoAttribute));
            };
            let name = String::from_utf8_lossy(&text[..sign]);
            known.insert(name.into_owned(), written(text[sign + 1..].into()).into_owned());
            lines += 1;
            if lines > LINES_MAX {
                return (requests, Some(RequestFault::ManyLines));
            }
            continue;
        }
        let mut of = |name: &str| known.remove(name).unwrap_or_default();
        let request = PolicyRequest {
            request: of("request"),
            protocol_state: of("protocol_state"),
            instance: of("instance"),
            client_address: of("client_address"),
            server_address: of("server_address"),
            helo_name: of("helo_name"),
            sender: of("sender"),
            recipient: of("recipient"),
            recipient_count: of("recipient_count"),
            size: of("size"),
            sasl_username: of("sasl_username"),
            queue_id: of("queue_id"),
            protocol_name: of("protocol_name"),
            encryption_protocol: of("encryption_protocol"),
        };
        (known, lines, total) = (HashMap::new(), 0, 0);
        if request.request != "smtpd_access_policy" {
            return (requests, Some(RequestFault::OtherRequest));
        }
        requests.push(Request::Postfix(Box::new(request)));
    }
    (requests, None)
}
