//! Whether the policies may block who crosses their limits, as `[on.crossing]` says.

use super::super::lint::key_of_sender;
use super::super::model::{Policies, Policy};
use super::super::word::{Field, State, Unit};
use crate::toml_file::Location;
use crate::toml_file::diagnostic::{Diagnostics, allowed_instead};

/// Adds an error for each policy that would block a key which strangers choose, and for each name
/// of `deny_policies` that is none.
pub(super) fn check(policies: &Policies, diagnostics: &mut Diagnostics) {
    let on = &policies.on_crossing;
    for name in on.deny_policies.iter().filter(|name| !policies.policies.contains_key(*name)) {
        let known: Vec<&str> = policies.policies.keys().map(String::as_str).collect();
        let instead = allowed_instead(name, &known);
        let text = format!("deny_policies: there is no policy {name:?}; {instead}");
        diagnostics.error(Location::START, text);
    }
    if on.deny.is_none() {
        return;
    }
    let is_meant = |name: &String| on.deny_policies.is_empty() || on.deny_policies.contains(name);
    for (name, policy) in policies.policies.iter().filter(|(name, _)| is_meant(name)) {
        if policy.delivery.is_at_delivery() {
            if !on.deny_policies.is_empty() {
                let text = format!(
                    "deny_policies: {name:?} is at delivery, where mail waits, and nobody is blocked"
                );
                diagnostics.error(policy.at, text);
            }
            continue;
        }
        let Some(chosen) = chosen_by_strangers(&policies.identity.chain, policy) else { continue };
        diagnostics.error(
            policy.at,
            format!(
                "deny in [on.crossing]: strangers could have others blocked by {chosen}, which {name:?} counts; \
                 write when = \"authenticated\" and key = \"auth\", or leave {name:?} out of deny_policies"
            ),
        );
    }
}

/// What of the key of a policy, or of what it counts, a stranger chooses.
fn chosen_by_strangers(chain: &[Field], policy: &Policy) -> Option<&'static str> {
    let is_account = |field: &Field| matches!(field, Field::Auth | Field::LocalAccount);
    if policy.limits(Unit::AuthFailures) {
        return Some("failed logins");
    }
    let key = key_of_sender(policy);
    if !policy.settings.key.is_empty() {
        let is_of_account = key.iter().any(is_account);
        return if is_of_account {
            None
        } else {
            Some(key.first().map_or("nothing", |f| f.word()))
        };
    }
    // What comes after a login that is always known is never reached.
    let known = policy.settings.requires(State::Authenticated);
    let last = chain.iter().position(|field| known && *field == Field::Auth);
    let reached = chain.iter().take(last.map_or(chain.len(), |last| last + 1));
    reached.copied().find(|field| !is_account(field)).map(Field::word)
}
