//! What owners do that looks like a theft, generated: mail that their accounts have not sent before.

use crate::habits::Message;
use crate::random::Random;

/// Something that an owner does.
#[derive(Clone, Copy, Debug)]
pub struct Innocent {
    /// What.
    pub name: &'static str,
    /// The account does nothing else: it begins with this.
    pub is_own_account: bool,
    /// The messages have a header that says that a program wrote them, or that a list sends them.
    pub is_marked: bool,
    write: fn(&mut Writer<'_>),
}

/// All.
pub const INNOCENTS: [Innocent; 14] = [
    added("Christmas cards: 60 to known people, 8 to others, one each minute", |writer| {
        let mut to = writer.known(60);
        to.extend(writer.strangers(8));
        writer.shuffle(&mut to);
        writer.each(to, 60);
    }),
    added("the same as one message", |writer| {
        let mut to = writer.known(60);
        to.extend(writer.strangers(8));
        writer.send(to, 60);
    }),
    added("an announcement to 200 others, one message", |writer| {
        let to = writer.strangers(200);
        writer.send(to, 60);
    }),
    added("a mail merge to 20 others, one each 5 s", |writer| {
        let to = writer.strangers(20);
        writer.each(to, 5);
    }),
    added("a mail merge to 150 others, one each 5 s", |writer| {
        let to = writer.strangers(150);
        writer.each(to, 5);
    }),
    added(
        "an address book sync: to 100 known people and 50 forgotten ones, one each 2 s",
        |writer| {
            let mut to = writer.known(100);
            to.extend(writer.strangers(50));
            writer.shuffle(&mut to);
            writer.each(to, 2);
        },
    ),
    added("a vacation reply: 14 days, 10 a day, half of them to others", vacation),
    marked(added("the same with Auto-Submitted", vacation)),
    own("a newsletter: each week to the same 500, one a second, 8 weeks", newsletter),
    marked(own("the same with List-Id", newsletter)),
    own("a newsletter in messages to 50 each", |writer| {
        let to = writer.strangers(500);
        for _ in 0..8 {
            to.chunks(50).for_each(|some| writer.send(some.to_vec(), 10));
            writer.pause(7 * DAY);
        }
    }),
    own("a ticket system: each day 40 tickets of others, 3 mails each, 30 days", tickets),
    marked(own("the same with Auto-Submitted", tickets)),
    own("a new employee: 60 days, each day 3 others and 12 mails to those known", |writer| {
        let mut known = writer.strangers(5);
        for _ in 0..60 {
            for n in 0..15 {
                let to = match n % 5 {
                    0 => writer.strangers(1),
                    _ => vec![writer.pick(&known)],
                };
                known.extend(&to);
                let gap = writer.random.within(300, 3000) as i64;
                writer.send(to, gap);
            }
            writer.until_next_day();
        }
    }),
];

const fn added(name: &'static str, write: fn(&mut Writer<'_>)) -> Innocent {
    Innocent { name, is_own_account: false, is_marked: false, write }
}

const fn own(name: &'static str, write: fn(&mut Writer<'_>)) -> Innocent {
    Innocent { is_own_account: true, ..added(name, write) }
}

const fn marked(one: Innocent) -> Innocent {
    Innocent { is_marked: true, ..one }
}

impl Innocent {
    /// The messages of an account that has written to `known` before, the last of them most often
    /// in the end; always the same for a seed. The first is sent at `start`.
    pub fn messages(&self, start: i64, network: u64, known: &[u64], seed: u64) -> Vec<Message> {
        let random = Random::new(seed);
        let mut writer = Writer { random, at: start, network, known, all: Vec::new() };
        (self.write)(&mut writer);
        writer.all
    }
}

fn vacation(writer: &mut Writer<'_>) {
    for _ in 0..14 {
        for n in 0..10 {
            let mut to = writer.known(1);
            if n % 2 == 0 || to.is_empty() {
                to = writer.strangers(1);
            }
            let gap = writer.random.within(60, 7200) as i64;
            writer.send(to, gap);
        }
        writer.until_next_day();
    }
}

fn newsletter(writer: &mut Writer<'_>) {
    let to = writer.strangers(500);
    for _ in 0..8 {
        writer.each(to.clone(), 1);
        writer.pause(7 * DAY);
    }
}

fn tickets(writer: &mut Writer<'_>) {
    for _ in 0..30 {
        let mut mails: Vec<u64> = writer.strangers(40).iter().flat_map(|&one| [one; 3]).collect();
        writer.shuffle(&mut mails);
        for to in mails {
            let gap = writer.random.within(30, 500) as i64;
            writer.send(vec![to], gap);
        }
        writer.until_next_day();
    }
}

const DAY: i64 = 86_400;

/// Writes the messages of one who does something.
struct Writer<'a> {
    random: Random,
    at: i64,
    network: u64,
    known: &'a [u64],
    all: Vec<Message>,
}

impl Writer<'_> {
    /// So many different recipients that the account has written to lately, or as many as there
    /// are.
    fn known(&mut self, count: usize) -> Vec<u64> {
        let mut found: Vec<u64> = Vec::new();
        for one in self.known.iter().rev() {
            if found.len() < 2 * count && !found.contains(one) {
                found.push(*one);
            }
        }
        self.shuffle(&mut found);
        found.truncate(count);
        found
    }

    /// So many that it has not written to.
    fn strangers(&mut self, count: usize) -> Vec<u64> {
        (0..count).map(|_| self.random.bits()).collect()
    }

    fn pick(&mut self, of: &[u64]) -> u64 {
        of[self.random.below(of.len())]
    }

    fn shuffle(&mut self, all: &mut [u64]) {
        for last in (1..all.len()).rev() {
            all.swap(last, self.random.below(last + 1));
        }
    }

    /// Sends a message, and the next one so many seconds later.
    fn send(&mut self, recipients: Vec<u64>, gap: i64) {
        self.all.push(Message { at: self.at, network: self.network, recipients });
        self.at += gap;
    }

    /// Sends a message to each.
    fn each(&mut self, all: Vec<u64>, gap: i64) {
        all.into_iter().for_each(|one| self.send(vec![one], gap));
    }

    fn pause(&mut self, seconds: i64) {
        self.at += seconds;
    }

    fn until_next_day(&mut self) {
        self.at = (self.at / DAY + 1) * DAY + 8 * 3600;
    }
}
