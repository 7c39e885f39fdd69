//! Generated mail for tests and benchmarks, as a mail server sees it:
//! reproducible for each seed, in any quantity.
//!
//! Each message comes with its envelope and its plain contents, so that a test
//! can cut excerpts from it. Message `n` depends only on the seed and on `n`,
//! and may quote, reply to or repeat earlier messages.
//!
//! | kind | share | contents |
//! |---|---:|---|
//! | `Letter` | 11 % | personal, half with less than 620 bytes of new text;
//! signatures, disclaimers; most also as HTML |
//! | `Reply` | 17 % | replies to an earlier message, which they quote
//! completely, up to five deep, with `>` or below a line |
//! | `Newsletter` | 14 % | an issue for several readers, text and HTML, with
//! different links |
//! | `Notice` | 18 % | from 3,000 templates, with other names and numbers each
//! time |
//! | `List` | 10 % | on one of 150 lists, comments between quoted lines, every
//! sixth with a patch, a footer |
//! | `Attachments` | 6 % | letters with PDF, docx, JPEG, CSV, JSON, XML, RTF or
//! text files, half of the binary ones above 45 KB |
//! | `Report` | 1.5 % | long text or log lines, half above 14 KB |
//! | `Forward` | 2 % | another message as message/rfc822 |
//! | `Foreign` | 4 % | German, French, Russian, Japanese, Chinese, in their
//! usual charsets |
//! | `Bounce` | 1.5 % | delivery reports |
//! | `Merge` | 5 % | serial letters: those of a series differ in a name, or in one
//! digit |
//! | `OneLine` | 6 % | replies of one line that quote nothing |
//! | `Broken` | 4 % | wrong or unknown charsets, malformed quoted-printable,
//! tables that are wrongly nested |
//!
//! Sizes are log-normal, as Y. Matsubara found them in the logs of a university
//! ("Fluctuations in email size", Eur. Phys. J. Plus 132, 2017; sums of
//! log-normal-like distributions, one a kind of content). Half of the messages
//! have more than about 5 KB with their headers, against 4 KB in the figures
//! that J. Buchner used in 2009 ("Modelling realistic email traffic") and
//! 3.5 KB in SpamAssassin's public corpus of 2002-2005; mail has grown HTML
//! since. Words follow that corpus: see [`words::Words`].

mod bulk;
mod english;
pub mod entity;
mod files;
mod foreign;
mod letters;
mod lists;
mod mime;
mod odd;
mod other;
mod people;
mod prose;
pub mod words;

use std::net::IpAddr;

use crate::random::{Random, mix};
pub use entity::Truth;
use entity::{Entity, put};
pub use people::exim_id;
use people::{People, base62};
use words::Words;

/// The time of the first message: 2026-01-01.
const START: i64 = 1_767_225_600;
/// Microseconds between messages: a million in 90 days.
const BETWEEN: u64 = 7_776_000;

/// All mail of a seed.
pub struct World {
    seed: u64,
    words: Words,
    people: People,
}

/// What the server knows of a message, by the names that the trace store has for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    pub time: i64,
    pub id: String,
    pub sender: String,
    pub recipients: Vec<String>,
    pub client: IpAddr,
    pub authenticated: String,
}

/// A message.
#[derive(Clone, Debug)]
pub struct Mail {
    pub kind: Kind,
    pub envelope: Envelope,
    /// The header and body with line feeds.
    pub raw: Vec<u8>,
    /// Its contents.
    pub truths: Vec<Truth>,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Letter,
    Reply,
    Newsletter,
    Notice,
    List,
    Attachments,
    Report,
    Forward,
    Foreign,
    Bounce,
    Merge,
    OneLine,
    Broken,
}

/// Each kind, and its share in thousandths.
pub const SHARES: &[(Kind, u64)] = &[
    (Kind::Letter, 110),
    (Kind::Reply, 170),
    (Kind::Newsletter, 140),
    (Kind::Notice, 180),
    (Kind::List, 100),
    (Kind::Attachments, 60),
    (Kind::Report, 15),
    (Kind::Forward, 20),
    (Kind::Foreign, 40),
    (Kind::Bounce, 15),
    (Kind::Merge, 50),
    (Kind::OneLine, 60),
    (Kind::Broken, 40),
];

/// A message before it is written.
struct Draft {
    /// The author's name and address in the header.
    from: String,
    address: String,
    sender: String,
    recipients: Vec<String>,
    authenticated: String,
    client: IpAddr,
    subject: String,
    /// More header lines.
    headers: String,
    entity: Entity,
}

impl World {
    /// Always the same for a seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, words: Words::new(seed), people: People { seed } }
    }

    /// The kind of message `n`.
    pub fn kind(&self, n: u64) -> Kind {
        let mut left = mix(self.seed ^ 0x10, n) % 1_000;
        for &(kind, share) in SHARES {
            if left < share {
                return kind;
            }
            left -= share;
        }
        Kind::Letter
    }

    /// Message `n`.
    pub fn mail(&self, n: u64) -> Mail {
        self.of_kind(self.kind(n), n)
    }

    /// A message of a given kind. It is a reply only if message `n` is one.
    pub fn of_kind(&self, kind: Kind, n: u64) -> Mail {
        let draft = match kind {
            Kind::Letter | Kind::Reply | Kind::Attachments => letters::draft(self, n),
            Kind::Newsletter => bulk::newsletter(self, n),
            Kind::Notice => bulk::notice(self, n),
            Kind::List => lists::post(self, n),
            Kind::Report => lists::report(self, n),
            Kind::Forward => other::forward(self, n),
            Kind::Foreign => foreign::draft(self, n),
            Kind::Bounce => other::bounce(self, n),
            Kind::Merge => odd::merge(self, n),
            Kind::OneLine => odd::one_line(self, n),
            Kind::Broken => odd::broken(self, n),
        };
        self.write(kind, n, draft)
    }

    /// A letter with a compressed file of so many bytes.
    pub fn with_file(&self, n: u64, bytes: usize) -> Mail {
        let mut draft = letters::draft(self, n);
        draft.entity = Entity::Multi("mixed", vec![draft.entity, files::large(bytes)]);
        self.write(Kind::Attachments, n, draft)
    }

    /// A report of so many bytes of text.
    pub fn with_text(&self, n: u64, bytes: usize) -> Mail {
        self.write(Kind::Report, n, lists::report_of(self, n, bytes))
    }

    /// The time of message `n`; times ascend.
    fn time(&self, n: u64) -> i64 {
        START + (self.micros(n) / 1_000_000) as i64
    }

    fn micros(&self, n: u64) -> u64 {
        n * BETWEEN + mix(self.seed ^ 0x11, n) % BETWEEN
    }

    fn write(&self, kind: Kind, n: u64, draft: Draft) -> Mail {
        let mut random = Random::of_state(mix(self.seed ^ 0x12, n));
        let (time, micros) = (self.time(n), (self.micros(n) % 1_000_000) as u32);
        let mut raw = Vec::with_capacity(8_192);
        headers(&draft, time, &mut random, &mut raw);
        let mut truths = vec![Truth::Subject(draft.subject), Truth::Name(draft.from)];
        draft.entity.write(&mut random, &mut raw, &mut truths);
        let envelope = Envelope {
            time,
            id: exim_id(time, micros, &mut random),
            sender: draft.sender,
            recipients: draft.recipients,
            client: draft.client,
            authenticated: draft.authenticated,
        };
        Mail { kind, envelope, raw, truths }
    }
}

/// Writes the header of a message that has passed several hosts, without the
/// fields of its body.
fn headers(draft: &Draft, time: i64, random: &mut Random, to: &mut Vec<u8>) {
    let date = date(time);
    let host = draft.address.rsplit('@').next().unwrap_or_default();
    for hop in 0..random.within(1, 3) {
        let hop = ["out", "relay", "mx-in"][hop];
        put(to, &["Received: from ", hop, ".", host, " (", hop, ".", host, " [10.0.0.7])\n\tby "]);
        put(to, &["mx.", host, " (Postfix) with ESMTPS id ", &base62(random.bits(), 10)]);
        put(to, &["\n\tfor <", draft.recipients.first().map_or("", |to| to)]);
        put(to, &[">; ", &date, " +0000\n"]);
    }
    if random.chance(75) {
        put(to, &["DKIM-Signature: v=1; a=rsa-sha256; c=relaxed/relaxed; d=", host]);
        put(to, &["; s=s1;\n\th=from:to:subject:date:message-id:mime-version;\n\tbh="]);
        let mut bytes = [0; 224];
        bytes.chunks_mut(8).for_each(|c| c.copy_from_slice(&random.bits().to_le_bytes()));
        mime::base64(&bytes[..32], to);
        put(to, &["\tb="]);
        for (n, line) in bytes[32..].chunks(48).enumerate() {
            put(to, &[if n > 0 { "\t " } else { "" }]);
            mime::base64(line, to);
        }
    }
    put(to, &["From: "]);
    mime::header_text(&draft.from, to);
    put(to, &[" <", &draft.address, ">\nTo: ", &draft.recipients.join(",\n ")]);
    put(to, &["\nSubject: "]);
    mime::header_text(&draft.subject, to);
    put(to, &["\nDate: ", &date, " +0000\nMessage-ID: <", &base62(random.bits(), 11), "@", host]);
    put(to, &[">\n", &draft.headers]);
    if random.chance(60) {
        put(to, &["X-Mailer: ", random.pick(&["Mailer 16.0", "Thunderbird", "iPhone Mail"]), "\n"]);
    }
    put(to, &["MIME-Version: 1.0\n"]);
}

/// A date as in headers, without the zone.
fn date(time: i64) -> String {
    let days = time.div_euclid(86_400);
    let second = time.rem_euclid(86_400);
    // Howard Hinnant's civil_from_days.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let year = year + era * 400 + i64::from(month >= 10);
    let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][days.rem_euclid(7) as usize];
    let months =
        ["Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan", "Feb"];
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let month = months[month as usize];
    format!("{weekday}, {day} {month} {year} {hour:02}:{minute:02}:{second:02}")
}
