//! Bounces, and letters that forward another message.

use super::entity::{Charset, Entity, Transfer, plain, put};
use super::letters::thread;
use super::prose;
use super::{Draft, Kind, Mail, World};
use crate::random::{Random, mix};

/// The last letter before message `n`, or a new one.
fn earlier(world: &World, n: u64) -> Mail {
    let letter = (1..60)
        .filter_map(|back| n.checked_sub(back))
        .find(|&n| matches!(world.kind(n), Kind::Letter | Kind::Newsletter));
    match letter {
        Some(letter) => world.mail(letter),
        None => world.of_kind(Kind::Letter, n),
    }
}

/// Message `n`: a letter that forwards another message as a whole.
pub fn forward(world: &World, n: u64) -> Draft {
    let mut random = Random::of_state(mix(world.seed ^ 0x70, n));
    let thread = thread(world, n);
    let inner = earlier(world, n);
    let mut text = b"FYI\n\n".to_vec();
    let mut own = Vec::new();
    let bytes = random.spread(150.0, 0.8).clamp(10, 4_000);
    prose::paragraphs(&world.words, &mut random, thread.topic, bytes, &mut own);
    prose::wrap(&own, b"", &mut text);
    let people = world.people;
    let (first, last) = people.name(thread.from);
    Draft {
        from: format!("{first} {last}"),
        address: people.address(thread.from),
        sender: people.address(thread.from),
        authenticated: String::new(),
        client: people.client(thread.from, &mut random),
        recipients: vec![people.address(thread.to)],
        subject: format!("Fwd: {}", thread.subject),
        headers: String::new(),
        entity: Entity::Multi(
            "mixed",
            vec![
                plain(text, &mut random),
                Entity::Message { raw: inner.raw, truths: inner.truths },
            ],
        ),
    }
}

/// Message `n`: another system reports a failed delivery.
pub fn bounce(world: &World, n: u64) -> Draft {
    let mut random = Random::of_state(mix(world.seed ^ 0x71, n));
    let thread = thread(world, n);
    let people = world.people;
    let (failed, host) = (people.address(thread.from), people.domain(thread.from));
    let ours = people.address(people.here(&mut random));
    let mut text = Vec::new();
    put(
        &mut text,
        &[
            "This message was created automatically by mail delivery software.\n\n\
         A message that you sent could not be delivered to one or more of its\n\
         recipients. This is a permanent error. The following address(es) failed:\n\n  ",
            &failed,
            "\n    host mx.",
            &host,
            "\n    SMTP error from remote mail server after RCPT TO:<",
            &failed,
            ">:\n    550 5.1.1 User unknown\n",
        ],
    );
    let mut status = Vec::new();
    put(
        &mut status,
        &[
            "Reporting-MTA: dns; mx.",
            &host,
            "\n\nAction: failed\nFinal-Recipient: rfc822;",
            &failed,
            "\nStatus: 5.1.1\nRemote-MTA: dns; mx.",
            &host,
            "\nDiagnostic-Code: smtp; 550 5.1.1 User unknown\n",
        ],
    );
    let returned = earlier(world, n);
    let raw = returned.raw;
    let end = raw.windows(2).position(|two| two == b"\n\n").map_or(raw.len(), |at| at + 1);
    let text_entity = |text: Vec<u8>, subtype| Entity::Text {
        text,
        subtype,
        charset: Charset::Utf8,
        transfer: Transfer::Plain,
    };
    Draft {
        from: "Mail Delivery System".to_owned(),
        address: format!("mailer-daemon@{host}"),
        sender: String::new(),
        authenticated: String::new(),
        client: people.client(thread.from, &mut random),
        recipients: vec![ours],
        subject: "Mail delivery failed: returning message to sender".to_owned(),
        headers: "Auto-Submitted: auto-replied\n".to_owned(),
        entity: Entity::Multi(
            "report; report-type=delivery-status",
            vec![
                text_entity(text, "plain"),
                Entity::Status(status),
                text_entity(raw[..end].to_vec(), "rfc822-headers"),
            ],
        ),
    }
}
