//! Random sessions.

use kit::Random;

/// How a conversation is begun.
#[derive(Clone, Debug)]
pub enum Way {
    /// To the daemon, from 127.0.0.N.
    Daemon(u8),
    /// `-bs` on standard input and output.
    Pipe,
    /// `-bh` with an address.
    Check(&'static str),
}

/// One thing that the driver does; the number is the conversation's.
#[derive(Clone, Debug)]
pub enum Step {
    Open(usize, Way),
    /// Commands, sent in one packet.
    Say(usize, Vec<Vec<u8>>),
    /// DATA, and the message if Exim wants it.
    Data(usize, &'static str),
    /// DATA, part of a message, and no more.
    Cut(usize),
    /// The message in BDAT chunks of at most this size.
    Chunks(usize, &'static str, usize),
    Quit(usize),
    Drop(usize),
    /// A run of Exim that is not SMTP on a connection.
    Run(Vec<String>, String),
    /// The clock jumps, where there is a clock to set.
    Jump(i64),
}

const PLAIN: &str = "Subject: plain\n\nText.\n.dot\n";
/// A message of two parts.
pub const MIME: &str = "Subject: parts\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n\n\
                    --B\nContent-Type: text/plain\n\none\n--B\nContent-Type: text/html\n\ntwo\n--B--\n";
const LARGE: &str = "Subject: larger\n\n\
    0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789\n\
    0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789\n\
    0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789\n\
    0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789\n";
const BODIES: &[&str] = &[PLAIN, PLAIN, MIME, LARGE];

const SENDERS: &[&str] = &[
    "",
    "one@private.test",
    "one@private.test",
    "one@private.test",
    "two@private.test",
    "two@private.test",
    "bad@private.test",
    "predata@private.test",
    "data@private.test",
    "faulty@private.test",
    "faulty.mail@private.test",
];
/// Few: see the filters in `spec`.
const RECIPIENTS: &[&str] = &[
    "a@private.test",
    "a@private.test",
    "b@private.test",
    "c@private.test",
    "A@Private.Test",
    "bad@private.test",
    "faulty@private.test",
];
/// `AUTH PLAIN` of users alice, bob, and one that is not UTF-8; the password
/// is good.
const GOOD: &[&str] = &["AGFsaWNlAGdvb2Q=", "AGJvYgBnb29k", "AOnoAGdvb2Q="];
const WRONG: &str = "AGFsaWNlAGJhZA==";
const JUMPS: &[i64] = &[7, 613, 613, 1913, 4013, 4013, 18013, 90013, -1013, -50021, 700_027];

/// One session: one or more conversations, some at the same time.
pub fn session(random: &mut Random, jumps: bool) -> Vec<Step> {
    let mut steps = vec![];
    match random.below(12) {
        0 | 1 => not_smtp(random, &mut steps),
        2 => conversation(random, &mut steps, 0, Way::Pipe, jumps),
        3 => {
            let way = Way::Check(random.pick(&["192.0.2.7", "2001:db8::7"]));
            conversation(random, &mut steps, 0, way, jumps);
        }
        4 | 5 => {
            let mut lines: Vec<Vec<Step>> = vec![];
            for n in 0..2 + random.below(2) {
                let mut steps = vec![];
                let way = address(random);
                conversation(random, &mut steps, n, way, jumps);
                steps.reverse();
                lines.push(steps);
            }
            while !lines.is_empty() {
                let n = random.below(lines.len());
                match lines[n].pop() {
                    Some(step) => steps.push(step),
                    None => drop(lines.remove(n)),
                }
            }
        }
        _ => {
            for n in 0..1 + random.below(3) {
                let way = address(random);
                conversation(random, &mut steps, n, way, jumps);
            }
        }
    }
    if jumps && random.chance(50) {
        steps.push(Step::Jump(random.pick(JUMPS)));
    }
    steps
}

fn address(random: &mut Random) -> Way {
    Way::Daemon(random.pick(&[1, 1, 2, 2, 3, 4, 99]))
}

fn conversation(random: &mut Random, steps: &mut Vec<Step>, n: usize, way: Way, jumps: bool) {
    // A dialogue with a program on its standard input cannot be cut off
    // without its end being waited for: these always end with QUIT.
    let cut = matches!(way, Way::Daemon(_));
    steps.push(Step::Open(n, way));
    let names = ["client", "client", "client", "other", "bad", "faulty"];
    let greet = |random: &mut Random, steps: &mut Vec<Step>| {
        let verb = if random.chance(80) { "EHLO" } else { "HELO" };
        steps.push(say(n, &[format!("{verb} {}", random.pick(&names))]));
    };
    if random.chance(95) {
        greet(random, steps);
    }
    for _ in 0..1 + random.below(5) {
        match random.below(20) {
            0..=9 => transaction(random, steps, n),
            10 => greet(random, steps),
            11 => steps.push(say(n, &[format!("AUTH PLAIN {}", random.pick(GOOD))])),
            12 => {
                for _ in 0..1 + random.below(4) {
                    steps.push(say(n, &[format!("AUTH PLAIN {WRONG}")]));
                }
            }
            13 => {
                let verb = random.pick(&["VRFY", "EXPN", "VRFY", "ETRN"]);
                let again = if random.chance(30) { 27 } else { 1 + random.below(3) };
                let line = if verb == "ETRN" {
                    "ETRN #x".into()
                } else {
                    format!(
                        "{verb} {}",
                        random.pick(&["a@private.test", "a@private.test", "faulty@private.test"])
                    )
                };
                if random.chance(50) {
                    steps.push(say(n, &vec![line; again]));
                } else {
                    (0..again).for_each(|_| steps.push(say(n, std::slice::from_ref(&line))));
                }
            }
            14 => steps.push(say(n, &["STARTTLS".into()])),
            15 => steps.push(say(n, &["RSET".into()])),
            16 => steps.push(say(n, &["NOOP".into(), "FOO".into()])),
            17 => steps.push(Step::Data(n, PLAIN)),
            18 => {
                // The same commands all over again, and quickly.
                let rcpt = format!("RCPT TO:<{}>", random.pick(RECIPIENTS));
                let mail = "MAIL FROM:<one@private.test>".to_owned();
                steps.push(say(n, &[mail.clone(), rcpt.clone(), "RSET".into(), mail, rcpt]));
            }
            _ => greet(random, steps),
        }
        if jumps && random.chance(15) {
            steps.push(Step::Jump(random.pick(JUMPS)));
        }
    }
    match random.below(10) {
        0 if cut => steps.push(Step::Cut(n)),
        1 | 2 if cut => steps.push(Step::Drop(n)),
        _ => steps.push(Step::Quit(n)),
    }
}

fn say(n: usize, lines: &[String]) -> Step {
    Step::Say(n, lines.iter().map(|l| l.clone().into_bytes()).collect())
}

fn transaction(random: &mut Random, steps: &mut Vec<Step>, n: usize) {
    let mut lines = vec![];
    let size = if random.chance(30) { " SIZE=321" } else { "" };
    let more = random.pick(&["", "", " AUTH=x@private.test", " PRDR", " PRDR"]);
    lines.push(format!("MAIL FROM:<{}>{size}{more}", random.pick(SENDERS)));
    if random.chance(10) {
        lines.push(format!("MAIL FROM:<{}>", random.pick(SENDERS)));
    }
    let recipients = if random.chance(15) { 0 } else { 1 + random.below(4) };
    for _ in 0..recipients {
        lines.push(format!("RCPT TO:<{}>", random.pick(RECIPIENTS)));
        if random.chance(10) {
            lines.push("VRFY b@private.test".into());
        }
    }
    if random.chance(30) {
        lines.push(lines.last().cloned().unwrap_or_default());
    }
    if random.chance(40) {
        steps.push(say(n, &lines));
    } else {
        lines.iter().for_each(|l| steps.push(say(n, std::slice::from_ref(l))));
    }
    match random.below(10) {
        0 => steps.push(say(n, &["RSET".into()])),
        1 => {}
        2 | 3 => steps.push(Step::Chunks(n, random.pick(BODIES), 1 + random.below(400))),
        _ => {
            for _ in 0..1 + usize::from(random.chance(10)) {
                steps.push(Step::Data(n, random.pick(BODIES)));
            }
        }
    }
}

fn not_smtp(random: &mut Random, steps: &mut Vec<Step>) {
    for _ in 0..1 + random.below(3) {
        let sender = random.pick(&["one@private.test", "two@private.test", "faulty@private.test"]);
        let body = random.pick(BODIES);
        steps.push(match random.below(3) {
            0 => Step::Run(
                owned(&["-oep", "-oi", "-f", sender, "a@private.test", "b@private.test"]),
                body.to_owned(),
            ),
            1 => Step::Run(
                owned(&["-oep", "-oi", "-f", sender, "-t"]),
                format!("To: a@private.test, c@private.test\n{body}"),
            ),
            _ => {
                let mut batch = String::new();
                for _ in 0..1 + random.below(3) {
                    batch += &format!("MAIL FROM:<{sender}>\nRCPT TO:<a@private.test>\n");
                    if random.chance(50) {
                        batch += "RCPT TO:<b@private.test>\n";
                    }
                    let body = random.pick(BODIES).replace("\n.dot", "\n..dot");
                    batch += &format!("DATA\n{body}.\n");
                }
                Step::Run(owned(&["-bS"]), batch + "QUIT\n")
            }
        });
    }
}

fn owned(args: &[&str]) -> Vec<String> {
    args.iter().map(|a| (*a).to_owned()).collect()
}
