//! The cost of a policy in a session, compared with that of a check of a spec.

use std::fmt::Write as _;

use crate::effort::Effort;
use crate::exim::Check;
use crate::session::{Case, measure, names};
use kit::table::ratio;

/// A policy for clients by their HELO names, with `windows` of recipients, and so
/// many other users.
fn policy(windows: &[&str], users: usize) -> Check {
    let mut text = format!(
        "version = 1\n[policy.p]\nkey = \"helo\"\nupdate = \"strict\"\n\
         default.recipients = {windows:?}\n[policy.p.user]\n"
    );
    for n in 0..users {
        let _ = writeln!(text, "\"user{n}@example.org\" = {{ recipients = \"{}/1h\" }}", n + 1);
    }
    Check::Policy(text)
}

/// Prints the table, and the ratios.
pub(crate) fn run(effort: Effort) {
    let spec = "100000 / 1h / per_rcpt / strict / $sender_helo_name".to_owned();
    let case = |name, ours| Case { name, native: None, before: None, ours };
    let four = ["100k/1h", "200k/2h", "500k/1d", "900k/1w"];
    let costs = measure(
        "one session",
        vec![
            case("one check of a spec", Check::Ours(vec![spec])),
            case("policy, one window, 10 users", policy(&four[..1], 10)),
            case("policy, one day of the calendar", policy(&["100k daily"], 10)),
            case("policy, one window, many users", policy(&four[..1], effort.users)),
            case("policy, four windows, 10 users", policy(&four, 10)),
        ],
        &names(1),
        effort,
    );
    if let [spec, ten, day, many, four] = costs[..] {
        println!(
            "(a policy takes {} times as long as a spec; a day of the calendar {} times as long as \
             an average; with {} users {} times as long as with 10; with four windows {} times as \
             long as with one)",
            ratio(ten, spec),
            ratio(day, ten),
            effort.users,
            ratio(many, ten),
            ratio(four, ten)
        );
    }
}
