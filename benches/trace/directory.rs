//! Real mail: a directory of maildirs, mbox files and single messages.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use exirate::trace::Envelope;
use mail_parser::{Address, HeaderValue, MessageParser};

use kit::mail::exim_id;
use kit::random::{Random, mix};

/// Up to about `limit` messages below a directory, in an order that mixes its
/// files, with envelopes made from their headers.
pub(crate) fn messages(directory: &Path, limit: usize) -> Vec<(Envelope, Vec<u8>)> {
    let mut files = Vec::new();
    find(directory, &mut files);
    files.sort();
    let mut random = Random::new(17);
    for n in (1..files.len()).rev() {
        files.swap(n, random.below(n + 1));
    }
    let mut messages = Vec::new();
    for file in files {
        if messages.len() >= limit + limit / 5 {
            break;
        }
        let Ok(bytes) = std::fs::read(&file) else { continue };
        if bytes.starts_with(b"From ") {
            messages.extend(mbox(&bytes).into_iter().map(<[u8]>::to_vec));
        } else if !bytes.is_empty() {
            messages.push(bytes);
        }
    }
    let number = |(n, raw): (usize, Vec<u8>)| (envelope(n, &raw), raw);
    let messages: Vec<_> = messages.into_iter().enumerate().map(number).collect();
    assert!(messages.len() > 10, "there is no mail in {}", directory.display());
    messages
}

fn find(directory: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => find(&entry.path(), files),
            Ok(kind) if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
}

/// The messages of an mbox file, without their `From ` lines.
fn mbox(bytes: &[u8]) -> Vec<&[u8]> {
    let mut starts: Vec<usize> = vec![0];
    starts.extend(memchr::memmem::find_iter(bytes, b"\n\nFrom ").map(|at| at + 2));
    starts.push(bytes.len());
    let body = |span: &[usize]| {
        let message = &bytes[span[0]..span[1]];
        let line = memchr::memchr(b'\n', message).map_or(message.len(), |end| end + 1);
        &message[line..]
    };
    starts.windows(2).map(body).collect()
}

/// An envelope as a server may have seen it: ids and clients are invented.
fn envelope(n: usize, raw: &[u8]) -> Envelope {
    let mut random = Random::new(mix(n as u64, 3));
    let parsed = MessageParser::default().parse_headers(raw);
    let addresses = |header: Option<&Address<'_>>| -> Vec<String> {
        let all = header.into_iter().flat_map(|address| address.iter());
        all.filter_map(|address| address.address.as_ref().map(ToString::to_string)).collect()
    };
    let (mut sender, mut recipients, mut time) = (String::new(), Vec::new(), 0);
    if let Some(parsed) = &parsed {
        sender = match parsed.return_path() {
            HeaderValue::Text(path) => path.to_string(),
            _ => addresses(parsed.from()).into_iter().next().unwrap_or_default(),
        };
        recipients = addresses(parsed.to());
        time = parsed.date().map_or(0, |date| date.to_timestamp());
    }
    Envelope {
        time,
        // Exim takes both from one clock.
        id: exim_id(time.max(0), random.below(1_000_000) as u32, &mut random),
        sender,
        recipients,
        client: Some(IpAddr::from((0x0b00_0000 + random.zipf(100_000) as u32).to_be_bytes())),
        authenticated: String::new(),
        partial: false,
    }
}
