//! The daemon that decides about the accounts that start an Exim with the library themselves.

use std::path::Path;

use crate::serve::config::CALLERS;
use crate::serve::mail::surroundings::USER as UNIT;
use crate::setup::change::Change;
use crate::setup::plan::Plan;
use crate::setup::service::{Service, has_systemd};

/// What the init script reads.
const DEFAULT: &str = "/etc/default/exirate-mail";

/// Has it run for the Exim with this spool directory, as its `user`.
pub(super) fn plan(plan: &mut Plan, spool: &Path, user: &str) {
    let name = match has_systemd() {
        true => format!("{UNIT}@{user}"),
        false => {
            if !Path::new(DEFAULT).exists() {
                let text = format!(
                    "# Written by `exirate setup`: the daemon decides about accounts that start Exim \
                     themselves.\nuser={user}\ncallers={}\n",
                    spool.display()
                );
                let file = DEFAULT.into();
                plan.prepare.push(Change::Create { file, text, mode: 0o644 });
            }
            UNIT.to_owned()
        }
    };
    let service = Service::look(&name, &spool.join(CALLERS));
    if !service.is_up() {
        plan.prepare.push(Change::Start(service));
    }
}
