//! Who writes to whom, from where, and what Exim calls it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use super::english::{FIRST, LAST};
use super::prose::number;
use super::random::{Random, mix};
use super::words::{Words, made_up};

/// Domains of the mail server itself, and people at them.
const HOME_DOMAINS: usize = 3;
const HOME_PEOPLE: usize = 4_000;
/// Domains elsewhere; few are common.
const DOMAINS: usize = 20_000;
/// The most people at one of them.
const PEOPLE: usize = 3_000;

/// Someone who writes or gets mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Person {
    /// Below [`HOME_DOMAINS`]: here.
    domain: u32,
    number: u32,
}

/// Everyone, by a seed.
#[derive(Clone, Copy)]
pub(crate) struct People {
    pub(crate) seed: u64,
}

impl Person {
    /// A number that is this person's own.
    pub(crate) fn hash(self) -> u64 {
        mix(u64::from(self.domain), u64::from(self.number))
    }

    /// A number that is their company's own.
    pub(crate) fn company(self) -> u64 {
        mix(u64::from(self.domain), u64::MAX)
    }

    pub(crate) fn is_here(self) -> bool {
        (self.domain as usize) < HOME_DOMAINS
    }
}

impl People {
    /// Someone here.
    pub(crate) fn here(self, random: &mut Random) -> Person {
        let domain = random.zipf(HOME_DOMAINS) as u32;
        Person { domain, number: random.zipf(HOME_PEOPLE) as u32 }
    }

    /// Someone elsewhere.
    pub(crate) fn elsewhere(self, random: &mut Random) -> Person {
        let rank = random.zipf(DOMAINS);
        let number = random.zipf(PEOPLE / (rank / 8 + 1) + 2) as u32;
        Person { domain: (HOME_DOMAINS + rank) as u32, number }
    }

    /// Someone who writes, and someone who gets it: one of them is here.
    pub(crate) fn pair(self, random: &mut Random) -> (Person, Person) {
        match random.below(10) {
            0..5 => (self.elsewhere(random), self.here(random)),
            5..8 => (self.here(random), self.elsewhere(random)),
            _ => (self.here(random), self.here(random)),
        }
    }

    /// The first and the last name.
    pub(crate) fn name(self, person: Person) -> (String, String) {
        let mut random = Random::new(mix(self.seed ^ 1, person.hash()));
        static NAMES: LazyLock<[Vec<&str>; 2]> =
            LazyLock::new(|| [FIRST, LAST].map(|names| names.split(' ').collect()));
        let [first, last] = &*NAMES;
        let own = random.chance(50);
        let last = if own { made_up(&mut random, 2_000) } else { random.pick(last).to_owned() };
        (capital(random.pick(first)), capital(&last))
    }

    /// The name of the company.
    pub(crate) fn company(self, person: Person) -> String {
        let mut random = Random::new(mix(self.seed ^ 2, u64::from(person.domain)));
        let second = ["Systems", "Group", "Software", "Media", "Partners", "University", "Shop"];
        format!("{} {}", capital(&made_up(&mut random, 2_000)), random.pick(&second))
    }

    /// The domain of the addresses.
    pub(crate) fn domain(self, person: Person) -> String {
        let mut random = Random::new(mix(self.seed ^ 3, u64::from(person.domain)));
        let tails = ["mail", "group", "systems", "online", "shop", "web", "tech", "labs", "media"];
        let mut name = made_up(&mut random, 2_000);
        if random.chance(40) {
            name = format!("{name}-{}", random.pick(&tails));
        }
        format!("{name}{}.example", person.domain % 97)
    }

    /// The address.
    pub(crate) fn address(self, person: Person) -> String {
        let (first, last) = self.name(person);
        let (first, last) = (first.to_lowercase(), last.to_lowercase());
        let mut local = match person.company() % 3 {
            0 => format!("{first}.{last}"),
            1 => format!("{}{last}", &first[..1]),
            _ => format!("{first}_{}", &last[..1]),
        };
        // Of some there are several.
        if person.number % 4 == 3 {
            local.push_str(&(person.number % 90 + 10).to_string());
        }
        format!("{local}@{}", self.domain(person))
    }

    /// An address that a company sends its bulk mail from.
    pub(crate) fn bulk(self, sender: Person, random: &mut Random) -> String {
        let domain = self.domain(sender);
        match sender.company() % 4 {
            // The bounces of every message come back to an address of its own.
            0 | 1 => {
                let token = base62(random.next(), 10);
                format!("bounce+{token}-{}@em{}.{domain}", random.below(100_000), random.below(4))
            }
            2 => format!("newsletter@{domain}"),
            _ => format!("no-reply@{domain}"),
        }
    }

    /// From where someone's mail comes.
    pub(crate) fn client(self, person: Person, random: &mut Random) -> IpAddr {
        // A person here has a few addresses of their own, a company a few hosts.
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

/// An id as Exim gives it out since 4.97, of 23 characters: the time, the
/// number of the process, and microseconds.
pub(crate) fn exim_id(time: i64, micros: u32, random: &mut Random) -> String {
    let process = random.within(600, 4_194_303) as u64;
    format!("{}-{}-{}", base62(time as u64, 6), base62(process, 11), base62(u64::from(micros), 4))
}

/// The last digits of a number in base 62.
pub(crate) fn base62(mut number: u64, digits: usize) -> String {
    const DIGITS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut text = vec![b'0'; digits];
    for digit in text.iter_mut().rev() {
        *digit = DIGITS[(number % 62) as usize];
        number /= 62;
    }
    String::from_utf8(text).unwrap()
}

pub(crate) fn capital(word: &str) -> String {
    word[..1].to_uppercase() + &word[1..]
}

/// Writes a link as it stands in bulk mail: much of it says who clicked.
pub(crate) fn link(words: &Words, domain: &str, random: &mut Random, to: &mut Vec<u8>) {
    to.extend_from_slice(b"https://");
    to.extend_from_slice(random.pick(&["www.", "click.", "links.", ""]).as_bytes());
    to.extend_from_slice(domain.as_bytes());
    for _ in 0..random.within(1, 3) {
        to.push(b'/');
        to.extend_from_slice(words.name(random.next()).as_bytes());
    }
    match random.below(4) {
        0 => {}
        1 => {
            to.extend_from_slice(b"?id=");
            number(random.next() % 1_000_000, to);
        }
        _ => {
            to.extend_from_slice(b"/");
            for _ in 0..random.within(1, 4) {
                to.extend_from_slice(base62(random.next(), 11).as_bytes());
            }
        }
    }
}
