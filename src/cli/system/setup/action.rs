//! `exirate setup --enforce`, and back: `--observe`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;

use super::{SetupCommand, log};
use crate::cli::shared::confirm;
use crate::cli::shared::screen::{Screen, note};
use crate::cli::shared::table::{self, Column};
use crate::cli::{Failure, Outcome};
use crate::policy::changes::are_applied;
use crate::policy::image::PolicyFile;
use crate::policy::model::Policies;
use crate::policy::source::{FILE, compile};
use crate::policy::word::Action;
use crate::rate::Timestamp;
use crate::setup::{MailServer, policy_file};
use crate::spool::{Enforcement, EventKind, EventReader, LoggedEvent, Options, Spool};
use crate::standing::key_text;
use crate::standing::logged::{decisive, key, limit_text};
use crate::text;
use crate::text::time::now;
use crate::toml_file::text::load;

/// How far back crossings are shown.
const SECONDS: i64 = 7 * 24 * 60 * 60;
/// How many senders are shown.
const SHOWN: usize = 20;

impl SetupCommand {
    /// Whether the policy file has a policy that refuses.
    pub(super) fn is_enforced() -> bool {
        let path = Path::new(FILE);
        let policies = load(path).ok().and_then(|text| compile(path, &text, &load).policies);
        policies.is_some_and(|policies| !enforcing(&policies).is_empty())
    }

    /// Has the policies refuse, or only observe.
    pub(super) fn set_action(
        &self,
        screen: &mut Screen<'_>,
        server: &dyn MailServer,
        action: &str,
    ) -> Result<Outcome, Failure> {
        let path = Path::new(FILE);
        let old = load(path).map_err(|why| {
            Failure::new(format!("{why}; `exirate setup` writes a policy file to start from"))
        })?;
        let policies = |text: &str| {
            let compiled = compile(path, text, &load);
            compiled.policies.ok_or_else(|| {
                Failure::new(format!("{FILE} has errors: see `exirate policy lint`"))
            })
        };
        let before = policies(&old)?;
        let Some(new) = policy_file::with_action(&old, action) else {
            return Err(Failure::new(by_hand(&before, action)));
        };
        let mut after = policies(&new)?;
        let mut with_alerts = false;
        let mut new = new;
        if action == "enforce" {
            (new, with_alerts) = self.with_alerts_for(screen, new, &after)?;
            after = policies(&new)?;
            // Nothing would be refused where the mail server does not ask.
            let plan = server.plan()?;
            if !(plan.is_empty() && plan.by_hand.is_empty()) {
                note("lines that ask the policies are missing: see `exirate setup --check`");
            }
        }
        if old == new && is_in_use(server.spool(), &after) {
            writeln!(screen, "{FILE} says so already, and is in use: action = \"{action}\"")?;
            return Ok(Outcome::Fine);
        }
        if action == "enforce" {
            would_refuse(screen, server.spool(), &enforcing(&after))?;
        }
        if self.dry_run {
            return Ok(Outcome::Fine);
        }
        screen.flush()?;
        let question = match action {
            "enforce" => "refuse from now on what is over a limit",
            _ => "refuse nothing from now on",
        };
        if !confirm::plainly(&[], question, self.yes)? {
            writeln!(screen, "nothing was changed")?;
            return Ok(Outcome::Found);
        }
        self.setup(server).set_policies(path, &old, &new)?;
        if with_alerts {
            self.setup(server).start_alerts()?;
        }
        log(server.spool(), &format!("setup --{action}"));
        let names: Vec<&str> = if action == "enforce" {
            enforcing(&after).into_iter().collect()
        } else {
            after.policies.keys().map(String::as_str).collect()
        };
        let state = if action == "enforce" { "now refuse" } else { "now only observe" };
        writeln!(screen, "{state}: {}", names.join(", "))?;
        match with_alerts {
            true => Self::test_alerts(screen, server.spool()),
            false => Ok(Outcome::Fine),
        }
    }
}

/// Whether these policies are in use in the spool directory `spool`.
fn is_in_use(spool: &Path, policies: &Policies) -> bool {
    let file = PolicyFile::open(spool);
    file.image().is_ok_and(|image| are_applied(image, policies))
}

/// The policies that refuse.
fn enforcing(policies: &Policies) -> BTreeSet<&str> {
    let all = policies.policies.iter();
    let some = all.filter(|(_, policy)| policy.settings.action == Action::Enforce);
    some.map(|(name, _)| name.as_str()).collect()
}

/// What to change in a policy file of one's own.
fn by_hand(policies: &Policies, action: &str) -> String {
    let others = policies
        .policies
        .iter()
        .filter(|(_, policy)| (policy.settings.action == Action::Enforce) != (action == "enforce"));
    let names: Vec<String> = others.map(|(name, _)| format!("[policy.{name}]")).collect();
    if names.is_empty() {
        return format!("all policies of {FILE} {action} already");
    }
    format!(
        "{FILE} has no line `action = …` before its first table, which would be that of all \
         policies: write `action = \"{action}\"` in {}, then run `exirate policy apply`",
        names.join(", ")
    )
}

/// What one sender has exceeded.
struct Over {
    count: usize,
    last: LoggedEvent,
}

/// Prints whose mail these policies would have refused lately.
fn would_refuse(
    screen: &mut Screen<'_>,
    directory: &Path,
    policies: &BTreeSet<&str>,
) -> Result<(), Failure> {
    let events = if Spool::require(directory).is_ok() {
        let mut spool = Spool::open_existing(directory, Options::default())?;
        spool.read_events(&mut EventReader::new(EventKind::Crossings), now(), true)?
    } else {
        Vec::new()
    };
    let since = now().seconds.saturating_sub(SECONDS);
    let mut found: BTreeMap<(String, String), Over> = BTreeMap::new();
    // Accounts whose habits raised an alarm: they were over no limit.
    let mut suspected = BTreeSet::new();
    for event in events {
        let policy = String::from_utf8_lossy(&event.texts.policy).into_owned();
        let is_wanted = event.at.seconds >= since
            && event.enforcement == Enforcement::Observed
            && policies.contains(&*policy);
        if is_wanted && event.is_alarm() {
            suspected.insert(key_text::shown(key(&event)));
        } else if is_wanted {
            let over = found
                .entry((key_text::shown(key(&event)), policy))
                .or_insert(Over { count: 0, last: event.clone() });
            over.count += 1;
            over.last = event;
        }
    }
    if !suspected.is_empty() {
        writeln!(
            screen,
            "mail unlike their habits in the last week: {}; see `exirate habits`",
            text::counted(suspected.len(), "account", "accounts")
        )?;
    }
    if found.is_empty() {
        writeln!(screen, "in the last week, nobody was over a limit of these policies")?;
        return Ok(());
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by_key(|(_, over)| std::cmp::Reverse(over.count));
    writeln!(screen, "over a limit in the last week, and would have been refused:")?;
    let rows = || {
        found.iter().take(SHOWN).map(|((key, policy), over)| {
            let window = decisive(&over.last);
            let limit = limit_text(&over.last, &window);
            let last = text::local(Timestamp { micros: 0, ..over.last.at });
            [key.clone(), over.count.to_string(), policy.clone(), limit, last]
        })
    };
    table::cells(screen, COLUMNS, rows)?;
    if found.len() > SHOWN {
        writeln!(screen, "and {} more: exirate events --since 7d", found.len() - SHOWN)?;
    }
    Ok(())
}

const COLUMNS: [Column; 5] = [
    Column::words("KEY"),
    Column::numbers("TIMES"),
    Column::words("POLICY").spare(1),
    Column::words("LIMIT").spare(2),
    Column::words("LAST").spare(3),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Algorithm, Check, Update};
    use crate::rate::habits::Sensitivity;
    use crate::spool::EventDetails;
    use crate::store::{Learn, Sending, SendingStage, Store as _, habits_key};

    #[test]
    fn an_alarm_of_habits_is_over_no_limit() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(folder.path(), Options::default()).unwrap();
        let would_refuse = |policies: &[&str]| {
            let mut out = Vec::new();
            let policies = policies.iter().copied().collect();
            would_refuse(&mut Screen::of(&mut out, None), folder.path(), &policies).unwrap();
            String::from_utf8(out).unwrap()
        };
        let at = || Timestamp { seconds: now().seconds - 60, micros: 0 };
        let observed = EventDetails {
            policy: b"outbound",
            enforcement: Enforcement::Observed,
            ..EventDetails::default()
        };
        let mut name = Vec::new();
        let raised = (1..2000_u64).any(|number| {
            let recipients = [number.wrapping_mul(0x9e37_79b9_7f4a_7c15)];
            let sending = Sending {
                key: habits_key(b"auth:alice", &mut name),
                network: None,
                recipients: &recipients,
                sensitivity: Sensitivity::High,
                stage: SendingStage::Sent,
                learn: Learn::Always,
            };
            spool.learn(&sending, at).unwrap().alarm.is_some()
        });
        assert!(raised && spool.has_events());
        spool.describe(&observed);
        let nobody = "in the last week, nobody was over a limit of these policies\n";
        let alarm = "mail unlike their habits in the last week: 1 account; see `exirate habits`\n";
        assert_eq!(would_refuse(&["outbound"]), format!("{alarm}{nobody}"));
        assert_eq!(would_refuse(&["other"]), nobody);
        let algorithm = Algorithm::MovingAverage { limit: 1.0, period: 3600.0 };
        let check = Check { update: Update::Strict, ..Check::new("1h/per_rcpt/bob", algorithm) };
        spool.decide_one(&check, at).unwrap();
        spool.describe(&observed);
        let text = would_refuse(&["outbound"]);
        let rows = text.strip_prefix(alarm).unwrap();
        assert!(rows.starts_with("over a limit in the last week, and would have been"), "{text}");
        assert!(rows.contains("\nbob ") && !rows.contains("alice"), "{text}");
    }
}
