//! Newsletters, and notices sent by programs.

use super::english::FOOTERS;
use super::entity::{Entity, Transfer, plain, put, string};
use super::mime::html_text;
use super::people::{Person, base62, link};
use super::prose::{self, number};
use super::{Draft, World};
use crate::random::{Random, mix};

/// In so many messages there are newsletters of so many issues.
const NEIGHBOURS: u64 = 500;
const ISSUES: usize = 8;
/// Programs that send notices, and the kinds of notices of each.
const SERVICES: usize = 500;
const NOTICES: usize = 6;

/// Text and HTML with the same contents.
#[derive(Default)]
struct Page {
    text: Vec<u8>,
    source: Vec<u8>,
    spoken: Vec<u8>,
    links: Vec<String>,
}

impl Page {
    fn open(title: &str) -> Self {
        let mut page = Self::default();
        put(&mut page.source, &[STYLE, title, "</title></head><body>\n<table width=\"600\">\n"]);
        page
    }

    /// A block of text, one line.
    fn block(&mut self, tag: &str, text: &[u8]) {
        prose::wrap(text, b"", &mut self.text);
        self.text.push(b'\n');
        put(
            &mut self.source,
            &[
                "<tr><td style=\"padding:12px 24px;font-family:Arial,Helvetica,\
                                 sans-serif;font-size:15px;line-height:22px\"><",
                tag,
                ">",
            ],
        );
        html_text(text, &mut self.source);
        put(&mut self.source, &["</", tag, "></td></tr>\n"]);
        self.spoken.extend_from_slice(text);
        self.spoken.push(b'\n');
    }

    /// A link with its text.
    fn link(&mut self, called: &str, target: Vec<u8>) {
        put(&mut self.text, &[called, ": "]);
        self.text.extend_from_slice(&target);
        put(&mut self.text, &["\n\n"]);
        put(
            &mut self.source,
            &["<tr><td align=\"center\" bgcolor=\"#2a6ebb\"><a target=\"_blank\" \
                                 style=\"color:#ffffff;text-decoration:none\" href=\""],
        );
        html_text(&target, &mut self.source);
        put(&mut self.source, &["\">", called, "</a></td></tr>\n"]);
        put(&mut self.spoken, &[called, "\n"]);
        self.links.push(string(target));
    }

    fn close(mut self, random: &mut Random) -> Entity {
        put(&mut self.source, &["</table>\n</body></html>\n"]);
        let text = plain(self.text, random);
        let Self { source, spoken, links, .. } = self;
        let html = Entity::Html { source, spoken, links, transfer: Transfer::Quoted };
        Entity::Multi("alternative", vec![text, html])
    }
}

const STYLE: &str = "<!DOCTYPE html>\n<html><head><meta http-equiv=\"Content-Type\" \
    content=\"text/html; charset=utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n\
    <style type=\"text/css\">body{margin:0;padding:0;background:#f4f4f4}table{border-collapse:\
    collapse}img{border:0;display:block}@media only screen and (max-width:480px){table{width:100%\
    !important}td{display:block!important}}a:hover{color:#000}</style>\n<title>";

/// A newsletter: an issue goes to several people, and only names and links
/// differ.
pub fn newsletter(world: &World, n: u64) -> Draft {
    let mut random = Random::of_state(mix(world.seed ^ 0x30, n));
    let issue = n / NEIGHBOURS * ISSUES as u64 + random.zipf(ISSUES) as u64;
    // The part that is common to all recipients of the issue.
    let mut shared = Random::of_state(mix(world.seed ^ 0x31, issue));
    let sender = world.people.elsewhere(&mut shared);
    let reader = world.people.here(&mut random);
    let (words, topic) = (&world.words, prose::topic(10_000 + (sender.company() % 3_000) as usize));
    let (company, domain) = (world.people.company(sender), world.people.domain(sender));

    let mut subject = Vec::new();
    prose::title(words, &mut shared, topic, &mut subject);
    let subject = string(subject);
    let mut page = Page::open(&subject);
    page.link("View in browser", target(world, &domain, &mut random));
    page.block("p", format!("Hello {},", world.people.name(reader).0).as_bytes());
    let mut text = Vec::new();
    for _ in 0..shared.spread(10.0, 0.5).clamp(2, 60) {
        text.clear();
        prose::title(words, &mut shared, topic, &mut text);
        page.block("h2", &text);
        text.clear();
        let bytes = shared.spread(330.0, 0.6).clamp(80, 3_000);
        prose::paragraphs(words, &mut shared, topic, bytes, &mut text);
        for paragraph in text.split(|&b| b == b'\n') {
            page.block("p", paragraph);
        }
        if shared.chance(80) {
            page.link(
                shared.pick(&["Read more", "Shop now", "Learn more", "Find out more"]),
                target(world, &domain, &mut random),
            );
        }
    }
    footers(world, sender, &company, &mut page);
    page.link("Unsubscribe", target(world, &domain, &mut random));
    let headers = format!(
        "List-Unsubscribe: <https://{domain}/u/{}>\nPrecedence: bulk\nX-Campaign: {issue}\n",
        base62(random.bits(), 11)
    );
    draft(world, sender, reader, subject, headers, page.close(&mut random), &mut random)
}

fn target(world: &World, domain: &str, random: &mut Random) -> Vec<u8> {
    let mut target = Vec::new();
    link(&world.words, domain, random, &mut target);
    target
}

/// The text that a company writes below all its messages.
fn footers(world: &World, sender: Person, company: &str, page: &mut Page) {
    let mut random = Random::of_state(mix(world.seed ^ 0x32, sender.company()));
    for _ in 0..random.within(2, 5) {
        page.block("small", random.pick(FOOTERS).replace('%', company).as_bytes());
    }
}

/// A notice: all of a kind are the same, except for names and numbers.
pub fn notice(world: &World, n: u64) -> Draft {
    let mut random = Random::of_state(mix(world.seed ^ 0x33, n));
    let service = random.zipf(SERVICES) as u64;
    let kind = service * NOTICES as u64 + random.zipf(NOTICES) as u64;
    let sender = world.people.elsewhere(&mut Random::of_state(mix(world.seed ^ 0x34, service)));
    let mut shared = Random::of_state(mix(world.seed ^ 0x35, kind));
    let reader = world.people.here(&mut random);
    let (words, topic) = (&world.words, prose::topic(20_000 + service as usize));
    let (company, domain) = (world.people.company(sender), world.people.domain(sender));

    let mut subject = Vec::new();
    prose::title(words, &mut shared, topic, &mut subject);
    put(&mut subject, &[" #"]);
    number(random.bits() % 1_000_000, &mut subject);
    let subject = string(subject);
    let mut page = Page::open(&subject);
    if shared.chance(60) {
        page.block("p", format!("Dear {},", world.people.name(reader).0).as_bytes());
    }
    let mut text = Vec::new();
    for _ in 0..shared.within(2, 7) {
        text.clear();
        match shared.below(4) {
            0 | 1 => {
                prose::sentence(words, &mut shared, topic, &mut text);
                if shared.chance(50) {
                    text.push(b' ');
                    prose::sentence(words, &mut shared, topic, &mut text);
                }
            }
            2 => {
                prose::title(words, &mut shared, topic, &mut text);
                put(&mut text, &[": "]);
                value(world, &mut shared, &mut random, &mut text);
            }
            _ => {
                prose::clause(words, &mut shared, topic, 5, &mut text);
                text.push(b' ');
                value(world, &mut shared, &mut random, &mut text);
                text.push(b' ');
                prose::clause(words, &mut shared, topic, 6, &mut text);
                text.push(b'.');
            }
        }
        page.block("p", &text);
    }
    page.link("Details", target(world, &domain, &mut random));
    footers(world, sender, &company, &mut page);
    let html = shared.chance(60);
    let entity = if html { page.close(&mut random) } else { plain(page.text, &mut random) };
    let headers = "Auto-Submitted: auto-generated\nX-Auto-Response-Suppress: All\n".to_owned();
    draft(world, sender, reader, subject, headers, entity, &mut random)
}

/// The part that differs between notices of a kind; the rest is `shared`.
fn value(world: &World, shared: &mut Random, random: &mut Random, to: &mut Vec<u8>) {
    match shared.below(5) {
        0 => number(random.bits() % 1_000_000_000, to),
        1 => to.extend_from_slice(base62(random.bits(), 11).as_bytes()),
        2 => {
            put(to, &["2026-"]);
            number(random.within(10, 12) as u64, to);
            put(to, &["-"]);
            number(random.within(10, 28) as u64, to);
        }
        3 => {
            let (first, last) = world.people.name(world.people.here(random));
            put(to, &[&first, " ", &last]);
        }
        _ => {
            let topic = prose::topic(random.below(2_000));
            prose::title(&world.words, random, topic, to);
        }
    }
}

pub fn draft(
    world: &World,
    sender: Person,
    reader: Person,
    subject: String,
    headers: String,
    entity: Entity,
    random: &mut Random,
) -> Draft {
    let people = world.people;
    let sender_address = people.bulk(sender, random);
    Draft {
        from: people.company(sender),
        address: format!("news@{}", people.domain(sender)),
        sender: sender_address,
        authenticated: String::new(),
        client: people.client(sender, random),
        recipients: vec![people.address(reader)],
        subject,
        headers,
        entity,
    }
}
