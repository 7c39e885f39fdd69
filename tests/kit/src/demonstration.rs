//! The log of a month that can be looked at: honest people who write in the daytime, a
//! newsletter on a Tuesday and a stolen account on a Saturday night; always the same.

use std::fmt::Write as _;

use crate::Random;

/// Recipients an hour, and what the month's newsletter is over.
pub const POLICY: &str = "version = 1
[policy.users]
when = \"authenticated\"
key = [\"auth\"]
default.recipients = \"100/1h\"
";

/// The first of October 2026, a Thursday.
const DAYS: u32 = 31;

/// A message, to be put in the order of time.
struct Message {
    /// In seconds since the month began.
    at: u32,
    login: String,
    client: String,
    recipients: Vec<String>,
}

/// The month, with this many honest people.
pub fn log(people: u32) -> String {
    let mut numbers = Random::new(7);
    let mut below = |end: u32| numbers.below(end as usize) as u32;
    let mut all = Vec::new();
    for person in 0..people {
        let login = format!("user{person:06}@example.org");
        // Some write a lot, most a little.
        let messages = 1 + (40 / (1 + person % 40)) + below(3);
        for _ in 0..messages {
            let mut day = below(DAYS);
            if [2, 3].contains(&(day % 7)) && below(10) > 0 {
                day = day.saturating_sub(2); // seldom at the weekend
            }
            let hour = 8 + (below(6) + below(6));
            let at = day * 86_400 + hour * 3600 + below(3600);
            let recipients = 1 + below(3) * below(4);
            all.push(Message {
                at,
                login: login.clone(),
                client: format!("192.0.2.{}", person % 250),
                recipients: (0..recipients).map(|n| format!("r{n}.{person}@example.net")).collect(),
            });
        }
    }
    // Alice writes to her club, on Tuesday the 20th at 10 o'clock: 12 times 15 members.
    for part in 0..12 {
        all.push(Message {
            at: 19 * 86_400 + 10 * 3600 + part * 60,
            login: "alice@example.org".to_owned(),
            client: "192.0.2.7".to_owned(),
            recipients: (0..15).map(|n| format!("member{}@example.com", part * 15 + n)).collect(),
        });
    }
    // Carl's password is stolen: on Saturday the 24th, from 3 o'clock on, from everywhere.
    for part in 0..900 {
        all.push(Message {
            at: 23 * 86_400 + 3 * 3600 + part * 8,
            login: "carl@example.org".to_owned(),
            client: format!("203.0.113.{}", below(250)),
            recipients: (0..3).map(|n| format!("x{}@example.edu", part * 3 + n)).collect(),
        });
    }
    all.sort_by_key(|message| message.at);
    let mut log = String::new();
    for (number, message) in all.iter().enumerate() {
        line(&mut log, number, message);
    }
    log
}

fn line(log: &mut String, number: usize, message: &Message) {
    let Message { at, login, client, recipients } = message;
    let (day, hour, minute, second) = (1 + at / 86_400, at / 3600 % 24, at / 60 % 60, at % 60);
    writeln!(
        log,
        "2026-10-{day:02} {hour:02}:{minute:02}:{second:02} 1v{:04}-{number:011}-1aBc <= {login} \
         H=(pc.test) [{client}] P=esmtpsa A=plain:{login} S={} for {}",
        number % 10_000,
        1000 + number % 5000,
        recipients.join(" ")
    )
    .unwrap();
}

/// Lines of people with these logins, one message each, at noon of the second.
pub fn lines_of(logins: &[String]) -> String {
    let mut log = String::new();
    for (number, login) in logins.iter().enumerate() {
        let message = Message {
            at: 86_400 + 12 * 3600,
            login: login.clone(),
            client: "192.0.2.9".to_owned(),
            recipients: vec!["x@example.net".to_owned()],
        };
        line(&mut log, 20_000_000 + number, &message);
    }
    log
}
