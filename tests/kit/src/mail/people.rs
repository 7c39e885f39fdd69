//! Senders, recipients, clients, and Exim's ids.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use super::english::{FIRST, LAST};
use super::prose::number;
use super::words::{Words, made_up};
use crate::random::{Random, mix};

/// Domains of the mail server itself, and their users.
const HOME_DOMAINS: usize = 3;
const HOME_PEOPLE: usize = 4_000;
/// Other domains; few are frequent.
const DOMAINS: usize = 20_000;
/// The maximum number of people in one of them.
const PEOPLE: usize = 3_000;

/// A sender or recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Person {
    /// A home domain if below [`HOME_DOMAINS`].
    domain: u32,
    number: u32,
}

/// All people of a seed.
#[derive(Clone, Copy)]
pub struct People {
    pub seed: u64,
}

impl Person {
    /// A number specific to this person.
    pub fn hash(self) -> u64 {
        mix(u64::from(self.domain), u64::from(self.number))
    }

    /// A number specific to their company.
    pub fn company(self) -> u64 {
        mix(u64::from(self.domain), u64::MAX)
    }

    pub fn is_here(self) -> bool {
        (self.domain as usize) < HOME_DOMAINS
    }
}

impl People {
    /// A local person.
    pub fn here(self, random: &mut Random) -> Person {
        let domain = random.zipf(HOME_DOMAINS) as u32;
        Person { domain, number: random.zipf(HOME_PEOPLE) as u32 }
    }

    /// A person elsewhere.
    pub fn elsewhere(self, random: &mut Random) -> Person {
        let rank = random.zipf(DOMAINS);
        let number = random.zipf(PEOPLE / (rank / 8 + 1) + 2) as u32;
        Person { domain: (HOME_DOMAINS + rank) as u32, number }
    }

    /// A sender and a recipient, one of whom is local.
    pub fn pair(self, random: &mut Random) -> (Person, Person) {
        match random.below(10) {
            0..5 => (self.elsewhere(random), self.here(random)),
            5..8 => (self.here(random), self.elsewhere(random)),
            _ => (self.here(random), self.here(random)),
        }
    }

    /// The first and the last name.
    pub fn name(self, person: Person) -> (String, String) {
        let mut random = Random::of_state(mix(self.seed ^ 1, person.hash()));
        static NAMES: LazyLock<[Vec<&str>; 2]> =
            LazyLock::new(|| [FIRST, LAST].map(|names| names.split(' ').collect()));
        let [first, last] = &*NAMES;
        let own = random.chance(50);
        let last = if own { made_up(&mut random, 2_000) } else { random.pick(last).to_owned() };
        (capital(random.pick(first)), capital(&last))
    }

    /// The name of the company.
    pub fn company(self, person: Person) -> String {
        let mut random = Random::of_state(mix(self.seed ^ 2, u64::from(person.domain)));
        let second = ["Systems", "Group", "Software", "Media", "Partners", "University", "Shop"];
        format!("{} {}", capital(&made_up(&mut random, 2_000)), random.pick(&second))
    }

    /// The domain of the addresses.
    pub fn domain(self, person: Person) -> String {
        let mut random = Random::of_state(mix(self.seed ^ 3, u64::from(person.domain)));
        let tails = ["mail", "group", "systems", "online", "shop", "web", "tech", "labs", "media"];
        let mut name = made_up(&mut random, 2_000);
        if random.chance(40) {
            name = format!("{name}-{}", random.pick(&tails));
        }
        format!("{name}{}.example", person.domain % 97)
    }

    /// The address.
    pub fn address(self, person: Person) -> String {
        let (first, last) = self.name(person);
        let (first, last) = (first.to_lowercase(), last.to_lowercase());
        let mut local = match person.company() % 3 {
            0 => format!("{first}.{last}"),
            1 => format!("{}{last}", &first[..1]),
            _ => format!("{first}_{}", &last[..1]),
        };
        // Some have several addresses.
        if person.number % 4 == 3 {
            local.push_str(&(person.number % 90 + 10).to_string());
        }
        format!("{local}@{}", self.domain(person))
    }

    /// An address from which a company sends bulk mail.
    pub fn bulk(self, sender: Person, random: &mut Random) -> String {
        let domain = self.domain(sender);
        match sender.company() % 4 {
            // Each message has its own bounce address.
            0 | 1 => {
                let token = base62(random.bits(), 10);
                format!("bounce+{token}-{}@em{}.{domain}", random.below(100_000), random.below(4))
            }
            2 => format!("newsletter@{domain}"),
            _ => format!("no-reply@{domain}"),
        }
    }

    /// The client's address.
    pub fn client(self, person: Person, random: &mut Random) -> IpAddr {
        // A local person has a few addresses, a company a few hosts.
        let place = if person.is_here() { person.hash() } else { person.company() };
        let bits = mix(place, random.zipf(4) as u64);
        if bits % 10 < 7 {
            IpAddr::V4(Ipv4Addr::from_bits(0x0b00_0000 | (bits >> 40) as u32))
        } else {
            let network = 0x2001_0db8_u128 << 96 | u128::from(mix(place, 9) >> 32) << 64;
            IpAddr::V6(Ipv6Addr::from_bits(network | u128::from(bits >> 32)))
        }
    }
}

/// An id as Exim creates it since 4.97, with 23 characters: the time, the
/// process, and microseconds.
pub fn exim_id(time: i64, micros: u32, random: &mut Random) -> String {
    let process = random.within(600, 4_194_303) as u64;
    format!("{}-{}-{}", base62(time as u64, 6), base62(process, 11), base62(u64::from(micros), 4))
}

/// The last digits of a number in base 62.
pub fn base62(mut number: u64, digits: usize) -> String {
    const DIGITS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut text = vec![b'0'; digits];
    for digit in text.iter_mut().rev() {
        *digit = DIGITS[(number % 62) as usize];
        number /= 62;
    }
    String::from_utf8(text).unwrap()
}

pub fn capital(word: &str) -> String {
    word[..1].to_uppercase() + &word[1..]
}

/// Writes a link as in bulk mail: a large part identifies the recipient.
pub fn link(words: &Words, domain: &str, random: &mut Random, to: &mut Vec<u8>) {
    to.extend_from_slice(b"https://");
    to.extend_from_slice(random.pick(&["www.", "click.", "links.", ""]).as_bytes());
    to.extend_from_slice(domain.as_bytes());
    for _ in 0..random.within(1, 3) {
        to.push(b'/');
        to.extend_from_slice(words.name(random.bits()).as_bytes());
    }
    match random.below(4) {
        0 => {}
        1 => {
            to.extend_from_slice(b"?id=");
            number(random.bits() % 1_000_000, to);
        }
        _ => {
            to.extend_from_slice(b"/");
            for _ in 0..random.within(1, 4) {
                to.extend_from_slice(base62(random.bits(), 11).as_bytes());
            }
        }
    }
}
