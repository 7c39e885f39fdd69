//! Personal mail: letters, and replies that quote them.

use super::english::{CLOSINGS, DISCLAIMERS, GREETINGS};
use super::entity::{Entity, Transfer, plain, put};
use super::files;
use super::mime::html_text;
use super::people::Person;
use super::prose::{self, Topic, number};
use super::{Draft, Kind, World};
use crate::random::{Random, mix};

/// The longest chain of quoted letters.
const QUOTED: usize = 5;
/// The maximum distance of a reply from its letter.
const BACK: usize = 3_000;

/// A letter, without those it quotes.
struct Letter {
    from: Person,
    to: Person,
    greeting: String,
    /// The text, a line for each paragraph.
    own: Vec<u8>,
    closing: &'static str,
}

/// The properties of a thread of letters.
pub struct Thread {
    pub from: Person,
    pub to: Person,
    pub topic: Topic,
    pub subject: String,
}

/// The message that a reply replies to, if there is one.
pub fn parent(world: &World, n: u64) -> Option<u64> {
    let kind = world.kind(n);
    if !matches!(kind, Kind::Reply | Kind::List) {
        return None;
    }
    let mut random = Random::of_state(mix(world.seed ^ 0x50, n));
    // Half of the messages on lists start a thread.
    if kind == Kind::List && random.chance(50) {
        return None;
    }
    let mut candidates =
        (0..24).map(|_| (n as usize).checked_sub(1 + random.zipf(BACK)).map(|n| n as u64));
    let fits = |of: Kind| match kind {
        Kind::List => of == Kind::List,
        _ => matches!(of, Kind::Letter | Kind::Reply | Kind::Attachments),
    };
    candidates.find_map(|n| n.filter(|&n| fits(world.kind(n))))
}

/// The sender, recipient and topic of letter `n`.
pub fn thread(world: &World, n: u64) -> Thread {
    if let Some(parent) = parent(world, n) {
        let thread = thread(world, parent);
        let subject = match thread.subject.strip_prefix("Re: ") {
            Some(_) => thread.subject,
            None => format!("Re: {}", thread.subject),
        };
        return Thread { from: thread.to, to: thread.from, topic: thread.topic, subject };
    }
    let mut random = Random::of_state(mix(world.seed ^ 0x51, n));
    let (from, to) = world.people.pair(&mut random);
    let topic = prose::topic(random.zipf(2_000));
    let mut subject = Vec::new();
    prose::title(&world.words, &mut random, topic, &mut subject);
    Thread { from, to, topic, subject: super::entity::string(subject) }
}

fn letter(world: &World, n: u64, thread: &Thread) -> Letter {
    let mut random = Random::of_state(mix(world.seed ^ 0x52, n));
    let median = if world.kind(n) == Kind::Reply { 330.0 } else { 620.0 };
    let bytes = random.spread(median, 1.0).clamp(20, 60_000);
    let mut own = Vec::with_capacity(bytes + 300);
    prose::paragraphs(&world.words, &mut random, thread.topic, bytes, &mut own);
    let greeting = format!("{} {},", random.pick(GREETINGS), world.people.name(thread.to).0);
    Letter { from: thread.from, to: thread.to, greeting, own, closing: random.pick(CLOSINGS) }
}

/// The letters in message `n`: its own, and those it quotes.
fn chain(world: &World, n: u64) -> Vec<Letter> {
    let mut letters = Vec::new();
    let mut next = Some(n);
    while let Some(n) = next.filter(|_| letters.len() <= QUOTED) {
        letters.push(letter(world, n, &thread(world, n)));
        next = parent(world, n);
    }
    letters
}

/// The signature that a mail program adds.
fn signature(world: &World, person: Person, to: &mut Vec<u8>) {
    let (first, last) = world.people.name(person);
    let mut random = Random::of_state(mix(world.seed ^ 0x53, person.hash()));
    if random.chance(45) {
        put(to, &[&first, "\n"]);
        return;
    }
    put(to, &["-- \n", &first, " ", &last, "\n"]);
    prose::title(&world.words, &mut random, person.company(), to);
    put(to, &["\n", &world.people.company(person), "\nPhone: +"]);
    number(random.within(10_000_000, 99_999_999) as u64, to);
    put(to, &["\nwww.", &world.people.domain(person), "\n"]);
}

/// The disclaimer of a company, if it has one.
fn disclaimer(world: &World, person: Person, to: &mut Vec<u8>) {
    let number = (person.company() % 10) as usize;
    if let Some(text) = DISCLAIMERS.get(number) {
        put(to, &["\n", &text.replace('%', &world.people.company(person)), "\n"]);
    }
}

/// Writes a letter as plain text, with quoted letters below.
fn text(world: &World, letters: &[Letter], to: &mut Vec<u8>) {
    let Some((first, quoted)) = letters.split_first() else { return };
    put(to, &[&first.greeting, "\n\n"]);
    prose::wrap(&first.own, b"", to);
    put(to, &["\n", first.closing, ",\n"]);
    signature(world, first.from, to);
    if let Some(of) = quoted.first() {
        let (name, last) = world.people.name(of.from);
        let address = world.people.address(of.from);
        let mut below = Vec::new();
        text(world, quoted, &mut below);
        // The mail program of the reply.
        if first.from.hash() % 100 < 55 {
            put(to, &["\n", &name, " ", &last, " <", &address, "> wrote:\n"]);
            for line in below.split(|&b| b == b'\n') {
                to.extend_from_slice(if line.starts_with(b">") { b">" } else { b"> " });
                to.extend_from_slice(line);
                to.push(b'\n');
            }
        } else {
            put(to, &["\n-----Original Message-----\nFrom: ", &name, " ", &last]);
            put(to, &[" [mailto:", &address, "]\n\n"]);
            to.extend_from_slice(&below);
        }
    }
    disclaimer(world, first.from, to);
}

/// Writes the same as HTML.
fn html(world: &World, letters: &[Letter], source: &mut Vec<u8>, spoken: &mut Vec<u8>) {
    let Some((first, quoted)) = letters.split_first() else { return };
    let mut blocks = first.greeting.clone().into_bytes();
    blocks.push(b'\n');
    blocks.extend_from_slice(&first.own);
    put(&mut blocks, &["\n", first.closing, ",\n"]);
    signature(world, first.from, &mut blocks);
    disclaimer(world, first.from, &mut blocks);
    // Some programs write a style into each paragraph.
    let office = first.from.hash() % 100 >= 55;
    for block in blocks.split(|&b| b == b'\n').filter(|block| !block.is_empty()) {
        put(
            source,
            &[if office {
                "<p class=\"MsoNormal\"><span lang=\"EN-US\" style=\"font-size:11.0pt;\
             font-family:&quot;Calibri&quot;,sans-serif\">"
            } else {
                "<div>"
            }],
        );
        html_text(block, source);
        put(source, &[if office { "<o:p></o:p></span></p>\n" } else { "</div>\n" }]);
        spoken.extend_from_slice(block);
        spoken.push(b'\n');
    }
    if !quoted.is_empty() {
        put(source, &["<blockquote type=\"cite\" style=\"margin:0 0 0 .8ex\">\n"]);
        html(world, quoted, source, spoken);
        put(source, &["</blockquote>\n"]);
    }
}

/// Message `n`: a letter, a reply, or a letter with attachments.
pub fn draft(world: &World, n: u64) -> Draft {
    let thread = thread(world, n);
    let letters = chain(world, n);
    let mut random = Random::of_state(mix(world.seed ^ 0x54, n));
    let mut body = Vec::new();
    text(world, &letters, &mut body);
    let mut entity = plain(body, &mut random);
    let person = letters[0].from;
    if person.hash() % 100 < 60 {
        let (mut source, mut spoken) = (Vec::new(), Vec::new());
        put(
            &mut source,
            &["<html><head><style>p.MsoNormal, div {margin:0cm}</style></head>\
                            <body dir=\"ltr\">\n"],
        );
        html(world, &letters, &mut source, &mut spoken);
        put(&mut source, &["</body></html>\n"]);
        let html = Entity::Html { source, spoken, links: vec![], transfer: Transfer::Quoted };
        entity = Entity::Multi("alternative", vec![entity, html]);
        // The company's picture, the same each time.
        if person.company() % 100 < 12 {
            entity = Entity::Multi("related", vec![entity, files::logo(person.company())]);
        }
    }
    if world.kind(n) == Kind::Attachments {
        let mut parts = vec![entity];
        for _ in 0..1 + usize::from(random.chance(25)) + usize::from(random.chance(10)) {
            parts.push(files::attachment(world, &mut random, thread.topic));
        }
        entity = Entity::Multi("mixed", parts);
    }
    let people = world.people;
    let mut recipients = vec![people.address(letters[0].to)];
    while random.chance(22) && recipients.len() < 40 {
        recipients.push(people.address(people.here(&mut random)));
    }
    let sender = people.address(person);
    let (first, last) = people.name(person);
    Draft {
        from: format!("{first} {last}"),
        address: sender.clone(),
        sender,
        authenticated: if person.is_here() { people.address(person) } else { String::new() },
        client: people.client(person, &mut random),
        recipients,
        subject: thread.subject,
        headers: String::new(),
        entity,
    }
}
