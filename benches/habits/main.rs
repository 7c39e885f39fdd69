//! How well stolen accounts are noticed, and what that costs a message.
//!
//! The mail of real accounts, in the format of the reference's data, is learned from, and attacks
//! are put into it. What is counted, and how, is as the reference does it, so that the tables can
//! be compared with its own.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod account;
mod attacks;
mod cost;
mod failures;
mod innocents;
mod mail;
mod python;

use std::collections::HashSet;

use exirate::rate::habits::Sensitivity;
use kit::table::{head, print, row};

use attacks::SHAPES;
use mail::{DAY, Mail, alarms, caught, load, moments, summary, warm};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|one| one != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => cost::run(100_000),
        ["--accounts", count] => cost::run(count.parse().expect("--accounts N")),
        ["--streams"] => std::print!("{}", kit::habits::streams()),
        ["--data", ref files @ ..] if !files.is_empty() => files.iter().for_each(|file| {
            let mail = load(file);
            head(file);
            false_alarms(&mail);
            attacked(&mail);
            failures::run(&mail);
        }),
        ["--innocents", ref files @ ..] if !files.is_empty() => files.iter().for_each(|file| {
            head(file);
            innocents::run(&load(file));
        }),
        _ => panic!(
            "{arguments:?}: expected nothing, --accounts N, --streams, --data FILE... or \
             --innocents FILE..."
        ),
    }
}

/// Prints how often the mail as it is raises an alarm.
fn false_alarms(mail: &Mail) {
    let mut days = 0.0;
    let (mut active, mut accounts) = (0, 0);
    for messages in mail.values() {
        if let Some(first) = warm(messages) {
            accounts += 1;
            days +=
                (messages[messages.len() - 1].at - messages[first].at) as f64 / DAY as f64 + 1.0;
            let of_days = messages[first..].iter().map(|one| one.at / DAY);
            active += of_days.collect::<HashSet<_>>().len();
        }
    }
    println!(
        "{} messages of {} accounts; {accounts} accounts tested for {days:.0} days, active on \
         {active}",
        mail.values().map(Vec::len).sum::<usize>(),
        mail.len()
    );
    let mut rows = vec![row([
        "sensitivity",
        "threshold",
        "false alarms",
        "of accounts",
        "per 1,000 days",
        "95 % bound",
        "per 1,000 active",
    ])];
    for sensitivity in Sensitivity::ALL {
        let (alarms, hit) = alarms(mail, sensitivity, |_| 0.0);
        rows.push(row([
            sensitivity.word(),
            &format!("{}", sensitivity.threshold()),
            &alarms.to_string(),
            &hit.to_string(),
            &format!("{:.3}", 1000.0 * f64::from(alarms) / days),
            &format!("{:.3}", 1000.0 * upper_bound(alarms) / days),
            &format!("{:.3}", 1000.0 * f64::from(alarms) / active as f64),
        ]));
    }
    print(&rows);
}

/// The 95 % upper bound of the mean of a Poisson distribution of which `seen` were seen.
fn upper_bound(seen: u32) -> f64 {
    let (mut low, mut high) =
        (f64::from(seen), f64::from(seen) + 6.0 + 4.0 * f64::from(seen + 1).sqrt());
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        let (mut term, mut total) = ((-middle).exp(), (-middle).exp());
        for n in 1..=seen {
            term *= middle / f64::from(n);
            total += term;
        }
        if total > 0.05 { low = middle } else { high = middle }
    }
    high
}

/// Prints after how many recipients attacks are noticed.
fn attacked(mail: &Mail) {
    let [low, normal, high] = Sensitivity::ALL.map(Sensitivity::word);
    let mut rows = vec![row(["recipients: median / 95 %", low, normal, high])];
    rows.extend(SHAPES.iter().map(|shape| row([shape.name])));
    for sensitivity in Sensitivity::ALL {
        let moments = moments(mail, sensitivity, 0.0);
        for (shape, row) in SHAPES.iter().zip(&mut rows[1..]) {
            let all = moments.iter().enumerate();
            row.push(summary(all.map(|(seed, one)| caught(one, shape, seed, [0.0; 2])).collect()));
        }
    }
    print(&rows);
}
