//! What a log does not show of what policies need to know.

use super::convert::Unshown;
use super::decided::Totals;
use super::input::Input;
use crate::event::AclStage;
use crate::logs::notes;
use crate::policy::model::{Identity, Limits, Policies, Policy};
use crate::policy::word::{Field, Unit};
use crate::text::counted_or_no;

/// What the selected policies of a file use.
struct Used<'p> {
    identity: &'p Identity,
    policies: Vec<(&'p str, &'p Policy)>,
}

/// What is to be known of a simulation by the policies `only` of a file, one sentence each.
pub fn of(
    policies: &Policies,
    only: &str,
    stages: &[AclStage],
    input: &Input,
    totals: &Totals,
) -> Vec<String> {
    let is_selected =
        |name: &str| only.trim() == "*" || only.split(',').any(|one| one.trim() == name);
    let used = Used {
        identity: &policies.identity,
        policies: policies
            .policies
            .iter()
            .map(|(name, policy)| (name.as_str(), policy))
            .filter(|(name, _)| is_selected(name))
            .collect(),
    };
    let mut notes = of_log(input, totals);
    notes.extend(used.of_log(&input.unshown, stages));
    notes.extend(used.of_keys());
    notes
}

/// What any policy should know of the log.
fn of_log(input: &Input, totals: &Totals) -> Vec<String> {
    let lines = &input.counts;
    let mut notes = Vec::new();
    notes.extend(notes::notes(&input.read, &lines.unused));
    notes.extend(notes::notes_of_origin(lines.without_origin, lines.ambiguous, lines.before));
    if lines.given_up > 0 {
        notes.push(format!(
            "not all recipients of {} may be known: too many messages waited for their \
             deliveries; log_selector = +received_recipients shows them at once",
            counted_or_no(lines.given_up, "message", "messages")
        ));
    }
    if totals.back > 0 {
        notes.push(format!(
            "the log is not in the order of time: {} more than 10 minutes earlier than what comes \
             before, counted as if no time had passed",
            counted_or_no(totals.back, "attempt is", "attempts are")
        ));
    }
    notes
}

/// That there are more limits and keys than are remembered.
pub fn omitted(attempts: u64) -> Option<String> {
    (attempts > 0).then(|| {
        format!(
            "{} refused by limits and keys that are not listed, as there are too many; they are in \
             the totals",
            counted_or_no(attempts, "more attempt is", "more attempts are")
        )
    })
}

impl Used<'_> {
    /// What the log does not show, of what the policies use at `stages`.
    fn of_log(&self, unshown: &Unshown, stages: &[AclStage]) -> Vec<String> {
        let mut notes = Vec::new();
        let in_sessions = self
            .units(|unit| unit == Unit::Connections || unit.is_outcome() && !unit.is_of_delivery());
        if unshown.without_session > 0 && !in_sessions.is_empty() {
            notes.push(format!(
                "{} of {} events are not assigned to a session by the log; sessions are guessed from \
                 clients and logins, so {} may differ; log_selector = +incoming_port +smtp_connection \
                 shows sessions",
                unshown.without_session,
                unshown.without_session + unshown.with_session,
                in_sessions.join(", ")
            ));
        }
        if unshown.without_login > 0 {
            notes.push(format!(
                "for {}, the log does not show whether the client had logged in, or which login it \
                 used: they count for no login",
                counted_or_no(unshown.without_login, "refused command", "refused commands")
            ));
        }
        let of_recipients = self.units(Unit::is_of_recipients);
        if unshown.without_recipients > 0 && !of_recipients.is_empty() {
            notes.push(format!(
                "for {}, the log does not show the recipients: each counts as one; log_selector = \
                 +received_recipients shows them",
                counted_or_no(unshown.without_recipients, "message", "messages")
            ));
        }
        let of_either = self.units(|unit| unit.is_of_bytes() || unit.is_of_recipients());
        if unshown.refused_after_data > 0 && !of_either.is_empty() {
            notes.push(format!(
                "for {} refused after DATA, no log shows recipients and size: each counts as one \
                 recipient and no bytes",
                counted_or_no(unshown.refused_after_data, "message", "messages")
            ));
        }
        if unshown.without_size > 0 && !self.units(Unit::is_of_bytes).is_empty() {
            notes.push(format!(
                "for {}, the log does not show the size: they count no bytes",
                counted_or_no(unshown.without_size, "message", "messages")
            ));
        }
        if !self.units(Unit::is_of_bytes).is_empty() {
            notes.push(
                "bytes are those of S=, about 200 more a message than Exim knows at DATA"
                    .to_owned(),
            );
        }
        if stages.contains(&AclStage::Connect) && unshown.connections == 0 {
            notes.push(
                "the log does not show connections, so nothing is decided when a client connects; \
                 log_selector = +smtp_connection shows them"
                    .to_owned(),
            );
        }
        notes
    }

    /// What no log shows, of what the policies count by.
    fn of_keys(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let by_script = self.with(|policy, chain| {
            let key = if policy.settings.key.is_empty() { chain } else { &policy.settings.key };
            key.contains(&Field::Script)
        });
        if !by_script.is_empty() {
            notes.push(format!(
                "no log shows the script of a web host, by which {by_script} counts: it is not known \
                 here"
            ));
        }
        let by_package = self.with(|policy, _| !policy.packages.is_empty());
        if !by_package.is_empty() {
            notes.push(format!(
                "packages that the ACL hands over ({{package=NAME}}) are not in a log: {by_package} has \
                 those of the file only"
            ));
        }
        notes
    }

    /// Those of these units that a policy counts.
    fn units(&self, is: impl Fn(Unit) -> bool) -> Vec<&'static str> {
        let is_used = |unit: &&Unit| {
            self.policies
                .iter()
                .any(|(_, policy)| policy.tables().any(|limits| counts(limits, **unit)))
        };
        Unit::ALL.iter().filter(|unit| is(**unit)).filter(is_used).map(|unit| unit.word()).collect()
    }

    /// The names of the policies of which this is true.
    fn with(&self, is: impl Fn(&Policy, &Vec<Field>) -> bool) -> String {
        let chain = &self.identity.chain;
        let with = self.policies.iter().filter(|(_, policy)| is(policy, chain));
        with.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }
}

fn counts(limits: &Limits, unit: Unit) -> bool {
    let is = |amounts: &crate::policy::model::ByUnit| {
        amounts.get(&unit).is_some_and(|amount| !amount.windows.is_empty())
    };
    let buckets = limits.buckets.iter().flat_map(|buckets| &buckets.buckets);
    is(&limits.each) || is(&limits.total) || buckets.into_iter().any(|bucket| bucket.unit == unit)
}
