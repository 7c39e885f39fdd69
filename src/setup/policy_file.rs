//! The policy file to start from: that of the package, filled in for this server. It begins
//! with `action = "observe"`, a line that `--enforce` and `--observe` change.

use std::fmt::Write as _;

use crate::identity::network::Cidr;
use crate::policy::needs::FrontEnd;
use crate::policy::word::{OnHabits, Unit, Word as _};
use crate::sys::users;

/// The shipped file, whose text is filled in.
const TEMPLATE: &str = include_str!("../../exim/policy.toml");
/// Accounts of list managers, of which a message goes to many.
pub(crate) const LIST_MANAGERS: [&str; 4] = ["list", "mailman", "sympa", "majordomo"];
/// Accounts of web servers.
pub(crate) const WEB_SERVERS: [&str; 4] = ["www-data", "apache", "nginx", "http"];

/// What is known of this server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Its name.
    pub(crate) name: String,
    /// The domains that it receives mail for.
    pub(crate) domains: Vec<String>,
    /// The domain by which its mail server qualifies names without one.
    pub(crate) qualify: Option<String>,
    /// The networks that may relay by it without a login, but for its own addresses.
    pub(crate) relays: Vec<String>,
    /// The host that its mail leaves by.
    pub(crate) smarthost: Option<String>,
    /// The accounts of [`WEB_SERVERS`] that exist.
    pub(crate) web_servers: Vec<String>,
    /// The accounts of [`LIST_MANAGERS`] that exist.
    pub(crate) list_managers: Vec<String>,
    /// By which its mail server asks, if it loads no library: what that cannot count, the file
    /// does not limit.
    pub(crate) front_end: Option<FrontEnd>,
}

impl Facts {
    /// What is known of the server `name`. `domains` and `networks` may have other items, such
    /// as the names of tables.
    pub(super) fn of(
        name: String,
        mut domains: Vec<String>,
        mut networks: Vec<String>,
        smarthost: Option<String>,
    ) -> Self {
        let is_name =
            |item: &str| item.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b));
        domains.retain(|item| item.contains('.') && is_name(item));
        let mut seen = Vec::new();
        domains.retain(|item| {
            let is_new = !seen.contains(item);
            seen.push(item.clone());
            is_new
        });
        // The name of the machine is the last that people would write.
        domains.sort_by_key(|item| *item == name);
        let is_loopback = |item: &str| item.starts_with("127.") || item.starts_with("::1");
        networks.retain(|item| !is_loopback(item) && Cidr::parse(item).is_ok());
        let existing = |names: &[&str]| {
            let exists = |name: &&&str| users::id_of((**name).as_ref()).is_some();
            names.iter().filter(exists).map(|&name| name.to_owned()).collect()
        };
        Self {
            name,
            domains,
            qualify: None,
            relays: networks,
            smarthost,
            web_servers: existing(&WEB_SERVERS),
            list_managers: existing(&LIST_MANAGERS),
            front_end: None,
        }
    }
}

/// A domain by which a mail server qualifies, if it is one that logins can have: `localhost` is none.
pub(super) fn qualifying(domain: &str) -> Option<String> {
    let domain = domain.trim().to_ascii_lowercase();
    let is_name = domain.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b));
    let ends = |c: char| c == '.' || c == '-';
    let is_whole = !domain.starts_with(ends) && !domain.ends_with(ends);
    (is_name && is_whole && domain.contains('.')).then_some(domain)
}

/// What comes before the domain in the line that adds it to logins.
const QUALIFY: &str = "# The mail server adds this domain to names without one: so the login alice is the same user as\n# alice@";

/// The lines that add `domain` to logins.
fn qualify_lines(domain: &str) -> String {
    format!("{QUALIFY}{domain}, everywhere. A local account is not.\nqualify = \"{domain}\"\n")
}

/// `text` without these lines.
fn without_qualify(text: &str) -> String {
    let lines = text.split_inclusive('\n');
    let domain =
        lines.clone().find_map(|line| line.strip_prefix("qualify = \"")?.split('"').next());
    domain.map_or_else(|| text.to_owned(), |domain| text.replacen(&qualify_lines(domain), "", 1))
}

/// Puts `new` in the place of `old`, which is in the shipped file.
fn fill(text: &mut String, old: &str, new: &str) {
    debug_assert!(text.contains(old), "{old}");
    *text = text.replacen(old, new, 1);
}

/// Without the limits that a front end is blind to, and without the paragraphs that have no others.
fn with_what_it_sees(text: &str, front_end: FrontEnd) -> String {
    let limited = |line: &str| {
        let line = line.strip_prefix("default.").unwrap_or(line);
        Unit::ALL.iter().find(|unit| line.starts_with(&format!("{} = ", unit.word())))
    };
    let seen = text.split("\n\n").filter_map(|paragraph| {
        let is_seen = |line: &&str| limited(line).is_none_or(|unit| !front_end.is_blind(*unit));
        let lines: Vec<&str> = paragraph.split('\n').filter(is_seen).collect();
        let limits = |lines: &[&str]| lines.iter().any(|line| limited(line).is_some());
        let had_limits = limits(&paragraph.split('\n').collect::<Vec<_>>());
        (!had_limits || limits(&lines)).then(|| lines.join("\n"))
    });
    seen.collect::<Vec<_>>().join("\n\n")
}

/// The policy file for a server.
pub(crate) fn text(facts: &Facts) -> String {
    let mut text = TEMPLATE.to_owned();
    let head = text.split_once("\n\n").map_or("", |(head, _)| head).to_owned();
    let domains = if facts.domains.is_empty() { &facts.name } else { &facts.domains.join(", ") };
    let new = format!(
        "# The policies of exirate on {}, which receives mail for\n# {domains}.\n#\n# \
         `exirate setup` has written this file. Change it, and put it in use with\n#\n#     \
         exirate policy apply\n#\n# which checks it first. `exirate policy lint` only checks it. \
         `exirate list` and `exirate events`\n# show what the limits would refuse.",
        facts.name
    );
    fill(&mut text, &head, &new);
    fill(&mut text, "\naction = \"enforce\"\n", "\naction = \"observe\"\n");
    let domain = facts.domains.first().unwrap_or(&facts.name);
    text = text.replace("@example.org", &format!("@{domain}"));
    if let Some(front_end) = facts.front_end {
        text = with_what_it_sees(&text, front_end);
    }
    if let Some(domain) = &facts.qualify {
        let fold = "fold = { case = true }\n";
        fill(&mut text, fold, &(fold.to_owned() + &qualify_lines(domain)));
    }
    if !facts.relays.is_empty() {
        let relays = facts.relays.iter().map(|net| format!("\"{net}\"")).collect::<Vec<_>>();
        let relays = relays.join(", ");
        fill(
            &mut text,
            "fold = { case = true }\n",
            &format!(
                "fold = {{ case = true }}\n# The networks that may relay without a login.\nrelay \
                 = [{relays}]\n"
            ),
        );
        fill(
            &mut text,
            "Exempt your own relays and networks, whose users share\n# an address:\n# \
             [[policy.inbound.exempt]]\n# match = [\"192.0.2.0/24\"]\n",
            &format!(
                "The networks that may relay have a\n# policy of their own, \
                 below.\n[[policy.inbound.exempt]]\nmatch = [{relays}]\nreason = \"may relay \
                 without a login\"\n"
            ),
        );
        text += "\n# The networks that may relay without a login, each address: a machine that was \
                 broken into\n# sends from there, too.\n[policy.relays]\nwhen = [\"relay\", \
                 \"!authenticated\"]\nkey = \"client\"\ntext = \"Over the limit of {limit} {unit} \
                 in {period}; try again in {retry_after}\"\ndefault.recipients = [\"2000/1h\", \
                 \"20000/1d\"]\n";
    }
    let mut accounts = String::new();
    for account in &facts.web_servers {
        let _ = write!(
            accounts,
            "# The forms of all sites that run as this account share its limit.\n\
             [policy.web.user.{account}]\nrecipients = [\"100/1h\", \"500/1d\"]\n"
        );
    }
    for account in &facts.list_managers {
        let _ = write!(
            accounts,
            "# The list manager.\n[policy.web.user.{account}]\nrecipients = \"unlimited\"\n"
        );
    }
    let example = "# A list manager or a ticket system:\n# [policy.web.user.list]\n# recipients = \
                   \"unlimited\"\n";
    let keeps_example = facts.list_managers.is_empty();
    fill(&mut text, example, &(accounts + if keeps_example { example } else { "" }));
    if let Some(smarthost) = &facts.smarthost {
        fill(
            &mut text,
            "# Bounces to each recipient",
            &format!(
                "# Mail leaves by {smarthost}. What that host refuses comes back as bounces of \
                 this server\n# to the local sender, which no policy counts; what it bounces \
                 later arrives from outside and\n# counts here.\n#\n# Bounces to each recipient"
            ),
        );
    }
    text
}

/// The file with the line `action = …` of all policies changed; `None` if it has no such line.
pub(crate) fn with_action(text: &str, action: &str) -> Option<String> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        if trimmed.starts_with('[') {
            return None;
        }
        let value = trimmed.strip_prefix("action").map(str::trim_start);
        if let Some(value) = value.and_then(|rest| rest.strip_prefix('=')) {
            let old = value.trim_start().trim_start_matches(['"', '\'']);
            let length = old.bytes().take_while(u8::is_ascii_alphabetic).count();
            let at = start + line.len() - old.len();
            let (before, after) = (text.get(..at)?, text.get(at + length..)?);
            return Some(format!("{before}{action}{after}"));
        }
        start += line.len();
    }
    None
}

/// The table that says of habits what `exirate setup --habits` changes.
pub(crate) const HABITS_TABLE: &str = "[policy.outbound.default]";

/// The file with the line `habits = …` of [`HABITS_TABLE`] changed, which is a comment where they
/// are off; `None` if it has no such line.
pub(crate) fn with_habits(text: &str, on: OnHabits) -> Option<String> {
    let (mut start, mut is_there) = (0, false);
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        if trimmed.starts_with('[') {
            is_there = trimmed.trim_end() == HABITS_TABLE;
        }
        let content = trimmed.strip_prefix('#').unwrap_or(trimmed).trim_start();
        let value = content.strip_prefix("habits").map(str::trim_start);
        if is_there && value.is_some_and(|rest| rest.starts_with('=')) {
            let new = match on {
                OnHabits::Off => "# habits = \"observe\"\n".to_owned(),
                on => format!("habits = \"{}\"\n", on.word()),
            };
            let (before, after) = (text.get(..start)?, text.get(start + line.len()..)?);
            return Some(format!("{before}{new}{after}"));
        }
        start += line.len();
    }
    None
}

/// The lines of the shipped file that alerts begin from, without the marks of comments.
const ALERTS: [&str; 2] = ["[on.crossing]", "mail = "];

/// The file with alerts by mail to this address; with `None`, with the lines of the shipped file in
/// their place, where they are those of [`with_alerts`].
pub(crate) fn with_alerts(text: &str, to: Option<&str>) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let plain = |line: &str| line.trim_start().trim_start_matches('#').trim().to_owned();
    let is_head = |line: &&&str| plain(line) == ALERTS[0];
    let head = lines.iter().position(|line| is_head(&line) && !line.trim_start().starts_with('#'));
    let head = head.or_else(|| lines.iter().position(|line| is_head(&line)));
    let mut new: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
    let both = match to {
        Some(to) => [format!("{}\n", ALERTS[0]), format!("{}{to:?}\n", ALERTS[1])],
        None => [format!("# {}\n", ALERTS[0]), format!("# {}\"\"\n", ALERTS[1])],
    };
    let [first, mail] = both;
    if let Some(at) = head {
        let is_comment = lines.get(at).is_some_and(|line| line.trim_start().starts_with('#'));
        let of_table = |line: &&String| {
            let line = line.trim_start();
            !line.starts_with('[') && line.starts_with('#') == is_comment && !line.is_empty()
        };
        let table = new.iter().skip(at + 1).take_while(of_table);
        let mail_at = table.map(|line| plain(line)).position(|line| {
            line.strip_prefix("mail").is_some_and(|rest| rest.trim_start().starts_with('='))
        });
        if let Some(line) = new.get_mut(at) {
            *line = first;
        }
        match mail_at {
            Some(n) => new.splice(at + 1 + n..at + 2 + n, [mail]).for_each(drop),
            None => new.insert(at + 1, mail),
        }
    } else if to.is_some() {
        let at = new.iter().position(|line| line.trim_start().starts_with('['));
        let at = at.unwrap_or(new.len());
        new.splice(at..at, [first, mail, "\n".to_owned()]).for_each(drop);
    }
    new.concat()
}

/// Whether `text` is `ours`, but for the lines that setup changes when it is asked to.
pub(crate) fn is_unchanged(text: &str, ours: &str) -> bool {
    let plain = |text: &str| {
        let text = with_habits(text, OnHabits::Off).unwrap_or_else(|| text.to_owned());
        let text = with_action(&text, "observe").unwrap_or(text);
        // An older setup has not written it.
        without_qualify(&with_alerts(&text, None))
    };
    plain(text) == plain(ours)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::policy::lint::lint;
    use crate::policy::needs::unseen;
    use crate::policy::source::compile;
    use crate::policy::word::Action;
    use crate::toml_file::diagnostic::Diagnostics;

    fn facts() -> Facts {
        let all = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Facts {
            name: "mail.example.net".to_owned(),
            domains: all(&["example.net", "example.com"]),
            qualify: Some("example.net".to_owned()),
            relays: all(&["192.0.2.0/24", "2001:db8::/32"]),
            smarthost: Some("smtp.example.com".to_owned()),
            web_servers: all(&["www-data"]),
            list_managers: all(&["list"]),
            front_end: None,
        }
    }

    #[test]
    fn the_file_of_every_server_is_sound_and_refuses_nothing() {
        let least = Facts { name: "host".to_owned(), ..Facts::default() };
        let of = |front_end| Facts { front_end: Some(front_end), ..facts() };
        let each = FrontEnd::ALL.map(of);
        for facts in each.into_iter().chain([facts(), least]) {
            let text = text(&facts);
            let compiled = compile(Path::new("policy.toml"), &text, &|_| Err(String::new()));
            let errors = compiled.diagnostics.sorted();
            assert!(errors.is_empty(), "{errors:?}\n{text}");
            let policies = compiled.policies.unwrap();
            assert!(policies.policies.values().all(|one| one.settings.action == Action::Observe));
            let mut warnings = Diagnostics::default();
            lint(&policies, 0, &mut warnings);
            let warnings = warnings.sorted();
            assert!(warnings.is_empty(), "{warnings:?}\n{text}");
            let front_ends: Vec<FrontEnd> = facts.front_end.into_iter().collect();
            let unseen = unseen(&policies.policies, &front_ends);
            assert!(unseen.is_empty(), "{unseen:?}");
            let limits = |unit: Unit| policies.policies.values().any(|one| one.limits(unit));
            for unit in [Unit::AuthFailures, Unit::RejectedRecipients] {
                let is_seen = front_ends.iter().all(|one| !one.is_blind(unit));
                assert_eq!(limits(unit), is_seen, "{unit:?} {front_ends:?}");
            }
            assert_eq!(policies.identity.folding.qualify, facts.qualify);
            let older = super::text(&Facts { qualify: None, ..facts.clone() });
            assert!(is_unchanged(&older, &text) && is_unchanged(&text, &older));
            assert_eq!(policies.identity.relay.len(), facts.relays.len());
            // Two are of failed logins alone.
            let sees_logins = front_ends.iter().all(|one| !one.is_blind(Unit::AuthFailures));
            let expected = 5 + usize::from(!facts.relays.is_empty()) + 2 * usize::from(sees_logins);
            assert_eq!(policies.policies.len(), expected);
            assert!(!text.contains("example.org"), "{text}");
            assert!(policies.policies.values().all(|one| !one.uses_habits()));
            let on = with_habits(&text, OnHabits::Hold).unwrap();
            let compiled = compile(Path::new("policy.toml"), &on, &|_| Err(String::new()));
            let outbound = compiled.policies.unwrap().policies["outbound"].uses_habits();
            assert!(outbound && is_unchanged(&on, &text), "{on}");
            assert_eq!(with_habits(&on, OnHabits::Off).as_ref(), Some(&text));
            let alerts = with_alerts(&text, Some("ops@example.net"));
            let compiled = compile(Path::new("policy.toml"), &alerts, &|_| Err(String::new()));
            let policies = compiled.policies.unwrap();
            let mut warnings = Diagnostics::default();
            lint(&policies, 0, &mut warnings);
            assert!(warnings.sorted().is_empty(), "{alerts}");
            let mail = policies.on_crossing.mail;
            assert_eq!(mail.as_deref(), Some("ops@example.net"), "{alerts}");
            assert!(is_unchanged(&alerts, &text));
            let enforced = with_action(&text, "enforce").unwrap();
            assert!(is_unchanged(&enforced, &text) && !is_unchanged(&(on + "#\n"), &text));
            assert_eq!(enforced.len(), text.len());
            assert_eq!(with_action(&enforced, "observe").as_ref(), Some(&text));
        }
    }

    #[test]
    fn alerts_are_written_into_any_file() {
        let to = |text: &str| with_alerts(text, Some("a@b.test"));
        let mail = "[on.crossing]\nmail = \"a@b.test\"\n";
        let policy = "[policy.a]\n";
        let with = format!("version = 1\n\n{mail}{policy}");
        for before in ["# [on.crossing]\n# mail = \"x@y\"\n", "[on.crossing]\nmail='x@y'\n"] {
            assert_eq!(to(&format!("version = 1\n\n{before}{policy}")), with);
        }
        assert_eq!(to(&format!("version = 1\n{policy}")), format!("version = 1\n{mail}\n{policy}"));
        assert_eq!(to("version = 1\n"), format!("version = 1\n{mail}\n"));
        let log = format!("[on.crossing]\nlog = true\n{policy}");
        assert_eq!(to(&log), format!("{mail}log = true\n{policy}"));
    }

    #[test]
    fn only_the_line_of_all_policies_is_changed() {
        let own = "version = 1\n[policy.a]\naction = \"observe\"\n";
        assert_eq!(with_action(own, "enforce"), None);
        let text = "action='observe' # for now\n[policy.a]\n";
        assert_eq!(
            with_action(text, "enforce").as_deref(),
            Some("action='enforce' # for now\n[policy.a]\n")
        );
    }
}
