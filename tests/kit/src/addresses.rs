//! Addresses that mail servers may read in different ways.

use crate::Random;

/// The domain that exempts.
pub const FRIENDS: &str = "friends.test";
/// The domain that is limited.
pub const VICTIM: &str = "victim.test";

/// What local parts are made of.
const PIECES: [&str; 28] = [
    "v",
    "w",
    "Alice",
    ".",
    "%",
    "%victim.test",
    "%friends.test",
    "!",
    "victim.test!",
    "friends.test!",
    "@",
    "@victim.test",
    "\\@victim.test",
    "+",
    "=",
    "victim.test=",
    "-",
    "'",
    "/",
    "#",
    "|",
    "\\",
    "(c)",
    ":",
    ",",
    " ",
    "SRS0=x=y=victim.test=",
    "=?utf-8?q?v?=",
];
/// What follows the local part.
const DOMAINS: [&str; 14] = [
    "@friends.test",
    "@friends.test",
    "@friends.test",
    "@victim.test",
    "@victim.test",
    "@FRIENDS.Test",
    "@Victim.TEST",
    "@friends.test.",
    "@victim.test.",
    "@[192.0.2.9]",
    "@friends.test@",
    "@victim.test%x",
    "@friends.test(c)",
    "",
];

/// What follows `RCPT TO:`, always the same: most of it is in brackets.
pub fn generated(count: usize) -> Vec<String> {
    let mut random = Random::new(45);
    let mut paths = Vec::with_capacity(count);
    // What was found by hand.
    for local in ["v%victim.test", "victim.test!v", "\"v@victim.test\"", "\"v%victim.test\"", "v"] {
        paths.push(format!("<{local}@friends.test>"));
    }
    paths.push("<v@victim.test>@friends.test".to_owned());
    paths.push("<@victim.test:v@friends.test>".to_owned());
    while paths.len() < count {
        let mut local = String::new();
        for _ in 0..random.within(1, 4) {
            local += PIECES[random.below(PIECES.len())];
        }
        if random.chance(25) {
            local = format!("\"{local}\"");
        }
        let address = local + DOMAINS[random.below(DOMAINS.len())];
        let other = if random.chance(50) { FRIENDS } else { VICTIM };
        paths.push(match random.below(20) {
            0 => format!("<@{other}:{address}>"),
            1 => format!("<@a.test,@{other}:{address}>"),
            2 => format!("<{address}>@{other}"),
            3 => format!("<{address}>({other})"),
            4 => format!("{other} <{address}>"),
            5 => address,
            6 => format!("<<{address}>>"),
            7 => format!("< {address} >"),
            _ => format!("<{address}>"),
        });
    }
    paths
}

/// Policies for [`accepted`]: whoever sends from one domain may write to friends alone, from the other to
/// anybody but victims.
pub const POLICIES: &str = r#"
[policy.only_friends]
when = ["authenticated", { sender_domain = ["only-friends.test"] }]
update = "strict"
default.recipients = "1.5/1w"
[[policy.only_friends.exempt]]
recipients = ["@friends.test"]
[policy.no_victims]
when = ["authenticated", { sender_domain = ["no-victims.test"], recipient_domain = ["victim.test"] }]
update = "strict"
default.recipients = "1.5/1w"
"#;
/// The senders for these, and what each uses up its limit by.
pub const SENDERS: [(&str, &str); 2] =
    [("n@only-friends.test", "x@other.test"), ("n@no-victims.test", "x@victim.test")];

/// Those of `paths` that a server which has [`POLICIES`] accepts from `sender`. `connect` begins a session
/// that has logged in; `end` ends it, with a message where a recipient was accepted.
pub fn accepted(
    sender: &str,
    paths: &[String],
    mut connect: impl FnMut() -> crate::Client,
    mut end: impl FnMut(crate::Client, bool),
) -> Vec<String> {
    let mut all = Vec::new();
    // Servers slow down who makes many mistakes.
    for some in paths.chunks(8) {
        let mut client = connect();
        assert!(client.command(format!("MAIL FROM:<{sender}>")).is_ok());
        let before = all.len();
        for path in some {
            if client.command(format!("RCPT TO:{path}")).is_ok() {
                all.push(path.clone());
            }
        }
        end(client, all.len() > before);
    }
    all
}
