//! Whether mail comes to a line of an ACL, or a statement above it has ended the ACL for all
//! mail that the line is for.

use std::collections::BTreeSet;

use super::acls::Acls;
use super::calls::verb;
use super::list::{ListKind, covered};
use super::source::{Line, Position, Source};

/// Conditions of ACLs whose value stays the same from one statement to the next, if it has
/// nothing in it that changes.
const STEADY: [&str; 9] = [
    "authenticated",
    "condition",
    "domains",
    "encrypted",
    "hosts",
    "local_parts",
    "recipients",
    "sender_domains",
    "senders",
];
/// What stands in a value that may be another one the next time.
const CHANGING: [&str; 6] = ["acl_c", "acl_m", "dlfunc", "lookup", "${run", "readsocket"];
/// What an ACL does besides: it holds always.
const MODIFIERS: [&str; 14] = [
    "add_header",
    "bmi_optin",
    "continue",
    "control",
    "delay",
    "endpass",
    "log_message",
    "log_reject_target",
    "logwrite",
    "message",
    "queue",
    "remove_header",
    "set",
    "udpsend",
];
/// How deep ACLs call one another: Exim's own limit.
const DEPTH_MAX: usize = 20;

/// Something that holds for mail: a condition as it is written.
type Fact = String;
/// The client has authenticated.
const AUTHENTICATED: &str = "authenticated = *";

/// It comes by SMTP.
const BY_SMTP: &str = "by SMTP";
/// A list of all networks has no client in it that has no address.
const LOCAL_CALLERS: &str = "local programs (`exim -bs`)";
const IPV6_CLIENTS: &str = "clients with an IPv6 address (Exim takes `::` in a list for one colon)";

/// For which mail a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mail {
    All,
    /// That of clients that have authenticated.
    Authenticated,
}

/// A statement that ends the ACL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) position: Position,
    /// Its verb and conditions: `accept authenticated = *`.
    pub(crate) text: String,
    /// For whose mail it does not end it.
    pub(crate) except: Option<&'static str>,
}

/// A condition or modifier.
enum AclPart {
    Always,
    /// For all mail but that of these.
    Except(&'static str),
    Never,
    /// It may hold or not.
    Sometimes(Option<Fact>),
}

/// A statement: a verb, and its conditions with their lines.
struct Statement<'a> {
    verb: &'a str,
    parts: Vec<(&'a Line, &'a str)>,
}

impl Statement<'_> {
    /// If mail with these facts never gets past it, how it is written.
    fn ends(&self, source: &Source, facts: &BTreeSet<Fact>) -> Option<Ending> {
        if matches!(self.verb, "warn" | "require") {
            return None;
        }
        let (mut written, mut except) = (Vec::new(), None);
        for (_, text) in &self.parts {
            // What comes after it decides only how the ACL ends.
            if *text == "endpass" {
                break;
            }
            let says_why = match part(source, text, facts) {
                AclPart::Always => ListKind::of(name(text).1).is_some() && value(text) != "*",
                AclPart::Except(hosts) => {
                    except = Some(hosts);
                    true
                }
                AclPart::Sometimes(Some(fact)) if facts.contains(&fact) => true,
                AclPart::Sometimes(_) | AclPart::Never => return None,
            };
            if says_why {
                written.push(text.split_whitespace().collect::<Vec<_>>().join(" "));
            }
        }
        written.insert(0, self.verb.to_owned());
        let position = self.parts.first().map(|(line, _)| line.position.clone())?;
        Some(Ending { position, text: written.join(" "), except })
    }
}

/// The statement that all `mail` meets before it comes to `line`, on every way to it.
pub(super) fn ends_before(acls: &Acls, source: &Source, line: &Line, mail: Mail) -> Option<Ending> {
    let mut facts = BTreeSet::new();
    if mail == Mail::Authenticated {
        facts.insert(AUTHENTICATED.to_owned());
    }
    let acl = line.acl.as_deref()?;
    let options = [acls.used_by(acl), acls.perhaps_used_by(acl)];
    if options.into_iter().flatten().all(|option| option.starts_with("acl_smtp_")) {
        facts.insert(BY_SMTP.to_owned());
    }
    before(acls, source, acl, &line.position, facts, 0)
}

fn before(
    acls: &Acls,
    source: &Source,
    acl: &str,
    at: &Position,
    mut facts: BTreeSet<Fact>,
    depth: usize,
) -> Option<Ending> {
    let mut statements = statements(acls.lines(source, acl));
    let is_here = |(line, _): &(&Line, &str)| line.position == *at;
    let here = statements.iter().position(|one| one.parts.iter().any(is_here))?;
    let upto = statements.get(here)?.parts.iter().take_while(|part| !is_here(part));
    for (_, text) in upto {
        if let AclPart::Sometimes(Some(fact)) = part(source, text, &facts) {
            facts.insert(fact);
        }
    }
    statements.truncate(here);
    if let Some(ending) = statements.iter().find_map(|statement| statement.ends(source, &facts)) {
        return Some(ending);
    }
    let mut first = None;
    for site in acls.sites(acl) {
        let (caller, position) = site.as_ref().filter(|_| depth < DEPTH_MAX)?;
        let ending = before(acls, source, caller, position, facts.clone(), depth + 1)?;
        first.get_or_insert(ending);
    }
    first
}

/// Whether a condition in the same statement, above the line, is about who has called Exim: a client
/// or a program of this machine.
pub(super) fn depends_on_caller(acls: &Acls, source: &Source, acl: &str, at: &Position) -> bool {
    let is_here = |(line, _): &&(&Line, &str)| line.position == *at;
    let statements = statements(acls.lines(source, acl));
    let here = statements.iter().find(|one| one.parts.iter().any(|part| is_here(&part)));
    let above = here.into_iter().flat_map(|one| one.parts.iter().take_while(|one| !is_here(one)));
    above.into_iter().any(|(_, text)| {
        let (_, name, value) = name(text);
        let asks = ["caller_uid", "originator_uid", "sender_host_address"];
        name == "condition" && asks.iter().any(|variable| value.contains(variable))
    })
}

fn statements<'a>(lines: impl Iterator<Item = &'a Line>) -> Vec<Statement<'a>> {
    let mut statements: Vec<Statement<'a>> = Vec::new();
    for line in lines.filter(|line| !line.text.is_empty()) {
        let (verb, rest) = verb(&line.text);
        if let Some(verb) = verb {
            statements.push(Statement { verb, parts: Vec::new() });
        }
        if let Some(last) = statements.last_mut() {
            last.parts.push((line, rest));
        }
    }
    statements
}

/// The name of a condition or modifier, whether it is negated, and what follows it.
pub(super) fn name(text: &str) -> (bool, &str, &str) {
    let (negated, rest) = match text.strip_prefix('!') {
        Some(rest) => (true, rest.trim_start()),
        None => (false, text),
    };
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    let (name, value) = rest.split_at(end);
    (negated, name, value.trim_start())
}

/// The value of a condition or modifier.
pub(super) fn value(text: &str) -> &str {
    let (.., value) = name(text);
    value.strip_prefix('=').unwrap_or(value).trim()
}

/// What the value of the condition `condition` comes to; `None` where Exim takes none such.
pub(super) fn truth(value: &str) -> Option<bool> {
    let value = value.trim();
    let number = value.strip_prefix('-').unwrap_or(value);
    if number.starts_with(|c: char| c.is_ascii_digit()) {
        let digits = number.bytes().take_while(u8::is_ascii_digit);
        return Some(digits.into_iter().any(|digit| digit != b'0'));
    }
    match &*value.to_ascii_lowercase() {
        "true" | "yes" => Some(true),
        "false" | "no" | "" => Some(false),
        _ => None,
    }
}

/// What a condition comes to, as far as it can be known.
fn part(source: &Source, text: &str, facts: &BTreeSet<Fact>) -> AclPart {
    let (negated, name, _) = name(text);
    if name.is_empty() || MODIFIERS.contains(&name) {
        return AclPart::Always;
    }
    let value = value(text).split_whitespace().collect::<Vec<_>>().join(" ");
    let covered = ListKind::of(name).map(|kind| covered(source, kind, &value)).unwrap_or_default();
    let all = match (name, &*value) {
        ("condition", value) => truth(value),
        ("recipients", _) if covered.named => Some(true),
        (_, "!*") if STEADY.contains(&name) => Some(false),
        _ if covered.all => Some(true),
        _ => None,
    };
    match all {
        Some(all) if all != negated => return AclPart::Always,
        Some(_) => return AclPart::Never,
        None => {}
    }
    if name == "hosts" && !negated && covered.v4 && facts.contains(BY_SMTP) {
        return AclPart::Except(if covered.v6 { LOCAL_CALLERS } else { IPV6_CLIENTS });
    }
    if !STEADY.contains(&name) || CHANGING.iter().any(|word| value.contains(word)) {
        return AclPart::Sometimes(None);
    }
    let fact = match (name, says_authenticated(&value)) {
        ("condition", Some(yes)) if yes != negated => AUTHENTICATED.to_owned(),
        _ => format!("{}{name} = {value}", if negated { "!" } else { "" }),
    };
    AclPart::Sometimes(Some(fact))
}

/// Whether a condition only asks for a login: whether it holds with one.
fn says_authenticated(value: &str) -> Option<bool> {
    let text: String = value.chars().filter(|c| !c.is_whitespace()).collect();
    let text = text.strip_prefix("${if")?.strip_suffix('}')?;
    let yes = ["{yes}{no}", "{true}{false}", "{1}{0}"];
    let text = yes.iter().find_map(|tail| text.strip_suffix(tail)).unwrap_or(text);
    let (negated, text) = match text.strip_prefix('!') {
        Some(text) => (true, text),
        None => (false, text),
    };
    ["authenticated_id", "sender_host_authenticated"].iter().find_map(|name| {
        let empty = [format!("eq{{${name}}}{{}}"), format!("eq{{}}{{${name}}}")];
        match text {
            _ if text == format!("def:{name}") => Some(!negated),
            _ if empty.iter().any(|one| one == text) => Some(negated),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::Rules;

    const LISTS: &str = "hostlist v4 = 0.0.0.0/0\nhostlist every = +v4 : ::::/0\n\
        domainlist any_domain = x.test : *\n";

    /// What ends the ACL before the limit in the last line of `acl`.
    fn ending(acl: &str) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("conf");
        let call = "defer condition = ${dlfunc{/exirate.so}{ratelimit}{9 / 1h}";
        let acl = acl.replace("LIMIT", &format!("{call}{{$sender_host_address}}}}"));
        let acl = acl.replace("OF_LOGIN", &format!("{call}{{${{lc:$authenticated_id}}}}}}"));
        std::fs::write(&conf, format!("{LISTS}acl_smtp_rcpt = a\nbegin acl\na:\n{acl}\n")).unwrap();
        let rules = Rules::read(&conf, [], None).unwrap().rules;
        rules.last().unwrap().ending.as_ref().map(|ending| ending.text.clone())
    }

    #[test]
    fn a_line_that_no_mail_comes_to_is_known() {
        for (acl, expected) in [
            ("accept\nLIMIT", Some("accept")),
            ("deny message = no\n log_message = x\nLIMIT", Some("deny")),
            ("accept hosts = *\n endpass\n verify = recipient\nLIMIT", Some("accept")),
            ("accept hosts = 0.0.0.0/0 : ::::/0\nLIMIT", Some("accept hosts = 0.0.0.0/0 : ::::/0")),
            (
                "accept hosts = <; ::/1; 8000::/1; 10.0.0.1; *\nLIMIT",
                Some("accept hosts = <; ::/1; 8000::/1; 10.0.0.1; *"),
            ),
            ("accept hosts = +every\nLIMIT", Some("accept hosts = +every")),
            (
                "accept hosts = 128.0.0.0/1 : 0.0.0.0/2 : 64.0.0.0/2\nLIMIT",
                Some("accept hosts = 128.0.0.0/1 : 0.0.0.0/2 : 64.0.0.0/2"),
            ),
            ("accept hosts = 128.0.0.0/1 : 0.0.0.0/2\nLIMIT", None),
            ("accept hosts = !10.0.0.1 : *\nLIMIT", None),
            ("accept hosts = mail.example.org : *\nLIMIT", None),
            ("accept hosts = !+every\nLIMIT", None),
            ("accept domains = +any_domain\nLIMIT", Some("accept domains = +any_domain")),
            ("accept recipients = *\nLIMIT", Some("accept")),
            // A bounce has no sender.
            ("accept senders = *\nLIMIT", None),
            ("accept senders = * : :\nLIMIT", Some("accept senders = * : :")),
            ("accept sender_domains = *\nLIMIT", Some("accept")),
            ("accept condition = 2\nLIMIT", Some("accept")),
            ("accept condition = maybe\nLIMIT", None),
            ("accept hosts = +relay\nLIMIT", None),
            ("accept !hosts = *\nLIMIT", None),
            ("accept condition = no\nLIMIT", None),
            ("warn\nrequire verify = sender\nLIMIT", None),
            ("LIMIT\naccept", None),
            // What is meant for logins.
            (
                "accept authenticated = *\n control = submission\nOF_LOGIN",
                Some("accept authenticated = *"),
            ),
            ("accept authenticated = *\nLIMIT", None),
            ("accept hosts = +a : +b\n authenticated = *\nOF_LOGIN", None),
            (
                "accept condition = ${if def:authenticated_id}\nOF_LOGIN",
                Some("accept condition = ${if def:authenticated_id}"),
            ),
            (
                "accept !condition = ${if eq{$authenticated_id}{} {yes}{no}}\nOF_LOGIN",
                Some("accept !condition = ${if eq{$authenticated_id}{} {yes}{no}}"),
            ),
            // What is meant for those that an earlier statement accepts.
            ("accept hosts = +relay\nwarn hosts = +relay\n condition = yes\nLIMIT", None),
            (
                "accept hosts =  +relay\nwarn hosts = +relay\n acl = b\nb:\nLIMIT",
                Some("accept hosts = +relay"),
            ),
            ("warn acl = b\naccept\nb:\nLIMIT", None),
            ("accept\nwarn acl = b\nb:\nLIMIT", Some("accept")),
            ("warn acl = b\naccept\nwarn acl = b\nb:\nLIMIT", None),
            // What may change in between.
            ("accept condition = $acl_m_x\nwarn condition = $acl_m_x\n acl = b\nb:\nLIMIT", None),
            ("accept verify = sender\nwarn verify = sender\n acl = b\nb:\nLIMIT", None),
        ] {
            assert_eq!(ending(acl).as_deref(), expected, "{acl}");
        }
    }
}
