//! Limits that are probably not meant as they are written.

use std::collections::BTreeSet;

use super::super::model::{Amount, Bucket, Limits, Location, Policy, Window};
use super::super::word::{Every, Unit};
use crate::toml_file::diagnostic::Diagnostics;

/// Windows that can never matter, and units that are never counted.
pub(super) fn amounts(policy: &Policy, authenticated: bool, diagnostics: &mut Diagnostics) {
    for limits in policy.tables() {
        for (unit, amount) in limits.amounts() {
            windows(amount, diagnostics);
            if *unit == Unit::AuthFailures && authenticated {
                let text = "auth_failures are never counted: they come before the client is authenticated, and this policy is for authenticated clients";
                diagnostics.warning(amount.at, text);
            }
        }
    }
    zeros(policy, diagnostics);
    thousands(policy, diagnostics);
}

/// So many limits of a kind are listed one by one; an import may have thousands.
const LISTED: usize = 5;

/// Adds warnings, the last of which says how many there are more.
fn listed(mut found: Vec<(Location, String)>, diagnostics: &mut Diagnostics) {
    // A user may have two names.
    let mut seen = BTreeSet::new();
    found.retain(|one| seen.insert(one.clone()));
    let more = found.len().saturating_sub(LISTED);
    for (n, (at, text)) in found.into_iter().take(LISTED).enumerate() {
        let rest = match more {
            more if more > 0 && n + 1 == LISTED => format!("; {more} more limits are like it"),
            _ => String::new(),
        };
        diagnostics.warning(at, text + &rest);
    }
}

/// Each limit that is no bucket, and where.
fn all_windows(policy: &Policy) -> impl Iterator<Item = (Location, &Window)> {
    let amounts = policy.tables().flat_map(Limits::amounts);
    amounts.flat_map(|(_, one)| one.windows.iter().map(|w| (one.at, w)))
}

/// Each bucket, and where.
fn all_buckets(policy: &Policy) -> impl Iterator<Item = (Location, &Bucket)> {
    let buckets = policy.tables().filter_map(|limits| limits.buckets.as_ref());
    buckets.flat_map(|all| all.buckets.iter().map(|bucket| (all.at, bucket)))
}

/// Limits that block everybody, and bursts that do not burst: elsewhere, 0 may mean unlimited.
fn zeros(policy: &Policy, diagnostics: &mut Diagnostics) {
    let blocks =
        all_windows(policy).filter(|(_, window)| window.limit == 0.0).map(|(at, window)| {
            (at, format!("{:?} blocks everything: 0 is no event at all", window.text))
        });
    let bursts = all_buckets(policy).filter(|(_, bucket)| bucket.burst == 0.0).map(|(at, _)| {
        (at, "a burst of 0 blocks all but the first event of an empty bucket".to_owned())
    });
    let found = blocks.chain(bursts);
    let found = found.map(|(at, text)| (at, text + "; for no limit, write \"unlimited\""));
    listed(found.collect(), diagnostics);
}

/// Limits that are a thousand times larger where a point separates thousands.
fn thousands(policy: &Policy, diagnostics: &mut Diagnostics) {
    let windows = all_windows(policy).map(|(at, window)| (at, &*window.text));
    let texts = windows.chain(all_buckets(policy).map(|(at, bucket)| (at, &*bucket.text)));
    let found = texts.filter_map(|(at, text)| {
        let (number, rest) = text.split_at(text.find(['/', ' ']).unwrap_or(text.len()));
        let (whole, part) = number.split_once('.')?;
        let is_thousands = part.len() == 3 && part.bytes().all(|byte| byte.is_ascii_digit());
        if !is_thousands || whole.starts_with('0') || whole.is_empty() {
            return None;
        }
        let least = part.trim_end_matches('0');
        let least = if least.is_empty() { whole.to_owned() } else { format!("{whole}.{least}") };
        Some((
            at,
            format!(
                "{text:?} is a limit of {least}: the point is that of a decimal number; for thousands, \
                 write \"{whole}{part}{rest}\""
            ),
        ))
    });
    listed(found.collect(), diagnostics);
}

/// Whether each period of `one` lies in one of `other`.
fn is_within(one: &Window, other: &Window) -> bool {
    match (one.every, other.every) {
        (None, None) => one.period <= other.period,
        // A week may begin in one month and end in another.
        (Some(Every::Week), Some(Every::Month)) => false,
        (Some(one), Some(other)) => one <= other,
        // A rate may reach its limit while a new window has nothing counted, and the other way.
        (None, Some(_)) | (Some(_), None) => false,
    }
}

fn windows(amount: &Amount, diagnostics: &mut Diagnostics) {
    for (at, one) in amount.windows.iter().enumerate() {
        for (other_at, other) in amount.windows.iter().enumerate() {
            let same =
                one.limit == other.limit && (one.period, one.every) == (other.period, other.every);
            if at == other_at || same && at < other_at {
                continue;
            }
            // No more than `other.limit` in the longer period are no more in the shorter.
            if is_within(one, other) && one.limit >= other.limit {
                let (one, other) = (&one.text, &other.text);
                diagnostics.warning(
                    amount.at,
                    format!("{one:?} never matters: {other:?} is reached before it"),
                );
                break;
            }
        }
    }
}
