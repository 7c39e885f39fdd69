//! What a release has written is read by every later exirate, to the value: `tests/formats/RELEASE`.
//!
//! `spool.tar.gz` is the directory of a database with all that an exirate keeps there, by the policies
//! of `policy.toml`, and `commands.txt` is what the commands of that release print as JSON on a machine
//! that has it: each line that begins with `$ ` or `% ` is a command, run one after the other, and what
//! follows it is compared with what it prints now. After `$`, all names and values must still be there;
//! after `%`, where they depend on the machine, all names and the types of what they have. More may be
//! there: what reads the JSON of a release reads that of a later one.
//!
//! Those of the last one of [`RELEASES`] are written by
//!
//! ```sh
//! WRITE_FORMATS=1 cargo test written_is_read
//! WRITE_FORMATS=1 cargo test --test cli formats
//! ```
//!
//! at the release, and are never written again.

use std::path::PathBuf;
use std::process::Command;

use exirate::event::{Event, Origin};
use exirate::policy::image::PolicyFile;
use exirate::policy::replay::{Recipients, Replay, ReplayEvent};
use exirate::rate::Timestamp;
use exirate::spool::{EventDetails, HeldNote, HeldUntil, Options, Spool};
use kit::exim::{USER, user};
use kit::formats::{RELEASES, folder, is_written, kept};
use serde_json::Value;

use crate::prepared::{Prepared, commands, source};
use crate::{exirate, stdout};

/// 2026-11-20 11:50:30 UTC, some seconds before the time of the machine.
const MAIL: i64 = 1_795_175_430;

/// What is done before the directory is packed.
const DONE: [&str; 11] = [
    "exirate policy apply formats.toml",
    "exirate deny bob@example.net --until 30d --reason 'password stolen'",
    "exirate deny '*@spam.example' --until 30d --yes",
    "exirate deny auth:eve@example.net --reply reject --reason 'account closed'",
    "exirate habits learn /var/log/exim4/month.log",
    "exirate config set rates.max_size=512M crossings.keep=30d trace.keep=52w",
    "exirate events deliver",
    "exim4 -be '${dlfunc{/usr/lib/exim4/exirate.so}{shadow}{under}{1.0}{100 / 1h / per_cmd / strict / dora@example.org}}'",
    "exirate web token add desk --role help --until 90d --file spool/exirate/web.tokens",
    "exirate web token add acme --role help --customer acme --until 90d --file spool/exirate/web.tokens",
    "exirate export --output spool/exirate/export.jsonl",
];

/// The commands whose output is kept. A new one with `--json` is added here by the release that
/// has it.
const COMMANDS: &str = include_str!("../formats/commands.txt");

fn shell(line: &str) {
    let done = Command::new("sh").args(["-ec", line]).status().unwrap();
    assert!(done.success(), "{line}");
}

/// Counts a message of alice to so many recipients at the front end, by all policies.
fn mail(machine: &Prepared, recipients: usize) {
    let file = PolicyFile::open(&machine.spool());
    let mut replay = Replay::new(file.image().unwrap(), "out,pail,try").unwrap();
    let mut spool = Spool::open(&machine.spool(), Options::default()).unwrap();
    let to = (0..recipients).map(|n| format!("r{n}@example.net")).collect();
    let login = "alice@example.org";
    let event = ReplayEvent {
        time: Timestamp { seconds: MAIL, micros: 250_000 },
        event: Event {
            auth: Some(login.to_owned()),
            sender: Some(login.to_owned()),
            client: Origin::Client([192, 0, 2, 7].into()),
            ..Event::default()
        },
        recipients: Recipients::Addresses(to),
        ..ReplayEvent::default()
    };
    let decided = replay.decide(&event, &mut spool).unwrap();
    let enforcement = decided.outcome.enforcement();
    spool.describe(&EventDetails {
        login: login.as_bytes(),
        enforcement,
        ..EventDetails::default()
    });
}

/// A machine with the policies of a release.
fn with_policies(release: &str) -> (Prepared, PathBuf) {
    let machine = Prepared::new();
    let work = machine.spool().parent().unwrap().join("work");
    std::fs::copy(folder(release).join("policy.toml"), work.join("formats.toml")).unwrap();
    (machine, work)
}

/// Writes the files of this release.
fn write(release: &str) {
    let (machine, work) = with_policies(release);
    std::os::unix::fs::symlink(machine.spool(), work.join("spool")).unwrap();
    for (number, line) in DONE.into_iter().enumerate() {
        let output = machine.run(line);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{line}: {output:?}");
        if number == 0 {
            [1, 3, 4].into_iter().for_each(|recipients| mail(&machine, recipients));
        }
    }
    machine.count_usage();
    let event = "{\"auth\":\"a\",\"recipients\":2}".to_owned();
    let mut spool = Spool::open(&machine.spool(), Options::default()).unwrap();
    for (id, until) in [
        ("4XYZ", HeldUntil::Released),
        ("4XYA", HeldUntil::Room(event.clone())),
        ("4XYB", HeldUntil::Aside(event)),
        ("4XYC", HeldUntil::Now),
        ("4XYD", HeldUntil::Left),
    ] {
        let note = HeldNote {
            at: MAIL,
            id: id.to_owned(),
            policy: "out".to_owned(),
            key: b"auth:a\tb".to_vec(),
            why: "9.0 messages, limit 5/1h".to_owned(),
            until,
        };
        spool.note_held(&note).unwrap();
    }
    drop(spool);
    let (spool, folder) = (machine.spool(), folder(release));
    shell(&format!(
        "tar -C {} --sort=name --owner=0 --group=0 --numeric-owner --mtime=@{MAIL} -cf - exirate | \
         gzip -9n > {}/spool.tar.gz",
        kit::shell_quoted(&spool),
        kit::shell_quoted(&folder)
    ));
    let machine = unpacked(release);
    let mut text = String::new();
    for line in COMMANDS.lines().filter(|line| !line.is_empty()) {
        let (_, command) = line.split_once(' ').unwrap();
        let mut printed = machine.show(&format!("{command} 2>/dev/null"));
        // No secret looks like one here.
        if let Some((before, secret)) = printed.split_once("\"token\":\"exirate_") {
            let (_, after) = secret.split_once('"').unwrap();
            printed = format!("{before}\"token\":\"exirate_\"{after}");
        }
        text += &format!("{line}\n{printed}\n");
    }
    std::fs::write(folder.join("commands.txt"), text).unwrap();
}

/// A machine that has what a release has written.
fn unpacked(release: &str) -> Prepared {
    let (machine, work) = with_policies(release);
    let (uid, gid) = user(USER);
    let spool = machine.spool();
    shell(&format!(
        "cd {} && rm -r exirate && tar xzf {}/spool.tar.gz && chown -R {uid}:{gid} exirate && \
         mv exirate/export.jsonl exirate/web.tokens ../work && chown 0:0 ../work/web.tokens",
        kit::shell_quoted(&spool),
        kit::shell_quoted(folder(release))
    ));
    // 0.1.0 has noted none that waits.
    let mut database = Spool::open(&spool, Options::default()).unwrap();
    let mut latest = database.latest_held_notes().unwrap();
    latest.retain(|(note, _)| matches!(note.until, HeldUntil::Room(_) | HeldUntil::Aside(_)));
    let waiting: Vec<&str> = latest.iter().map(|(note, _)| &*note.id).collect();
    assert_eq!(waiting, if release == "0.1.0" { vec![] } else { vec!["4XYA", "4XYB"] });
    drop((database, work));
    machine
}

/// Names of what differs with each release: its number, and sentences for people.
const OF_A_RELEASE: [&str; 4] = ["release", "version", "text", "remedies"];

/// What is missing in `now`, or of another type; and without `types`, of another value.
fn missing(place: &str, then: &Value, now: &Value, types: bool, found: &mut Vec<String>) {
    let number = |value: &Value| value.as_f64();
    match (then, now) {
        (Value::Object(then), Value::Object(now)) => {
            for (name, value) in then {
                let place = format!("{place}.{name}");
                let types = types || OF_A_RELEASE.contains(&&**name);
                match now.get(name) {
                    Some(now) => missing(&place, value, now, types, found),
                    None => found.push(format!("{place} is missing")),
                }
            }
        }
        (Value::Array(then), Value::Array(now)) => {
            let is_short = then.len() > now.len() && (!types || now.is_empty());
            if is_short || then.len() < now.len() && !types {
                found.push(format!("{place} has {} elements, not {}", now.len(), then.len()));
            }
            for (at, (then, now)) in then.iter().zip(now).enumerate() {
                missing(&format!("{place}[{at}]"), then, now, types, found);
            }
        }
        (Value::Null, _) | (_, Value::Null) if types => {}
        _ if types && std::mem::discriminant(then) == std::mem::discriminant(now) => {}
        _ if !types && then == now => {}
        _ => match (number(then), number(now)) {
            (Some(then), Some(now)) if (then - now).abs() <= 1e-9 * then.abs().max(1.0) => {}
            _ => found.push(format!("{place} is {now}, not {then}")),
        },
    }
}

/// The commands of a text, each with what it printed: whether only types count, the command, and the
/// JSON.
fn outputs(text: &str) -> Vec<(bool, &str, &str)> {
    let parts = text.split("\n\n").map(str::trim_start).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (line, printed) = part.split_once('\n').unwrap_or((part, ""));
            let (sign, command) = line.split_once(' ').unwrap();
            assert!(["$", "%"].contains(&sign), "{line}");
            (sign == "%", command, printed)
        })
        .collect()
}

/// A document, or one in each line.
fn documents(command: &str, printed: &str) -> Vec<Value> {
    if let Ok(one) = serde_json::from_str(printed) {
        return vec![one];
    }
    let read = |line| serde_json::from_str(line);
    // Lines for people stand between those of `events deliver`.
    let lines = printed.lines().filter(|line| line.starts_with(['{', '[']));
    let all: Result<Vec<Value>, _> = lines.map(read).collect();
    all.map_err(|error| format!("{command}: {error}: {printed:?}")).unwrap()
}

#[test]
fn what_each_release_has_written_is_read() {
    for release in RELEASES {
        if is_written(release) {
            write(release);
        }
        let machine = unpacked(release);
        let text = std::fs::read_to_string(folder(release).join("commands.txt")).unwrap();
        let mut found = Vec::new();
        for (types, command, printed) in outputs(&text) {
            let now = machine.show(&format!("{command} 2>/dev/null"));
            let (then, now) = (documents(command, printed), documents(command, &now));
            assert!(!then.is_empty(), "{release}: {command}");
            missing(command, &Value::Array(then), &Value::Array(now), types, &mut found);
        }
        assert!(found.is_empty(), "{release}: {found:#?}");
        // Where a denial ends, the client is to try again; in 0.1.0, none rejects.
        let machine = unpacked(release);
        let lasting = (release != "0.1.0").then_some(("eve@example.net", "reject"));
        let ending = [("bob@example.net", "defer"), ("a@spam.example", "defer")];
        for (login, denies) in ending.into_iter().chain(lasting) {
            let command = format!("exirate check out --auth {login} --json 2>/dev/null");
            let check: Value = serde_json::from_str(&machine.show(&command)).unwrap();
            assert_eq!(check["verdict"], denies, "{release}: {login}: {check}");
        }
    }
}

#[test]
fn the_json_of_each_command_is_kept() {
    let last = RELEASES[RELEASES.len() - 1];
    let text = std::fs::read_to_string(folder(last).join("commands.txt")).unwrap();
    let kept: Vec<&str> = outputs(&text).iter().map(|(_, command, _)| *command).collect();
    let written: Vec<&str> =
        COMMANDS.lines().filter_map(|line| Some(line.split_once(' ')?.1)).collect();
    assert_eq!(kept, written);
    for command in commands() {
        let words: Vec<&str> = command.split(' ').collect();
        let help = stdout(&exirate().args(&words).arg("--help").output().unwrap());
        let is_kept = kept.iter().any(|line| line.starts_with(&format!("exirate {command}")));
        // It has nothing to say.
        let is_silent = command == "cluster leave";
        if !is_silent && help.lines().any(|line| line.trim_start().starts_with("--json")) {
            assert!(is_kept, "{command} has --json, and is not in commands.txt");
        }
    }
}

/// What is said of a difference.
#[test]
fn what_vanishes_is_noticed() {
    let then: Value =
        serde_json::from_str(r#"{"a": [{"b": 1, "release": "1"}], "c": "x"}"#).unwrap();
    let said = |now: &str, types| {
        let mut found = Vec::new();
        missing("", &then, &serde_json::from_str(now).unwrap(), types, &mut found);
        found.join(", ")
    };
    assert_eq!(said(r#"{"a": [{"b": 1.0, "release": "2", "d": 2}], "c": "x", "e": 1}"#, false), "");
    assert_eq!(said(r#"{"a": [{"b": 2, "release": "1"}], "c": "y"}"#, true), "");
    assert_eq!(
        said(r#"{"a": [{"b": 2, "release": "1"}], "c": "y"}"#, false),
        ".a[0].b is 2, not 1, .c is \"y\", not \"x\""
    );
    assert_eq!(
        said(r#"{"a": [{"b": "1"}]}"#, true),
        ".a[0].b is \"1\", not 1, .a[0].release is missing, .c is missing"
    );
    assert_eq!(said(r#"{"a": [], "c": "x"}"#, true), ".a has 0 elements, not 1");
}

/// The description of the API, without its texts.
fn without_texts(value: Value) -> Value {
    const TEXTS: [&str; 4] = ["description", "summary", "title", "example"];
    match value {
        Value::Object(fields) => {
            // A property may be called as one of these.
            let is_text = |name: &str, value: &Value| TEXTS.contains(&name) && value.is_string();
            let kept = fields.into_iter().filter(|(name, value)| !is_text(name, value));
            kept.map(|(name, value)| (name, without_texts(value))).collect()
        }
        Value::Array(all) => all.into_iter().map(without_texts).collect(),
        other => other,
    }
}

/// What was in the description of the API and is no more. Of an array, each element must be there, at
/// any place.
fn gone(place: &str, then: &Value, now: &Value) -> Option<String> {
    match (then, now) {
        (Value::Object(then), Value::Object(now)) => then.iter().find_map(|(name, value)| {
            let place = format!("{place}.{name}");
            now.get(name).map_or(Some(place.clone()), |now| gone(&place, value, now))
        }),
        (Value::Array(then), Value::Array(now)) => then.iter().find_map(|one| {
            let is_there = now.iter().any(|now| gone(place, one, now).is_none());
            (!is_there).then(|| format!("{place}: {one}"))
        }),
        _ => (then != now).then(|| format!("{place} is {now}, not {then}")),
    }
}

/// A part of the schema in which each name of a type is replaced by the type: what counts is what a
/// request and a reply contain.
fn in_place(part: &Value, api: &Value) -> Value {
    match part {
        Value::Object(fields) => match fields.get("$ref").and_then(Value::as_str) {
            Some(name) => in_place(api.pointer(name.trim_start_matches('#')).unwrap(), api),
            None => {
                let fields =
                    fields.iter().map(|(name, value)| (name.clone(), in_place(value, api)));
                Value::Object(fields.collect())
            }
        },
        Value::Array(all) => all.iter().map(|one| in_place(one, api)).collect(),
        one => one.clone(),
    }
}

/// What a request must have: parameters, and fields of bodies.
fn required(api: &Value) -> Vec<String> {
    let mut all = Vec::new();
    for (path, methods) in api["paths"].as_object().unwrap() {
        for (method, route) in methods.as_object().unwrap() {
            let place = format!("{method} {path}");
            let parameters = route["parameters"].as_array().into_iter().flatten();
            let must = parameters.filter(|one| one["required"] == true);
            all.extend(must.map(|one| format!("{place} {}", one["name"])));
            let body = &route["requestBody"]["content"]["application/json"]["schema"]["$ref"];
            let Some(schema) = body.as_str().and_then(|name| name.rsplit('/').next()) else {
                continue;
            };
            let fields = api["components"]["schemas"][schema]["required"].as_array();
            all.extend(fields.into_iter().flatten().map(|field| format!("{place} {field}")));
        }
    }
    all
}

#[test]
fn the_api_of_each_release_stays() {
    let now = without_texts(serde_json::from_str(&source("docs/openapi.json")).unwrap());
    for release in RELEASES {
        let then = kept(release, "openapi.json", || (now.to_string() + "\n").into_bytes());
        let then: Value = serde_json::from_slice(&then).unwrap();
        assert_eq!(gone("", &in_place(&then, &then), &in_place(&now, &now)), None, "{release}");
        let known = required(&then);
        assert!(known.len() > 6, "{known:?}");
        for one in required(&now) {
            let path = one.split(' ').nth(1).unwrap();
            let is_new = then["paths"].get(path).is_none();
            assert!(is_new || known.contains(&one), "{one} was not required by {release}");
        }
    }
}

/// A row of the table of docs/formats.md: the version, the constant, and the file that has it.
fn rows(page: &str) -> Vec<[&str; 3]> {
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains("](../src/"));
    rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let (name, file) = cells[2].split_once("](../").unwrap();
        [cells[1], name.trim_start_matches("[`").trim_end_matches('`'), file.trim_end_matches(')')]
    })
    .collect()
}

#[test]
fn the_page_has_the_versions_of_the_code() {
    let page = source("docs/formats.md");
    let rows = rows(&page);
    assert!(rows.len() > 15, "{rows:?}");
    for [version, name, file] in rows {
        let code = source(file);
        let begins = [format!("const {name}:"), format!("    {name}: *b"), format!("\"{name}\":")];
        let stated = code.lines().find(|line| begins.iter().any(|begin| line.contains(begin)));
        let stated = stated.unwrap_or_else(|| panic!("{file} has no {name}"));
        let (_, value) =
            stated.split_once(if stated.contains('=') { " = " } else { ": " }).unwrap();
        let digits = value.trim_matches(|c: char| !c.is_ascii_digit());
        assert_eq!(digits, version, "{file}: {stated}");
    }
}
