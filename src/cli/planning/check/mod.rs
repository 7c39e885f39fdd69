//! `exirate check`: what would be decided for an event, by a spec or by policies.

mod policy;
mod spec;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use clap::Args;

use crate::cli::shared::database::Common;
use crate::cli::shared::screen::Screen;
use crate::cli::{Failure, Json, Outcome};
use crate::policy::decided::DecisionsJson;

/// Show what a spec or policies would decide for an event
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  Would the next message of alice pass? Nothing is counted:
    exirate check '100 / 1h / strict' --key alice
  What does this spec mean for a message of 2500 bytes?
    exirate check '10k / 1d / per_byte / leaky' --key web --cost 2500
  Count an event of size 5 against a key of your own:
    exirate check '20 / 1h / strict' --key backup --cost 5 --count
  Would the policy outbound accept the next message of alice?
    exirate check outbound --auth alice --recipient bob@example.net
  A bounce, in an hour:
    exirate check bounces --sender '' --recipient bob@example.net --at '2026-11-20 12:50:37'
  What would a new policy file say, with what is counted now?
    exirate check '*' --auth alice --recipient bob@example.net --policy policy.toml

An argument with a slash is a spec, anything else names policies. Nothing is counted without
--count. RATE is the rate with this event, LEFT how many more would pass, NEXT when one more
would.

Exit status: 0 a spec is under the limit, or allowed; a policy would accept it (accept, log or
delay); 1 a spec is at or over the limit, or denied; a policy would hold, defer or reject it;
2 an error.

An argument with a slash is a spec. The decision is that of ${dlfunc{...}{ratelimit}{SPEC}{KEY}}
outside Exim's ACLs: every mode counts, and every call counts again. Nothing is counted without
--count.

Anything else is a policy. The decision is that of ${dlfunc{...}{policy}{POLICY}} in Exim's
ACLs for the next such event, with the policies in use; nothing is counted. The event is a
message: RCPT for each recipient, then DATA; --stage names one stage of it. What is not known
of it is not held against it. Each window is a line: RATE is the rate with this event, LEFT
how many more would pass, and NEXT when one more would.

An override (`exirate allow`, `exirate deny`) decides here as it does in Exim.")]
#[command(add = Json::when::<spec::DecisionJson<'_>>("Of a spec")
    .or::<DecisionsJson<'_>>("Of policies"))]
pub(in crate::cli) struct Check {
    /// Check this `m / p / options / key`, as in Exim's configuration, where nothing is
    /// expanded; or this policy, several separated by commas, or * for all
    #[arg(value_name = "SPEC|POLICY")]
    by: OsString,

    #[command(flatten, next_help_heading = "With a spec")]
    spec: spec::SpecOptions,

    #[command(flatten, next_help_heading = "The event (a spec uses only the recipient)")]
    policy: policy::PolicyOptions,

    #[command(flatten, next_help_heading = "Options")]
    common: Common,
}

impl Check {
    pub(in crate::cli) fn run(&self, screen: &mut Screen<'_>) -> Result<Outcome, Failure> {
        let shown = self.by.to_string_lossy();
        let refused =
            |option, of| Failure::new(format!("--{option} is for {of}, and {shown:?} is not one"));
        if self.by.as_bytes().contains(&b'/') {
            if let Some(option) = self.policy.given() {
                return Err(refused(option, "a policy"));
            }
            let recipients = &self.policy.event.recipients;
            return self.spec.check(&self.by, recipients, &self.common, screen);
        }
        if let Some(option) = self.spec.given() {
            return Err(refused(option, "a spec such as '100 / 1h / strict'"));
        }
        self.policy.check(&shown, &self.common, screen)
    }
}
