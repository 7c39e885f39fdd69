//! Whether the contacts of accounts are those of users, and other mailboxes than theirs.

use super::super::model::{MemberKind, Policies};
use super::super::word::Field;
use crate::toml_file::diagnostic::Diagnostics;

/// The setting, which only a user has.
pub(super) const CONTACT: &str = "contact";

/// Adds an error for each contact that is of no user, or is the mailbox of the account itself: who
/// has stolen it reads what is written to it.
pub(super) fn check(policies: &Policies, diagnostics: &mut Diagnostics) {
    let folding = &policies.identity.folding;
    let mut folded = String::new();
    for (name, policy) in &policies.policies {
        let others = [MemberKind::Customer, MemberKind::Domain].map(|kind| policy.members(kind));
        let others =
            others.into_iter().flat_map(|members| members.iter().map(|(_, one)| &one.limits));
        let others = others.chain(policy.packages.values());
        for limits in others.chain([&policy.default]).filter(|one| one.habits.contact.is_some()) {
            let text = format!(
                "contact is of one account: write it in a table such as [policy.{name}.user.\"alice@example.org\"], \
                 or in a column of the file of users"
            );
            diagnostics.error(limits.at, text);
        }
        for (user, member) in policy.users.iter() {
            let Some(contact) = &member.limits.habits.contact else { continue };
            if !folding.field_into(Field::Auth, contact, &mut folded) {
                continue;
            }
            if *folded == *user {
                let text = format!(
                    "contact: {contact} is the mailbox of {user} itself, which a thief of its password \
                     reads; name another one"
                );
                diagnostics.error(member.limits.at, text);
            }
        }
    }
}
