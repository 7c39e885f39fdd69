//! The ACLs of Exim that have to ask the policies.

use crate::mta::exim::Rules;

/// An option that names such an ACL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stage {
    pub(super) option: &'static str,
    /// The file to include, up to `.conf`, and without what the socket adds to its name.
    pub(super) file: &'static str,
    /// The macro that keeps `exirate.conf` from setting the option: the administrator does.
    pub(super) own: Option<&'static str>,
}

/// All of them.
pub(super) const STAGES: [Stage; 6] = [
    Stage { option: "acl_smtp_rcpt", file: "acl_policy", own: None },
    Stage { option: "acl_smtp_data", file: "acl_policy", own: None },
    Stage { option: "acl_smtp_auth", file: "acl_policy", own: Some("RATELIMIT_OWN_AUTH") },
    Stage { option: "acl_not_smtp", file: "acl_policy", own: Some("RATELIMIT_OWN_NOT_SMTP") },
    Stage { option: "acl_smtp_quit", file: "acl_policy_end", own: Some("RATELIMIT_OWN_QUIT") },
    Stage {
        option: "acl_smtp_notquit",
        file: "acl_policy_end",
        own: Some("RATELIMIT_OWN_NOTQUIT"),
    },
];

impl Stage {
    /// Whether mail comes to a line that asks the policies.
    pub(super) fn is_reached(&self, rules: &Rules) -> bool {
        rules.rules.iter().any(|rule| {
            rule.call.policies().is_some()
                && rule.is_reached()
                && rule.ending_of_users.is_none()
                && rule.used_by.iter().any(|option| option == self.option)
        })
    }

    /// The value of the option, if the configuration sets it.
    pub(super) fn value(&self, rules: &Rules) -> Option<String> {
        let mut options = rules.source.main_options();
        options.find(|(name, ..)| *name == self.option).map(|(_, value, _)| value.into_owned())
    }

    /// Whether the option names an ACL that is not one of exirate's.
    pub(super) fn is_own(&self, rules: &Rules) -> bool {
        self.value(rules).is_some_and(|value| !value.contains("acl_exirate_"))
    }

    /// The ACLs that the option leads to directly: those of its value that are defined.
    pub(super) fn acls(&self, rules: &Rules) -> Vec<String> {
        let Some(value) = self.value(rules) else { return Vec::new() };
        let words = value.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-');
        let mut found: Vec<String> = words
            .filter(|word| rules.acls.defined.contains_key(*word))
            .map(str::to_owned)
            .collect();
        found.dedup();
        found
    }
}

/// Those to whose lines no mail comes.
pub(super) fn missing(rules: &Rules) -> Vec<Stage> {
    STAGES.into_iter().filter(|stage| !stage.is_reached(rules)).collect()
}
