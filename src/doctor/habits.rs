//! What is known of the habits of accounts, where policies compare mail with them.

use std::path::Path;

use super::finding::{Findings, quoted};
use crate::rate::habits::YOUNG;
use crate::spool::{Options, Spool};
use crate::text::counted;

/// Notes that no account is known well enough for an alarm.
pub(super) fn look(spool: &Path, findings: &mut Findings) {
    let (mut known, mut all) = (0_u64, 0_u64);
    if Spool::require(spool).is_ok() {
        let read = Spool::open_existing(spool, Options::default()).and_then(|mut database| {
            database.for_each_habits(|_, habits| {
                all += 1;
                known += u64::from(habits.messages() >= YOUNG);
            })
        });
        // What cannot be read is said of the database.
        if read.is_err() {
            return;
        }
    }
    if known > 0 {
        return findings
            .ok(format!("habits are known of {}", counted(known, "account", "accounts")));
    }
    let mail = match all {
        0 => "no mail was learned yet".to_owned(),
        _ => format!("no account has {YOUNG} learned messages yet"),
    };
    findings
        .note(format!(
            "the policies compare mail with habits, and {mail}: few alarms are raised until then"
        ))
        .fix(format!("exirate habits learn --spool {} LOG", quoted(spool)));
}
