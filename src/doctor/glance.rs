//! What `exirate status` asks the doctor: what decides mail, and what is wrong, without reading
//! records and asking other servers.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use super::finding::{DAEMON, EXIM, Findings, Level};
use super::mail::Server;
use crate::mta::exim::Rules;
use crate::serve::config::Mail;

/// Where a problem means that what decides may not be reached.
const IN_THE_WAY: [&str; 4] = ["The library", "Postfix", "Sendmail", DAEMON];

/// What decides mail, as the configuration of the mail server says.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DecidedBy {
    pub(crate) server: &'static str,
    pub(crate) front_end: &'static str,
    /// How many specs there are in its lines.
    pub(crate) specs: usize,
    /// Whether it evaluates policies.
    pub(crate) evaluates: bool,
    /// Which; null: all.
    pub(crate) policies: Option<Vec<String>>,
}

/// What the doctor has examined.
pub(crate) struct Examined {
    pub(crate) findings: Findings,
    pub(super) server: Option<&'static str>,
    pub(super) decided_by: Vec<DecidedBy>,
    /// Whether a router asks about recipients.
    pub(super) at_delivery: bool,
    /// The directory of the mail server.
    pub(super) spool: Option<PathBuf>,
}

/// What the doctor sees at a glance.
#[derive(Debug)]
pub(crate) struct Glance {
    pub(crate) server: Option<&'static str>,
    pub(crate) decided_by: Vec<DecidedBy>,
    /// Whether it is asked when mail is delivered as well.
    pub(crate) at_delivery: bool,
    pub(crate) spool: Option<PathBuf>,
    pub(crate) problems: usize,
    pub(crate) warnings: usize,
    /// The first problem, or else the first warning.
    pub(crate) first: Option<String>,
    /// Why what decides may not be reached.
    pub(crate) doubt: Option<String>,
    /// Everything could be seen.
    pub(crate) complete: bool,
}

impl Glance {
    /// What was found.
    pub(super) fn of(examined: Examined) -> Self {
        let Examined { findings, server, decided_by, at_delivery, spool } = examined;
        let of = |level| findings.list.iter().filter(move |one| one.level == level);
        let in_the_way = of(Level::Problem).find(|one| IN_THE_WAY.contains(&one.about));
        let first = of(Level::Problem).next().or_else(|| of(Level::Warning).next());
        Self {
            server,
            decided_by,
            at_delivery,
            spool,
            problems: findings.count(Level::Problem),
            warnings: findings.count(Level::Warning),
            first: first.map(|one| one.text.clone()),
            doubt: in_the_way.map(|one| one.text.clone()),
            complete: !findings.is_hidden(),
        }
    }
}

impl DecidedBy {
    /// By the lines of Exim's configuration that mail comes to.
    pub(super) fn exim(rules: &Rules) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for rule in rules.limiting() {
            let front_end = rule.call.front_end();
            let at = all.iter().position(|one| one.front_end == front_end);
            let at = at.unwrap_or_else(|| {
                let policies = Some(Vec::new());
                all.push(Self { server: EXIM, front_end, specs: 0, evaluates: false, policies });
                all.len() - 1
            });
            let Some(one) = all.get_mut(at) else { continue };
            one.specs += rule.call.specs().len();
            if rule.call.policies().is_some() {
                one.evaluates = true;
                let names = rule.policies();
                one.policies = one.policies.take().zip(names).map(|(mut before, names)| {
                    before.extend(
                        names.into_iter().filter(|name| !before.contains(name)).collect::<Vec<_>>(),
                    );
                    before
                });
            }
        }
        all
    }

    /// By the daemon for another mail server.
    pub(super) fn daemon(server: &Server, mail: &Mail) -> Vec<Self> {
        let ends = [
            mail.policy.as_ref().map(|_| "policy service"),
            mail.milter.as_ref().map(|_| "milter"),
        ];
        let of = |front_end| Self {
            server: server.name(),
            front_end,
            specs: 0,
            evaluates: true,
            policies: mail.policies.clone(),
        };
        ends.into_iter().flatten().map(of).collect()
    }
}
