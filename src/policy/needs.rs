//! Outcomes that policies count, what must call them for that, and which front ends do not
//! see them.

use super::model::{Policies, Policy, When};
use super::word::Unit;

/// A front end for mail servers that load no library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontEnd {
    /// Postfix's policy protocol.
    PolicyProtocol,
    /// The milter.
    Milter,
}

impl FrontEnd {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::PolicyProtocol, Self::Milter];

    fn name(self) -> &'static str {
        match self {
            Self::PolicyProtocol => "Postfix's policy protocol",
            Self::Milter => "the milter",
        }
    }

    /// Whether it never counts `unit`.
    pub(crate) fn is_blind(self, unit: Unit) -> bool {
        match unit {
            Unit::AuthFailures => true,
            Unit::RejectedRecipients => self == Self::PolicyProtocol,
            _ => false,
        }
    }
}

/// Limits of `policies` that some of these front ends never count, in words.
#[must_use]
pub fn unseen<'a>(
    policies: impl IntoIterator<Item = (&'a String, &'a Policy)>,
    front_ends: &[FrontEnd],
) -> Vec<String> {
    let mut found = Vec::new();
    for (name, policy) in policies {
        for unit in outcome_units().filter(|unit| policy.limits(*unit)) {
            let blind = front_ends.iter().filter(|end| end.is_blind(unit));
            let blind: Vec<&str> = blind.map(|end| end.name()).collect();
            if !blind.is_empty() {
                let (unit, blind) = (unit.word(), blind.join(" and "));
                found.push(format!("policy {name:?}: {blind} cannot see {unit}"));
            }
        }
    }
    found
}

/// Why a policy at delivery cannot be kept by Postfix or Sendmail, which hold a message as a whole, and
/// choose by themselves when each recipient gets it; `None` if it can.
#[must_use]
pub fn unheld(policy: &Policy) -> Option<&'static str> {
    let settings = &policy.settings;
    if settings.counts_attempts() {
        return Some(
            "destination is in its key, and a message is held for all of its recipients: one slow \
             receiver would keep it from the others",
        );
    }
    let of_recipient = |when: &When| matches!(when, When::RecipientDomain(_));
    if settings.key.iter().any(|field| field.is_of_recipient())
        || settings.when.iter().any(of_recipient)
        || policy.exempt.iter().any(|entry| !entry.recipients.is_empty())
    {
        return Some("it looks at single recipients, and a message is held for all of them");
    }
    policy.limits(Unit::UniqueRecipients).then_some(
        "it limits unique_recipients, and a message is held with the number of its recipients; \
         write recipients",
    )
}

/// The options of Exim that name the ACLs in which a policy must be evaluated, for `unit` to
/// be counted.
#[must_use]
pub fn acls(unit: Unit) -> &'static [&'static str] {
    match unit {
        Unit::AuthFailures => &["acl_smtp_auth", "acl_smtp_quit", "acl_smtp_notquit"],
        Unit::RejectedRecipients => &["acl_smtp_rcpt", "acl_smtp_quit", "acl_smtp_notquit"],
        _ => &[],
    }
}

/// The limits of `policies` on what becomes of accepted mail, which `exirate serve follow` counts:
/// each unit with the policies that limit it.
pub fn of_delivery(policies: &Policies) -> impl Iterator<Item = (Unit, Vec<&str>)> {
    outcomes(policies).filter(|(unit, _)| unit.is_from_log())
}

fn outcome_units() -> impl Iterator<Item = Unit> {
    Unit::ALL.iter().rev().copied().filter(|unit| unit.is_outcome() || unit.is_share())
}

/// Units of `policies` that count outcomes, each with the policies that limit it.
pub fn outcomes(policies: &Policies) -> impl Iterator<Item = (Unit, Vec<&str>)> {
    outcome_units().filter_map(|unit| {
        let limiting = policies.policies.iter().filter(|(_, policy)| policy.limits(unit));
        let names: Vec<&str> = limiting.map(|(name, _)| name.as_str()).collect();
        (!names.is_empty()).then_some((unit, names))
    })
}

#[cfg(test)]
#[cfg(feature = "cli")]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::policy::source::compile;

    #[test]
    fn outcomes_are_named_with_those_who_do_not_see_them() {
        let text = "version = 1\n[policy.a]\ndefault.recipients = \"9/1h\"\n\
                    [policy.b]\npackage.x.auth_failures = \"9/1h\"\n\
                    [policy.c]\nbucket = { burst = 1, rate = 1, unit = \"rejected_recipients\" }\n";
        let none = |_: &Path| Err(String::new());
        let policies = compile(Path::new("p"), text, &none).policies.unwrap();
        let of = |ends: &[FrontEnd]| unseen(&policies.policies, ends);
        let failed = "policy \"b\": the milter cannot see auth_failures";
        assert_eq!(of(&[FrontEnd::Milter]), [failed]);
        let both = of(&FrontEnd::ALL);
        assert_eq!(both.len(), 2);
        assert!(both[0].contains("policy protocol and the milter cannot see auth_failures"));
        let refused = "policy \"c\": Postfix's policy protocol cannot see rejected_recipients";
        assert_eq!(both[1], refused);
        let all: Vec<_> = outcomes(&policies).collect();
        assert_eq!(all, [(Unit::AuthFailures, vec!["b"]), (Unit::RejectedRecipients, vec!["c"])]);
        // A unit that needs ACLs of its own is one of them.
        for unit in Unit::ALL {
            let has_acls = unit.is_outcome() && !unit.is_of_delivery();
            assert_eq!(acls(*unit).is_empty(), !has_acls, "{unit:?}");
        }
    }
}
