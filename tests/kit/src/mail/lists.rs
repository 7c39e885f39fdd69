//! Messages on mailing lists, and long reports.

use super::entity::{plain, put};
use super::letters::{parent, thread};
use super::people::{Person, base62};
use super::prose::{self, Topic, number};
use super::{Draft, World};
use crate::random::{Random, mix};

/// The number of mailing lists.
const LISTS: usize = 150;

/// Message `n` on a list: a text, perhaps with a patch, between quoted parts of
/// the message it replies to.
pub fn post(world: &World, n: u64) -> Draft {
    let mut random = Random::of_state(mix(world.seed ^ 0x20, n));
    let root = std::iter::successors(Some(n), |&n| parent(world, n)).last().unwrap_or(n);
    let list = Random::of_state(mix(world.seed ^ 0x21, root)).zipf(LISTS) as u64;
    let mut shared = Random::of_state(mix(world.seed ^ 0x22, list));
    let home = world.people.elsewhere(&mut shared);
    let topic = prose::topic(30_000 + list as usize);
    let domain = world.people.domain(home);
    let name = world.words.name(shared.bits());

    let author = author(world, n);
    let (first, last) = world.people.name(author);
    let mut text = Vec::new();
    if let Some(parent) = parent(world, n) {
        let (quoted_first, quoted_last) = world.people.name(self::author(world, parent));
        put(&mut text, &["On ", &super::date(world.time(parent)), ", "]);
        put(&mut text, &[&quoted_first, " ", &quoted_last, " wrote:\n"]);
        // Most replies omit the parts that they do not comment on.
        let thoughts = thoughts(world, parent, topic);
        for paragraph in thoughts.split(|&b| b == b'\n') {
            if random.chance(70) {
                prose::wrap(paragraph, b"> ", &mut text);
                put(&mut text, &["\n"]);
            }
            if random.chance(40) {
                let mut own = Vec::new();
                let bytes = random.spread(200.0, 0.9).clamp(20, 5_000);
                prose::paragraphs(&world.words, &mut random, topic, bytes, &mut own);
                prose::wrap(&own, b"", &mut text);
                put(&mut text, &["\n"]);
            }
        }
    } else {
        put(&mut text, &["Hi,\n\n"]);
    }
    prose::wrap(&thoughts(world, n, topic), b"", &mut text);
    if random.chance(18) {
        put(&mut text, &["\n---\n"]);
        patch(world, &mut random, topic, &mut text);
    }
    put(&mut text, &["\n-- \n", &first, " ", &last, "\n"]);
    put(&mut text, &["\n_______________________________________________\n", name]);
    put(&mut text, &[" mailing list\n", name, "@", &domain, "\nhttps://lists.", &domain]);
    put(&mut text, &["/mailman/listinfo/", name, "\n"]);

    let recipients = if random.chance(80) { 1 } else { random.within(2, 15) };
    Draft {
        from: format!("{first} {last}"),
        address: world.people.address(author),
        sender: format!("{name}-bounces@{domain}"),
        authenticated: String::new(),
        client: world.people.client(home, &mut random),
        recipients: (0..recipients)
            .map(|_| world.people.address(world.people.here(&mut random)))
            .collect(),
        subject: subject(name, thread(world, n).subject),
        headers: format!(
            "List-Id: <{name}.{domain}>\nList-Post: <mailto:{name}@{domain}>\n\
             List-Unsubscribe: <https://lists.{domain}/mailman/options/{name}>\n\
             Precedence: list\nX-Mailman-Version: 3.3.8\n"
        ),
        entity: plain(text, &mut random),
    }
}

fn subject(list: &str, of: String) -> String {
    match of.strip_prefix("Re: ") {
        Some(of) => format!("Re: [{list}] {of}"),
        None => format!("[{list}] {of}"),
    }
}

fn author(world: &World, n: u64) -> Person {
    world.people.elsewhere(&mut Random::of_state(mix(world.seed ^ 0x23, n)))
}

/// The author's own text in a post, a line for each paragraph.
fn thoughts(world: &World, n: u64, topic: Topic) -> Vec<u8> {
    let mut random = Random::of_state(mix(world.seed ^ 0x24, n));
    let mut text = Vec::new();
    let bytes = random.spread(900.0, 1.0).clamp(40, 100_000);
    prose::paragraphs(&world.words, &mut random, topic, bytes, &mut text);
    text
}

/// A change to a program.
fn patch(world: &World, random: &mut Random, topic: Topic, to: &mut Vec<u8>) {
    let words = &world.words;
    let name = |random: &mut Random, to: &mut Vec<u8>| {
        words.spell(words.of_topic(topic, random.bits()), to);
        put(to, &["_"]);
        words.spell(words.of_topic(topic, random.bits()), to);
    };
    let end = to.len() + random.spread(2_500.0, 0.9).clamp(300, 60_000);
    put(to, &["diff --git a/src/"]);
    name(random, to);
    put(to, &[".c\n"]);
    while to.len() < end {
        put(to, &[random.pick(&[" ", " ", "+", "-"])]);
        put(to, &[random.pick(&["\t", "\t\t", "\t\t\t", ""])]);
        match random.below(6) {
            0 => {
                put(to, &["if ("]);
                name(random, to);
                put(to, &[random.pick(&[" == NULL) {", " < 0)", " != 0) {", ")"])]);
            }
            1 => put(to, &[random.pick(&["}", "return 0;", "goto out;", "break;", "} else {"])]),
            2 => {
                put(to, &["/* "]);
                prose::clause(words, random, topic, 6, to);
                put(to, &[" */"]);
            }
            3 => {
                put(to, &[random.pick(&["int ", "static int ", "struct ", "const char *"])]);
                name(random, to);
                put(to, &[";"]);
            }
            _ => {
                name(random, to);
                put(to, &[random.pick(&["(", " = ", "->"])]);
                name(random, to);
                put(to, &[random.pick(&[");", ";", "(NULL);"])]);
            }
        }
        put(to, &["\n"]);
    }
}

/// A long message: minutes, or lines of a log.
pub fn report(world: &World, n: u64) -> Draft {
    let mut random = Random::of_state(mix(world.seed ^ 0x27, n));
    report_of(world, n, random.spread(14_000.0, 1.2).clamp(2_000, 2_000_000))
}

/// A report with so many bytes.
pub fn report_of(world: &World, n: u64, bytes: usize) -> Draft {
    let mut random = Random::of_state(mix(world.seed ^ 0x28, n));
    let thread = thread(world, n);
    let mut text = Vec::with_capacity(bytes + 500);
    if random.chance(50) {
        let mut own = Vec::new();
        prose::paragraphs(&world.words, &mut random, thread.topic, bytes, &mut own);
        prose::wrap(&own, b"", &mut text);
    } else {
        let host = random.below(60);
        while text.len() < bytes {
            log_line(world, &mut random, host, thread.topic, &mut text);
        }
    }
    let people = world.people;
    let (first, last) = people.name(thread.from);
    let from_here = thread.from.is_here();
    Draft {
        from: format!("{first} {last}"),
        address: people.address(thread.from),
        sender: people.address(thread.from),
        authenticated: if from_here { people.address(thread.from) } else { String::new() },
        client: people.client(thread.from, &mut random),
        recipients: vec![people.address(thread.to)],
        subject: thread.subject,
        headers: String::new(),
        entity: plain(text, &mut random),
    }
}

fn log_line(world: &World, random: &mut Random, host: usize, topic: Topic, to: &mut Vec<u8>) {
    put(to, &["Nov "]);
    for (n, most) in [28, 23, 59, 59].into_iter().enumerate() {
        let value = random.below(most);
        put(to, &[["", " ", ":", ":"][n], if value < 10 { "0" } else { "" }]);
        number(value as u64, to);
    }
    put(to, &[" host"]);
    number(host as u64, to);
    to.push(b' ');
    // Programs write few different lines, again and again.
    let mut shared = Random::of_state(mix(topic ^ 7, random.zipf(60) as u64));
    world.words.spell(world.words.of_topic(1, shared.bits()), to);
    put(to, &["["]);
    number(random.below(32_768) as u64, to);
    put(to, &["]: "]);
    let length = shared.within(3, 9);
    prose::clause(&world.words, &mut shared, topic, length, to);
    put(to, &["="]);
    if random.chance(40) {
        put(to, &[&base62(random.bits(), 11)]);
    } else {
        number(random.bits() % 100_000, to);
    }
    put(to, &["\n"]);
}
