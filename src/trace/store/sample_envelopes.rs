//! Generated envelopes like those of an ordinary site, for measurements.

use std::net::IpAddr;

use kit::Random;

use crate::trace::Envelope;

const FIRST: [&str; 20] = [
    "anna", "peter", "maria", "thomas", "julia", "michael", "sabine", "jan", "eva", "david",
    "laura", "martin", "claudia", "stefan", "petra", "lukas", "nina", "paul", "ursula", "tim",
];
const LAST: [&str; 24] = [
    "mueller", "schmidt", "fischer", "weber", "meyer", "wagner", "becker", "hoffmann", "koch",
    "richter", "klein", "wolf", "neumann", "schwarz", "braun", "hofmann", "lange", "krause",
    "lehmann", "koehler", "maier", "walter", "kaiser", "fuchs",
];
const WORDS: [&str; 16] = [
    "haus", "tech", "data", "media", "nord", "city", "werk", "bau", "foto", "shop", "soft",
    "mobil", "reise", "markt", "garten", "kultur",
];

/// A site of 300 people and their correspondents.
pub(super) struct Site {
    random: Random,
    time: i64,
    process: u64,
}

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

fn base62(mut number: u64, width: usize) -> String {
    let mut text = vec![b'0'; width];
    for digit in text.iter_mut().rev() {
        *digit = DIGITS[(number % 62) as usize];
        number /= 62;
    }
    String::from_utf8(text).unwrap()
}

impl Site {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), time: 1_790_000_000, process: 4242 }
    }

    fn name(n: u64) -> String {
        let (first, last) = (FIRST[n as usize % 20], LAST[n as usize / 3 % 24]);
        match n % 3 {
            0 => format!("{first}.{last}"),
            1 => format!("{}{last}", &first[..1]),
            _ => format!("{first}{}", n % 97),
        }
    }

    /// One of `count`, with frequencies that fall by rank (Zipf's law).
    fn ranked(&mut self, count: usize) -> u64 {
        self.random.zipf(count) as u64
    }

    fn local(&mut self) -> String {
        let n = self.ranked(300);
        format!("{}@example.org", Self::name(n * 7 + 1))
    }

    fn domain(n: u64) -> String {
        let end = ["example", "com.example", "de.example", "net.example"][n as usize % 4];
        let big = ["gmail.example", "gmx.example", "web.example", "outlook.example"];
        match n {
            0..4 => big[n as usize].to_owned(),
            _ => {
                let (a, b) = (WORDS[n as usize % 16], WORDS[n as usize / 16 % 16]);
                format!("{a}{b}{}.{end}", if n > 600 { n.to_string() } else { String::new() })
            }
        }
    }

    /// An outside correspondent: the address, and the number of the domain.
    fn outsider(&mut self) -> (String, u64) {
        let n = self.ranked(6000);
        let domain = if n.is_multiple_of(3) { n % 4 } else { n % 1800 };
        (format!("{}@{}", Self::name(n * 13 + 5), Self::domain(domain)), domain)
    }

    /// A server of a domain.
    fn server(&mut self, domain: u64) -> Option<IpAddr> {
        let number = domain.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let nth = self.ranked(if domain < 4 { 40 } else { 2 });
        Some(if number.is_multiple_of(7) {
            let high = 0x2001_0db8_0000_0000 | number >> 40;
            IpAddr::from((u128::from(high) << 64 | u128::from(nth * 977 + 25)).to_be_bytes())
        } else {
            IpAddr::from(((number >> 32) as u32).wrapping_add(nth as u32).to_be_bytes())
        })
    }

    /// The envelope of the next message.
    pub(super) fn envelope(&mut self) -> Envelope {
        self.time += self.random.below(11) as i64;
        self.process += 1 + self.random.below(60) as u64;
        let id = format!(
            "{}-{}-{}",
            base62(self.time as u64 - self.ranked(4), 6),
            base62(2 * 32768 + self.process % (1 << 21), 11),
            base62(self.random.below(1_000_000) as u64, 4)
        );
        let mut envelope = Envelope { time: self.time, id, ..Envelope::default() };
        match self.random.below(100) {
            // A newsletter, with a different sender for each recipient.
            0..15 => {
                let (to, sender) = (self.local(), self.ranked(60));
                let tag = to.replace('@', "=");
                let number = self.random.below(90_000_000) + 10_000_000;
                let domain = Self::domain(200 + sender);
                envelope.sender = format!("bounces+{number}-{tag}@em{}.{domain}", sender % 9000);
                envelope.client = self.server(200 + sender);
                envelope.recipients.push(to);
            }
            15..30 => {
                let service = self.ranked(150);
                envelope.sender = format!("noreply@{}", Self::domain(300 + service));
                envelope.client = self.server(300 + service);
                envelope.recipients.push(self.local());
            }
            30..55 => {
                let (sender, domain) = self.outsider();
                envelope.sender = sender;
                envelope.client = self.server(domain);
                envelope.recipients.push(self.local());
            }
            55..75 => {
                envelope.sender = self.local();
                envelope.recipients.push(self.outsider().0);
                self.submit(&mut envelope);
            }
            75..92 => {
                envelope.sender = self.local();
                envelope.recipients.push(self.local());
                self.submit(&mut envelope);
            }
            92..96 => {
                envelope.client = self.server(0);
                envelope.recipients.push(self.local());
            }
            _ => {
                envelope.sender = self.local();
                let count = 2 + self.random.below(12);
                envelope.recipients = (0..count).map(|_| self.local()).collect();
                self.submit(&mut envelope);
            }
        }
        envelope
    }

    /// Marks an envelope as submitted by a local user.
    fn submit(&mut self, envelope: &mut Envelope) {
        envelope.authenticated = match self.random.below(3) {
            0 => envelope.sender.clone(),
            _ => envelope.sender.split('@').next().unwrap().to_owned(),
        };
        let home = [203, 0, self.ranked(8) as u8, self.ranked(250) as u8];
        envelope.client = Some(IpAddr::from(home));
    }
}
