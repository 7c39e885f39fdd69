//! A month of an office's mail, always the same, and a theft at its end: as the log of each mail
//! server has the month, and as clients send the last of it.

use std::fmt::Write as _;

use crate::random::Random;

/// The accounts; with `@mail.test` they are logins.
pub const ACCOUNTS: [&str; 20] = [
    "alice", "dora", "emil", "flora", "gus", "hanna", "ivo", "jan", "kim", "lea", "max", "nora",
    "otto", "pia", "quin", "rosa", "sven", "tine", "udo", "vera",
];
/// How many of them a mail server of the tests knows.
const KNOWN: usize = 14;
/// How many messages come last.
pub const LAST: usize = 50;
/// How many days there are before them.
const DAYS: i64 = 31;
const DAY: i64 = 86_400;

/// A message.
#[derive(Clone, Debug)]
pub struct OfficeMail {
    /// Seconds since 1970.
    pub at: i64,
    /// One of [`ACCOUNTS`].
    pub account: &'static str,
    /// The client's address.
    pub client: &'static str,
    /// The recipients.
    pub recipients: Vec<String>,
}

/// Alice's own client: she has written from no other.
const ALICES: &str = "198.51.100.7";
/// That of all others; the last messages come from it.
const OTHERS: &str = "192.0.2.2";

/// Which of the last messages, which are sent at these times, is the first of alice's that raises
/// an alarm, as `raises` says of each, with its time and whether it is one of the last.
pub fn alarm(
    end: i64,
    sent: &[i64],
    mut raises: impl FnMut(&OfficeMail, i64, bool) -> bool,
) -> usize {
    let is_alices = |mail: &&OfficeMail| mail.account == "alice";
    for mail in month(end).iter().filter(is_alices) {
        assert!(!raises(mail, mail.at, false), "{mail:?}");
    }
    let last = last();
    let mut last = last.iter().zip(sent);
    last.position(|(mail, &at)| is_alices(&mail) && raises(mail, at, true)).expect("an alarm")
}

/// The month before `end`, without the last messages: on workdays each account writes to partners
/// it knows, seldom to a new one; one account sends a mail merge to twenty.
pub fn month(end: i64) -> Vec<OfficeMail> {
    let mut random = Random::new(35);
    let mut all = Vec::new();
    let first = (end / DAY - DAYS) * DAY;
    for day in 0..DAYS {
        let midnight = first + day * DAY;
        // The first of January 1970 was a Thursday.
        if [5, 6].contains(&((midnight / DAY + 3) % 7)) {
            continue;
        }
        for (number, account) in ACCOUNTS.into_iter().enumerate() {
            for _ in 0..random.within(3, 9) {
                let at = midnight + random.within(8 * 3600, 17 * 3600) as i64;
                let recipients = own(&mut random, number);
                all.push(mail(at, account, recipients));
            }
        }
        if day == 16 {
            let to = (0..20).map(|n| format!("customer{n}@merge.test"));
            all.extend(
                to.enumerate().map(|(n, to)| mail(midnight + 36_000 + n as i64, "gus", vec![to])),
            );
        }
    }
    all.retain(|one| one.at < end - 3600);
    all.sort_by_key(|one| one.at);
    all
}

/// The last messages, with no times: of those who use alice's password, to strangers, and of
/// others, as before.
pub fn last() -> Vec<OfficeMail> {
    let mut random = Random::new(36);
    (0..LAST)
        .map(|n| match n % 5 {
            1 | 3 => {
                let number = 1 + random.below(KNOWN - 1);
                mail(0, ACCOUNTS[number], own(&mut random, number))
            }
            _ => OfficeMail { client: OTHERS, ..mail(0, "alice", vec![stranger(n)]) },
        })
        .collect()
}

/// An address that nobody has written to.
pub fn stranger(number: usize) -> String {
    format!("ok-stranger{number}@spam.test")
}

/// Somebody that alice writes to every day.
pub fn partner() -> String {
    partner_of(0, 0)
}

fn partner_of(account: usize, number: usize) -> String {
    format!("ok-p{account}-{number}@partner.test")
}

fn mail(at: i64, account: &'static str, recipients: Vec<String>) -> OfficeMail {
    let client = if account == "alice" { ALICES } else { OTHERS };
    OfficeMail { at, account, client, recipients }
}

/// One or two recipients of this account; in the month, at times a new one.
fn own(random: &mut Random, account: usize) -> Vec<String> {
    let mut to: Vec<String> = (0..random.within(1, 3))
        .map(|_| {
            let circle = if random.chance(4) { 400 } else { 15 };
            partner_of(account, random.zipf(circle))
        })
        .collect();
    to.sort();
    to.dedup();
    to
}

/// The month as Exim logs it, with `log_selector = +received_recipients`.
pub fn exim_log(mails: &[OfficeMail]) -> String {
    let mut log = String::new();
    for (n, OfficeMail { at, account, client, recipients }) in mails.iter().enumerate() {
        let (at, to) = (stamp(*at, EXIM), recipients.join(" "));
        let _ = writeln!(
            log,
            "{at} 1vM1aC-{n:011}-1aBc <= {account}@mail.test H=h [{client}] P=esmtpsa \
             A=plain:{account}@mail.test S=900 for {to}"
        );
    }
    log
}

/// The same as Postfix logs it.
pub fn postfix_log(mails: &[OfficeMail]) -> String {
    let mut log = String::new();
    for (n, OfficeMail { at, account, client, recipients }) in mails.iter().enumerate() {
        let (at, id, login) =
            (stamp(*at, SYSLOG), format!("4{n:09}"), format!("{account}@mail.test"));
        let mut line = |process: &str, text: String| {
            let _ = writeln!(log, "{at} mx1 postfix/{process}[7]: {id}: {text}");
        };
        line("smtpd", format!("client=h[{client}], sasl_method=PLAIN, sasl_username={login}"));
        line("cleanup", format!("message-id=<{n}@mail.test>"));
        let count = recipients.len();
        line("qmgr", format!("from=<{login}>, size=900, nrcpt={count} (queue active)"));
        for to in recipients {
            let sent = "relay=none, delay=0, delays=0/0/0/0, dsn=2.0.0, status=sent (x)";
            line("smtp", format!("to=<{to}>, {sent}"));
        }
        line("qmgr", "removed".to_owned());
    }
    log
}

/// The same as Sendmail logs it.
pub fn sendmail_log(mails: &[OfficeMail]) -> String {
    let mut log = String::new();
    for (n, OfficeMail { at, account, client, recipients }) in mails.iter().enumerate() {
        let (at, login) = (stamp(*at, SYSLOG), format!("{account}@mail.test"));
        let mut line = |text: String| {
            let _ = writeln!(log, "{at} mx1 sendmail[{}]: {text}", 1000 + n);
        };
        let id = format!("6AQ{n:011}");
        line(format!("AUTH=server, relay=h [{client}], authid={login}, mech=PLAIN, bits=0"));
        line(format!(
            "{id}: from=<{login}>, size=900, class=0, nrcpts={}, msgid=<{n}@mail.test>, \
             proto=ESMTPA, daemon=MTA-v4, relay=h [{client}]",
            recipients.len()
        ));
        for to in recipients {
            line(format!(
                "{id}: to=<{to}>, delay=00:00:00, xdelay=00:00:00, mailer=relay, pri=30000, \
                 relay=[127.0.0.1], dsn=2.0.0, stat=Sent (ok)"
            ));
        }
    }
    log
}

/// The end of a date in each form.
const EXIM: (char, &str) = (' ', " +0000");
const SYSLOG: (char, &str) = ('T', "+00:00");

/// A time, with what is between date and time, and what follows.
fn stamp(at: i64, (between, after): (char, &str)) -> String {
    // As of a calendar whose years begin in March.
    let days = at.div_euclid(DAY) + 719_468;
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + days.div_euclid(146_097) * 400 + i64::from(month <= 2);
    let of_day = at.rem_euclid(DAY);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year}-{month:02}-{day:02}{between}{hour:02}:{minute:02}:{second:02}{after}")
}
