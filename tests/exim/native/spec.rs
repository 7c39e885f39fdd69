//! Random specs, valid at their stage, and wrong ones.

use kit::{EntryPoint, Random};

/// A spec, as both sides can ask it.
#[derive(Clone)]
pub struct Spec {
    /// The spec, without the key where that is below.
    text: String,
    /// The key, where the library gets it as an argument of its own.
    key: Option<Key>,
}

/// A key that means the same in both forms.
#[derive(Clone, Copy)]
struct Key {
    /// As it is written in a spec, where a slash in the key is `//`.
    in_spec: &'static str,
    /// As it is written as an argument of its own.
    literal: &'static str,
}

impl Spec {
    /// A spec with everything in it.
    pub fn whole(text: &str) -> Self {
        Self { text: text.to_owned(), key: None }
    }

    /// For Exim's own `ratelimit`. A key comes last: if it is empty it is no item,
    /// and so the default key on both sides.
    pub fn native(&self) -> String {
        match self.key {
            Some(key) => format!("{} / {}", self.text, key.in_spec),
            None => self.text.clone(),
        }
    }

    /// For the library, through the entry point of this run.
    pub fn ours(&self) -> String {
        match self.key {
            Some(key) => EntryPoint::chosen().ask_key(&self.text, key.literal),
            None => EntryPoint::chosen().ask(&self.text),
        }
    }

    /// The same with another limit.
    pub fn with_limit(&self, limit: &str) -> Self {
        let text = match self.text.split_once('/') {
            Some((_, rest)) => format!("{limit}/{rest}"),
            None => String::new(),
        };
        Self { text, key: self.key }
    }
}

/// What one world's specs are drawn from: few, so that checks meet on keys.
pub struct Pool {
    pub periods: Vec<&'static str>,
}

/// Limits that no sum of the counts below comes near: a burst reaches a
/// whole limit of two or more exactly at the boundary, where the rounding of
/// tiny intervals decides, and no two runs have the same intervals.
const LIMITS: &[&str] = &[
    "0", "1", "0.5", "1.5", "2.5", "2.5", "3.7", "3.7", "4.2", "6.5", "9.5", "12.5", "25.5",
    "0.0025k", "+2.5", "1.5e0", "0x1.cp1", "0.001K", "1k", "0.00001M",
];
const BYTE_LIMITS: &[&str] = &["0.3k", "0.9k", "700.5", "2.51k", "1M", "0.000001G"];

/// Where a mode counts; elsewhere it is read-only.
fn counts(mode: &str, stage: &str) -> bool {
    let batch = matches!(stage, "predata" | "mime" | "dkim" | "data" | "prdr" | "not_smtp");
    match mode {
        "per_mail" | "per_byte" => batch || matches!(stage, "rcpt" | "mail"),
        "per_rcpt" => batch || stage == "rcpt",
        "per_addr" => stage == "rcpt",
        "per_conn" => !stage.starts_with("not_smtp"),
        _ => true,
    }
}

/// A spec that is right at `stage`.
pub fn valid(random: &mut Random, pool: &Pool, stage: &str) -> Spec {
    let mode = random.pick(&[
        "", "", "per_mail", "per_mail", "per_rcpt", "per_rcpt", "per_addr", "per_addr", "per_conn",
        "per_cmd", "per_cmd", "per_byte",
    ]);
    let limit = if mode == "per_byte" { random.pick(BYTE_LIMITS) } else { random.pick(LIMITS) };
    let update = if counts(mode, stage) {
        random.pick(&[
            "",
            "",
            "leaky",
            "leaky",
            "strict",
            "strict",
            "strict",
            "readonly",
            "noupdate",
            "noupdate / strict",
            "noupdate / readonly",
        ])
    } else {
        random.pick(&["", "readonly", "noupdate", "noupdate / leaky", "strict / noupdate"])
    };
    let mut parts = vec![];
    for part in [mode, update] {
        if random.chance(15) {
            parts.push(part.to_ascii_uppercase());
        } else {
            parts.push(part.to_owned());
        }
    }
    if random.chance(20) {
        parts.push(format!(
            "count={}",
            random.pick(&["2", "0.29", "3", "0", "1e0", "$recipients_count"])
        ));
    }
    // A filter must not come near filling up: native's hash is not ours, so
    // neither are its false positives.
    if mode != "per_addr" && random.chance(20) {
        let event = random.pick(&[
            "$sender_address",
            "$sender_address",
            "$local_part@$domain",
            "$sender_helo_name",
            "fixed",
            "a//b",
            "",
        ]);
        parts.push(format!("unique={event}"));
    }
    let key = random.pick(KEYS);
    let apart = random.chance(40);
    if !apart {
        parts.push(key.in_spec.to_owned());
    }
    parts.retain(|p| !p.is_empty());
    random.shuffle(&mut parts);
    parts.insert(0, random.pick(&pool.periods).to_owned());
    parts.insert(0, limit.to_owned());
    let text = if random.chance(10) { parts.join("  /  ") } else { parts.join(" / ") };
    Spec { text, key: apart.then_some(key) }
}

/// A key that is written the same way in both forms.
const fn same(key: &'static str) -> Key {
    Key { in_spec: key, literal: key }
}

const KEYS: &[Key] = &[
    same(""),
    same(""),
    same("$sender_host_address"),
    same("$sender_host_address"),
    same("$authenticated_id"),
    same("$authenticated_id"),
    same("$sender_address"),
    same("$sender_address"),
    same("one"),
    same("one"),
    same("two"),
    same("two"),
    Key { in_spec: "all / $sender_helo_name / of it", literal: "all/$sender_helo_name/of it" },
    Key { in_spec: "double//slash", literal: "double/slash" },
    same("kéy"),
    Key { in_spec: "unique//$sender_address", literal: "unique/$sender_address" },
    same(LONG),
];

const LONG: &str = "long-long-long-long-long-long-long-long-long-long-long-long-long-long-long-\
                    long-long-long-long-long-long-long-long-long-long-long-long-long-long-long-\
                    long-long-long-long-long-long-long-long-long-long-long-long-long-long-key";

/// Specs that are wrong wherever they stand, by the entry point of this run: Exim
/// answers an empty query itself, with "not found".
pub fn wrong() -> &'static [&'static str] {
    match EntryPoint::chosen() {
        EntryPoint::Dlfunc => WRONG,
        EntryPoint::Lookup => &WRONG[1..],
    }
}

const WRONG: &[&str] = &[
    "",
    " / ",
    "abc / 1h",
    "-1 / 1h",
    "-0.5k / 1h",
    "1x / 1h",
    "1kk / 1h",
    "1 k / 1h",
    "1 / ",
    "1",
    "5 // 1h",
    "5 / 1h//per_cmd",
    "5 / 0s",
    "5 / 1y",
    "5 / h",
    "5 / -1h",
    "5 / 1h30",
    "5 / 1.5h",
    "5 / 1s1h",
    "5 / one / strict",
    "5 / 1h / per_mail / per_rcpt",
    "5 / 1h / per_cmd / per_cmd",
    "5 / 1h / per_cmd / PER_CONN / key",
    "5 / 1h / leaky / strict",
    "5 / 1h / readonly / strict",
    "5 / 1h / strict / LEAKY / noupdate",
    "5 / 1h / count=x",
    "5 / 1h / count=-1",
    "5 / 1h / count=1k",
    "5 / 1h / per_cmd / COUNT=2x / key",
    "abc / def / count=x / per_mail / per_cmd",
    "5 / 1h / per_mail / per_cmd / leaky / strict",
];

/// Specs that are wrong at some stages only: each mode with each update mode.
pub fn misplaced() -> Vec<String> {
    let mut specs = vec![];
    for mode in ["per_mail", "per_rcpt", "per_addr", "per_byte", "per_conn", "per_cmd"] {
        for update in ["leaky", "strict", "noupdate / strict", "readonly"] {
            specs.push(format!("5.5 / 1d / {mode} / {update} / misplaced {mode} {update}"));
        }
    }
    specs
}
