//! What is sent to the mail server.

use super::packet::write;

/// `SMFIR_CONTINUE`
const CONTINUE: u8 = b'c';
/// `SMFIR_PROGRESS`
const PROGRESS: u8 = b'p';
/// `SMFIR_QUARANTINE`
const QUARANTINE: u8 = b'q';
/// `SMFIR_SKIP`
const SKIP: u8 = b's';
/// `SMFIR_REPLYCODE`
const REPLY_CODE: u8 = b'y';

/// The longest text of an SMTP reply: a line has 512 bytes, with its code and its end.
const TEXT_MAX: usize = 512 - "451 4.7.1 \r\n".len();
/// The longest reason for holding a message.
const REASON_MAX: usize = 200;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Go on. At the end of a message, it is accepted.
    Continue,
    /// The rest of the body is not needed.
    Skip,
    /// Refuse for now, with this text for the client.
    Defer(String),
    /// Refuse, with this text for the client.
    Reject(String),
    /// Accept the message, and hold it for this reason.
    Hold(String),
    /// Wait: the reply comes later.
    Progress,
    /// What was agreed on.
    Agreed(Vec<u8>),
}

impl Reply {
    /// Appends it to `bytes`.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Continue => write(bytes, CONTINUE, b""),
            Self::Skip => write(bytes, SKIP, b""),
            Self::Progress => write(bytes, PROGRESS, b""),
            Self::Defer(text) => write(bytes, REPLY_CODE, &coded("451 4.7.1 ", text)),
            Self::Reject(text) => write(bytes, REPLY_CODE, &coded("550 5.7.1 ", text)),
            Self::Hold(reason) => {
                let mut data = plain(reason, REASON_MAX).into_bytes();
                data.push(0);
                write(bytes, QUARANTINE, &data);
                write(bytes, CONTINUE, b"");
            }
            Self::Agreed(data) => write(bytes, super::packet::NEGOTIATE, data),
        }
    }
}

/// The data of a reply with a code. Mail servers take it as a format, so each `%` is
/// doubled.
fn coded(code: &str, text: &str) -> Vec<u8> {
    let mut data = code.as_bytes().to_vec();
    for byte in plain(text, TEXT_MAX).bytes() {
        data.push(byte);
        if byte == b'%' {
            data.push(byte);
        }
    }
    data.push(0);
    data
}

/// `text` as SMTP allows it: on one line of printable ASCII, not longer than `most`.
fn plain(text: &str, most: usize) -> String {
    let allowed = |c: char| match c {
        ' '..='~' => c,
        c if c.is_control() || c.is_whitespace() => ' ',
        _ => '?',
    };
    text.chars().take(most).map(allowed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(reply: &Reply) -> Vec<u8> {
        let mut bytes = Vec::new();
        reply.write(&mut bytes);
        bytes
    }

    #[test]
    fn a_refusal_has_its_code_and_doubled_percent_signs() {
        let bytes = written(&Reply::Defer("90% used\r\n250 OK\0 café".to_owned()));
        assert_eq!(bytes, b"\0\0\0\x23y451 4.7.1 90%% used  250 OK  caf?\0");
        let bytes = written(&Reply::Reject("no".to_owned()));
        assert_eq!(bytes, b"\0\0\0\x0ey550 5.7.1 no\0");
    }

    #[test]
    fn a_text_fits_a_line_of_smtp() {
        let bytes = written(&Reply::Reject("%".repeat(10_000)));
        // What the client gets, with CR and LF.
        let line = bytes[5..bytes.len() - 1].len() - TEXT_MAX + 2;
        assert_eq!(line, 512);
        let bytes = written(&Reply::Hold("x".repeat(1000)));
        assert!(bytes.ends_with(b"x\0\0\0\0\x01c"));
        assert_eq!(bytes.len(), 4 + 1 + REASON_MAX + 1 + 5);
    }

    #[test]
    fn other_replies_have_no_data() {
        for (reply, code) in [(Reply::Continue, b'c'), (Reply::Skip, b's'), (Reply::Progress, b'p')]
        {
            assert_eq!(written(&reply), [0, 0, 0, 1, code]);
        }
        assert_eq!(written(&Reply::Agreed(vec![1, 2])), [0, 0, 0, 3, b'O', 1, 2]);
    }
}
