//! The second set of rules: how much earlier a thief is noticed where some of his recipients do
//! not exist, and how often an owner's failures raise an alarm.

use exirate::rate::habits::Sensitivity;
use kit::table::{print, row};

use super::attacks::SHAPES;
use super::mail::{Mail, alarms, caught, moments, summary};

/// The share of the strangers of the owner of this account that fail.
type Share = fn(u64) -> f64;

/// Such shares.
const OWNERS: [(&str, Share); 5] = [
    ("none", |_| 0.0),
    ("1 %", |_| 0.01),
    ("2 %", |_| 0.02),
    ("5 %", |_| 0.05),
    ("2 %, of each tenth account 15 %", |account| if account % 10 == 0 { 0.15 } else { 0.02 }),
];
/// The share of an owner's strangers that fail while a thief is at work.
const OWNER: f64 = 0.02;
/// The share of a thief's recipients that fail.
const THIEVES: [f64; 4] = [0.0, 0.1, 0.2, 0.4];

/// Prints the figures of both sets.
pub(crate) fn run(mail: &Mail) {
    let mut rows = vec![row(["strangers of owners that fail", "false alarms", "of accounts"])];
    for (name, share) in OWNERS {
        let (count, accounts) = alarms(mail, Sensitivity::Normal, share);
        rows.push(row([name, &count.to_string(), &accounts.to_string()]));
    }
    print(&rows);
    let mut rows = vec![row(["recipients: median / 95 %"])];
    rows[0].extend(THIEVES.map(|share| format!("{} % fail", 100.0 * share)));
    rows.extend(SHAPES.iter().map(|shape| row([shape.name])));
    for dead in THIEVES {
        let own = if dead > 0.0 { OWNER } else { 0.0 };
        let moments = moments(mail, Sensitivity::Normal, own);
        for (shape, row) in SHAPES.iter().zip(&mut rows[1..]) {
            let all = moments.iter().enumerate();
            row.push(summary(
                all.map(|(seed, one)| caught(one, shape, seed, [own, dead])).collect(),
            ));
        }
    }
    print(&rows);
}
