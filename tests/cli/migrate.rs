//! `docs/migrate.md`: every policy in it is sound, and those that replace a native line
//! decide as it does.

use std::fs;
use std::path::Path;
use std::process::Output;

use exirate::policy::image::{Image, build};
use exirate::policy::replay::{Replay, ReplayEvent};
use exirate::policy::source::compile;
use exirate::policy::word::Verdict;
use exirate::rate::Timestamp;
use exirate::spec::{Context, Spec};
use exirate::store::{Memory, Store as _};

use crate::{exirate, stdout};

const PAGE: &str = include_str!("../../docs/migrate.md");

fn policy(dir: &std::path::Path, arguments: &[&str]) -> Output {
    exirate().arg("policy").args(arguments).current_dir(dir).output().unwrap()
}

/// The blocks of code, with their languages.
fn blocks(text: &str) -> Vec<(&str, &str)> {
    let fences: Vec<&str> = text.split("\n```").collect();
    let starts = fences.iter().skip(1).step_by(2);
    starts.map(|block| block.split_once('\n').unwrap()).collect()
}

#[test]
fn every_policy_is_sound() {
    let dir = tempfile::tempdir().unwrap();
    let mut seen = 0;
    for (_, block) in blocks(PAGE).into_iter().filter(|(kind, _)| *kind == "toml") {
        fs::write(dir.path().join("p.toml"), block).unwrap();
        let output = policy(dir.path(), &["lint", "p.toml"]);
        assert_eq!(output.status.code(), Some(0), "{block}\n{}", stdout(&output));
        seen += 1;
    }
    assert_eq!(seen, 9);
}

/// Both hash recipients with this key. The filters of which recipients are different take a new
/// one for a known one now and then, by their hashes: with the same key, for the same ones.
const EVENT_KEY: [u8; 16] = [7; 16];

/// An event of both: a message of somebody.
#[derive(Clone, Copy)]
struct Message {
    micros: i64,
    who: usize,
    to: usize,
    size: u64,
}

/// Many events, with pauses in which some of the rate decays.
fn messages() -> Vec<Message> {
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = |most: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % most
    };
    let mut micros = 1_795_000_000_000_000;
    let mut all = Vec::new();
    for n in 0..1500 {
        micros += if n % 300 == 299 {
            5_000_000_000
        } else {
            next(if n % 300 < 150 { 400_000 } else { 8_000_000 }) as i64
        };
        let (who, to, size) = (next(2) as usize, next(90) as usize, next(90_000));
        all.push(Message { micros, who, to, size });
    }
    all
}

#[test]
fn a_policy_that_replaces_a_native_line_decides_as_it_does() {
    let section = PAGE.split("\n## From Exim's `ratelimit`\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let blocks = blocks(section);
    let mut seen = 0;
    for pair in blocks.chunks(2) {
        let [("exim", line), ("toml", policies)] = pair else { panic!("{pair:?}") };
        let spec = line.split("ratelimit = ").nth(1).unwrap().trim();
        let native = native(spec);
        let migrated = migrated(policies, line.contains("!authenticated"));
        let differs = native.iter().zip(&migrated).position(|(one, other)| one != other);
        assert_eq!(differs, None, "{spec}: event {differs:?}");
        assert_eq!(native.len(), migrated.len());
        let refused = native.iter().filter(|over| **over).count();
        assert!((20..native.len() - 20).contains(&refused), "{spec}: {refused} refused");
        seen += 1;
    }
    assert_eq!(seen, 5);
}

/// Whether the native line refuses each message. Where a line counts something else than
/// the message, it is that of the message: its one recipient, its connection.
fn native(spec: &str) -> Vec<bool> {
    let mut store = Memory::with_event_key(EVENT_KEY);
    let default_key = !spec.contains('$');
    messages()
        .iter()
        .map(|message| {
            let login = ["alice", "bob"][message.who];
            let client = ["192.0.2.7", "2001:db8::7"][message.who];
            let text = spec.replace("$authenticated_id", login);
            let local_part = format!("r{}", message.to);
            let context = Context {
                host_address: default_key.then_some(client.as_bytes()),
                local_part: local_part.as_bytes(),
                domain: b"example.net",
                recipients: 1,
                message_size: Some(message.size),
                ..Context::outside()
            };
            let request = Spec::parse(text.as_bytes()).unwrap().request(&context).unwrap();
            let now = Timestamp {
                seconds: message.micros / 1_000_000,
                micros: (message.micros % 1_000_000) as u32,
            };
            store.decide_one(&request.check(), || now).unwrap().over
        })
        .collect()
}

/// Whether the policies do.
fn migrated(policies: &str, anonymous: bool) -> Vec<bool> {
    let none = |_: &Path| Err("no file".to_owned());
    let compiled = compile(Path::new("p.toml"), policies, &none);
    assert!(compiled.policies.is_some(), "{:?}", compiled.diagnostics);
    let image = Image::from_bytes(build(&compiled.policies.unwrap())).unwrap();
    let mut replay = Replay::new(&image, "*").unwrap();
    let mut store = Memory::with_event_key(EVENT_KEY);
    let mut is_refused = |message: &Message| {
        let mut event = serde_json::json!({
            "time": (message.micros as f64 / 1e6),
            "client": (["192.0.2.7", "2001:db8::7"][message.who]),
            "sender": "s@example.org",
            "recipient": (format!("r{}@example.net", message.to)),
            "size": message.size,
        });
        if !anonymous {
            event["auth"] = ["alice", "bob"][message.who].into();
        }
        let event = ReplayEvent::from_json(&event.to_string()).unwrap();
        replay.decide(&event, &mut store).unwrap().outcome.verdict == Verdict::Defer
    };
    messages().iter().map(&mut is_refused).collect()
}
