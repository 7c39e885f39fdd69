//! The replies to Postfix: `action=…`.

use std::fmt::Write as _;

use crate::event::AclStage;
use crate::policy::outcome::Outcome;
use crate::policy::word::{Verdict, Word as _};
use crate::serve::mail::event::MailVerdict;

/// The longest text in a reply: a line of SMTP has up to 512 bytes.
const TEXT_MAX: usize = 400;
/// Nothing against the event.
pub const DUNNO: &str = "DUNNO";

/// The action for a verdict at `stage`. With `header`, one is added to a message that is
/// over the limit of a policy that only observes.
#[must_use]
pub fn action(verdict: &MailVerdict, stage: AclStage, header: bool) -> String {
    let text = || one_line(&verdict.outcome.text);
    let code = if verdict.unavailable.is_some() { "3.0" } else { "7.1" };
    match verdict.outcome.verdict {
        // At the end of a message, no header can be added.
        Verdict::Log if header && stage != AclStage::Data => prepend(verdict),
        Verdict::Accept | Verdict::Log | Verdict::Delay => DUNNO.to_owned(),
        Verdict::Hold => format!("HOLD {}", text()),
        Verdict::Defer => format!("DEFER_IF_PERMIT 4.{code} {}", text()),
        Verdict::Reject => format!("REJECT 5.{code} {}", text()),
    }
}

/// A header of what the policy says. It has nothing that a client can choose.
fn prepend(verdict: &MailVerdict) -> String {
    let MailVerdict { policy, outcome: Outcome { verdict: word, reason, .. }, .. } = verdict;
    let mut action = format!("PREPEND X-Exirate: policy={policy} verdict={}", word.word());
    if let Some(reason) = reason {
        let (unit, rate) = (reason.unit.word(), reason.decision.rate);
        // Writing to a String cannot fail.
        let _ = write!(action, " unit={unit} rate={rate:.1} limit={}", reason.window());
    }
    one_line(&action)
}

/// The reply with an action.
#[must_use]
pub fn reply(action: &str) -> Vec<u8> {
    format!("action={action}\n\n").into_bytes()
}

/// The text as SMTP allows it: one line of printable ASCII, of limited length.
fn one_line(text: &str) -> String {
    let printable = text.chars().filter(|c| !c.is_control());
    printable.take(TEXT_MAX).map(|c| if c.is_ascii() { c } else { '?' }).collect()
}
