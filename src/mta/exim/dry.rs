//! Dry sessions (`exim -bh`): which lines of the ACLs mail comes to, by what Exim does.
//!
//! Exim gets a copy of its configuration as it prints it, in memory, in which each line that
//! limits writes a mark to the log, which in a dry session is standard error. A copy, because a
//! dry session evaluates what is in the ACLs: it would count, ask other programs, and
//! run them. What does so is not evaluated in the copy, and passes.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;

use rustix::fs::{MemfdFlags, Mode, fchmod, memfd_create};

use super::calls::verb;
use super::list;
use super::order;
use super::source::{Line, definition, label};
use super::{Exim, Rules};

/// What is written to the log at a line that limits, before its number.
const MARK: &str = "exirate-dry";
/// Options that ask others, end a session, or run something.
const DROPPED: [&str; 17] = [
    "event_action",
    "helo_lookup_domains",
    "helo_try_verify_hosts",
    "helo_verify_hosts",
    "host_lookup",
    "hosts_proxy",
    "perl_at_start",
    "perl_startup",
    "recipients_max",
    "rfc1413_hosts",
    "smtp_accept_max_nonmail",
    "smtp_accept_max_nonmail_hosts",
    "smtp_ratelimit_hosts",
    "dns_retrans",
    "dns_retry",
    "smtp_max_unknown_commands",
    "smtp_max_synprot_errors",
];
/// What is in their place.
const MAIN: &str = "helo_lookup_domains =\nsmtp_accept_max_nonmail_hosts =\ndns_retrans = 1s\n\
                    dns_retry = 1\n";
/// Conditions that ask others or count.
const ASKING: [&str; 14] = [
    "atrn",
    "decode",
    "delay",
    "dkim_signers",
    "dkim_status",
    "dmarc_status",
    "dnslists",
    "malware",
    "ratelimit",
    "seen",
    "spam",
    "spf",
    "spf_guess",
    "udpsend",
];
/// What an expansion asks others, counts or runs by.
const EXPANSIONS: [&str; 4] = ["dlfunc", "perl", "readsocket", "run"];
/// Lookups that read files; others ask.
const FILES: [&str; 9] = [
    "cdb",
    "dbm",
    "dbmjz",
    "dbmnz",
    "dsearch",
    "iplsearch",
    "lsearch",
    "nwildlsearch",
    "wildlsearch",
];
/// Modifiers whose value decides nothing.
const TEXTS: [&str; 7] =
    ["add_header", "continue", "log_message", "logwrite", "message", "remove_header", "queue"];
/// The ACLs that a dry session runs.
const RUN: [&str; 6] = [
    "acl_smtp_connect",
    "acl_smtp_data",
    "acl_smtp_helo",
    "acl_smtp_mail",
    "acl_smtp_predata",
    "acl_smtp_rcpt",
];
/// Names, networks and addresses of the configuration that are tried.
const TRIED_MAX: usize = 6;

/// What dry sessions showed.
#[derive(Debug, Default)]
pub(crate) struct Dry {
    /// How many there were.
    pub(crate) sessions: usize,
    /// What Exim says where it does not understand an ACL, and how it answers then.
    pub(crate) errors: Vec<String>,
    /// The rules whose lines were come to, by their numbers, and whether by a client with an
    /// IPv6 address.
    reached: BTreeSet<(usize, bool)>,
    /// The ACLs that were run.
    run: BTreeSet<String>,
}

impl Dry {
    /// Whether a session came to the line of the rule of this number; `None` where none could.
    pub(super) fn comes_to(&self, rules: &Rules, number: usize) -> Option<bool> {
        let rule = rules.rules.get(number)?;
        let acl = rule.acl.as_deref().filter(|acl| !acl.starts_with('/'))?;
        // All calls of a line have the mark of the first.
        let same = |one: &super::Rule| one.position == rule.position && one.acl == rule.acl;
        let number = rules.rules.iter().position(same)?;
        // An ending that does not hold for some says nothing of these.
        let excepts = rule.ending.as_ref().is_some_and(|ending| ending.except.is_some());
        let of_ipv6 = self.reached.contains(&(number, true)) && !excepts;
        if of_ipv6 || self.reached.contains(&(number, false)) {
            return Some(true);
        }
        // A session has the address of a client, and programs have none.
        if order::depends_on_caller(&rules.acls, &rules.source, acl, &rule.position) {
            return None;
        }
        let options = rule.used_by.iter().chain(&rule.perhaps_used_by);
        let mut roots = options.map(|option| RUN.contains(&option.as_str()));
        let is_run = roots.all(|is_run| is_run) && rules.acls.defined.contains_key(acl);
        // Where none of the ACLs of the options was run, nothing is known.
        let mut firsts = rules
            .source
            .main_options()
            .filter(|(name, ..)| rule.used_by.iter().any(|by| by == name));
        (is_run && firsts.any(|(_, value, _)| self.run.contains(value.trim()))).then_some(false)
    }
}

/// A client.
struct DryClient {
    address: IpAddr,
    login: bool,
}

impl Exim {
    /// Tries the ACLs in dry sessions; `None` where it cannot.
    pub(crate) fn dry(&self, rules: &Rules) -> Option<Dry> {
        if !rustix::process::geteuid().is_root() || rules.rules.is_empty() || rules.source.unplaced
        {
            return None;
        }
        let copy = copy(rules);
        let memory = memfd_create("exirate-dry", MemfdFlags::CLOEXEC).ok()?;
        fchmod(&memory, Mode::from_raw_mode(0o600)).ok()?;
        let mut file = std::fs::File::from(memory);
        file.write_all(copy.as_bytes()).ok()?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let exim = Self { config: Some(path.into()), ..self.clone() };
        let names = exim.expand(&["$primary_hostname", "$qualify_domain"]).ok()?;
        let samples = Samples::of(rules, &names);
        let with_data = rules.rules.iter().any(|rule| {
            let options = rule.used_by.iter().chain(&rule.perhaps_used_by);
            options.into_iter().any(|option| option.ends_with("data"))
        });
        let mut dry = Dry::default();
        for address in &samples.clients {
            for login in [true, false] {
                let client = DryClient { address: *address, login };
                let replies = exim.session(&client, &samples.dialogue(), &mut dry)?;
                if let Some(accepted) = samples.accepted(&replies).filter(|_| with_data) {
                    exim.session(&client, &accepted, &mut dry)?;
                }
            }
        }
        dry.errors.sort();
        dry.errors.dedup();
        Some(dry)
    }

    /// The replies to a dialogue.
    fn session(&self, client: &DryClient, dialogue: &str, dry: &mut Dry) -> Option<Vec<String>> {
        let address = client.address.to_string();
        let mut arguments = vec!["-bh", &address];
        // Mail of users comes by the port for it.
        let (mut port, login) = ("127.0.0.1.25", ["-oMaa", "plain", "-oMai", "exirate-dry"]);
        if client.login {
            port = "127.0.0.1.587";
            arguments.extend(login);
        }
        arguments.extend(["-oMi", port]);
        let output = self.run_with(&arguments, dialogue.as_bytes()).ok()?;
        dry.sessions += 1;
        let mut failed = false;
        for line in output.stderr.lines() {
            // While a message is received, its id is before the mark.
            let mark = line.strip_prefix("LOG: ").and_then(|log| log.rsplit_once(MARK));
            if let Some((id, number)) = mark
                && !id.trim().contains(' ')
            {
                let number = number.trim().parse::<usize>();
                dry.reached.extend(number.map(|number| (number, client.address.is_ipv6())));
            }
            if let Some(acl) =
                line.strip_prefix(">>> using ACL \"").and_then(|acl| acl.split('"').next())
            {
                dry.run.insert(acl.to_owned());
            }
            failed |= line.contains("condition test error in ");
            let Some(log) = line.strip_prefix("LOG: ") else { continue };
            let is_fault =
                ["unknown ACL verb", "invalid \"condition\" value", "ACL error", "error in ACL"];
            if is_fault.iter().any(|fault| log.contains(fault))
                || failed && log.contains("rejected")
            {
                // What is before it is about this session.
                let why = log.split_once(": ").map_or(log, |(_, why)| why);
                let why = why.strip_prefix("condition test deferred: ").unwrap_or(why);
                dry.errors.push(why.trim().to_owned());
            }
            failed &= !log.contains("rejected");
        }
        Some(output.stdout.lines().map(str::to_owned).collect())
    }
}

/// Who and what is tried: of the kinds that configurations distinguish, and of what this one
/// names.
struct Samples {
    clients: Vec<IpAddr>,
    senders: Vec<String>,
    recipients: Vec<String>,
}

impl Samples {
    fn of(rules: &Rules, names: &[String]) -> Self {
        let mut clients: Vec<IpAddr> = ["192.0.2.77", "2001:db8::77", "127.0.0.1"]
            .iter()
            .flat_map(|one| one.parse())
            .collect();
        let own = names.iter().map(|name| format!("postmaster@{name}"));
        let mut recipients: Vec<String> = own.chain(["a7f@example.net".to_owned()]).collect();
        let mut senders = vec![String::new(), "a7f@example.net".to_owned()];
        senders.extend(recipients.first().cloned());
        let (mut networks, mut domains) = (BTreeSet::new(), BTreeSet::new());
        for line in &rules.source.lines {
            let (name, value) = named_list(line);
            for item in list::items(value) {
                let item = item.trim_start_matches('!').trim();
                let address = item.split('/').next().unwrap_or_default();
                match name {
                    "hosts" | "hostlist" => networks.extend(address.parse::<IpAddr>().ok()),
                    "domains" | "sender_domains" | "domainlist" if item.contains('.') => {
                        let domain = item.strip_prefix("*.").unwrap_or(item);
                        let is_name = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
                        domains.extend(domain.chars().all(is_name).then(|| domain.to_owned()));
                    }
                    _ => {}
                }
            }
        }
        clients.extend(networks.into_iter().take(TRIED_MAX));
        for domain in domains.into_iter().take(TRIED_MAX) {
            recipients.push(format!("postmaster@{domain}"));
            senders.push(format!("postmaster@{domain}"));
        }
        clients.dedup();
        recipients.dedup();
        Self { clients, senders, recipients }
    }

    /// What is said in a session, without a message.
    fn dialogue(&self) -> String {
        let mut text = "EHLO exirate-dry.invalid\r\n".to_owned();
        for sender in &self.senders {
            let _ = write!(text, "MAIL FROM:<{sender}>\r\n");
            for recipient in &self.recipients {
                let _ = write!(text, "RCPT TO:<{recipient}>\r\n");
            }
            text.push_str("RSET\r\n");
        }
        text + "QUIT\r\n"
    }

    /// A dialogue with a message to the first recipient that was accepted.
    fn accepted(&self, replies: &[String]) -> Option<String> {
        let is_last = |reply: &&String| reply.as_bytes().get(3) == Some(&b' ');
        let mut replies = replies.iter().filter(is_last).skip_while(|one| !one.starts_with("220 "));
        replies.nth(1)?;
        for sender in &self.senders {
            let _mail = replies.next()?;
            for recipient in &self.recipients {
                if replies.next()?.starts_with("250") {
                    return Some(format!(
                        "EHLO exirate-dry.invalid\r\nMAIL FROM:<{sender}>\r\nRCPT TO:<{recipient}>\r\n\
                         DATA\r\nSubject: dry\r\n\r\nNothing of it is kept.\r\n.\r\nQUIT\r\n"
                    ));
                }
            }
            let _rset = replies.next()?;
        }
        None
    }
}

/// The kind and the value of a list, in the main section or in an ACL.
fn named_list(line: &Line) -> (&str, &str) {
    if line.section.is_empty() {
        let text = line.text.strip_prefix("hide").map_or(&*line.text, str::trim_start);
        let (head, value) = text.split_once('=').unwrap_or((text, ""));
        return (head.split_whitespace().next().unwrap_or_default(), value);
    }
    let (_, rest) = verb(&line.text);
    let (_, name, _) = order::name(rest);
    (name, order::value(rest))
}

/// The configuration with a mark at each line that limits, and without what asks others.
fn copy(rules: &Rules) -> String {
    let mut text = MAIN.to_owned();
    for line in &rules.source.texts {
        if definition(&line.text).is_some() && line.acl.is_none() {
            continue;
        }
        let is_of_acl = line.acl.is_some();
        let option = line.text.strip_prefix("hide").map_or(&*line.text, str::trim_start);
        let option = option.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next();
        let option = option.unwrap_or_default();
        let option = option.strip_prefix("no_").unwrap_or(option);
        if line.section.is_empty() && DROPPED.contains(&option) {
            continue;
        }
        // A file that is included in several ACLs has its lines in each of them.
        let at = |rule: &super::Rule| {
            rule.position == line.position && rule.acl.is_some() && rule.acl == line.acl
        };
        match is_of_acl && !line.text.is_empty() && label(&line.text).is_none() {
            false => text.push_str(&line.text),
            true => text.push_str(&statement(&line.text, rules.rules.iter().position(at))),
        }
        text.push('\n');
    }
    text
}

/// A line of an ACL, as it is tried.
fn statement(line: &str, number: Option<usize>) -> String {
    let (verb, rest) = verb(line);
    let mut text = verb.map_or(String::new(), |verb| format!("{verb} "));
    if let Some(number) = number {
        let _ = write!(text, "logwrite = {MARK} {number}\n  ");
    }
    let (negated, name, value) = order::name(rest);
    let asks = ASKING.contains(&name) || asks(value);
    match name {
        _ if !asks => text.push_str(rest),
        "set" => {
            let variable = value.split('=').next().unwrap_or_default();
            let _ = write!(text, "set {} =", variable.trim());
        }
        _ if TEXTS.contains(&name) => text.push_str("logwrite ="),
        "delay" | "udpsend" => text.push_str("logwrite ="),
        // What is not evaluated does not hold, but an error in how it is written stays one.
        "condition" => {
            let quote =
                if value.trim_start_matches(['=', ' ', '\t']).starts_with('"') { "\"" } else { "" };
            let comment = if value.contains("} #") { " #" } else { "" };
            let _ = write!(
                text,
                "{}condition = {quote}no{quote}{comment}",
                if negated { "!" } else { "" }
            );
        }
        _ => text.push_str(if negated { "condition = yes" } else { "condition = no" }),
    }
    text
}

/// Whether an expansion asks others, counts or runs something.
fn asks(value: &str) -> bool {
    value.match_indices("${").any(|(at, _)| {
        let item = value.get(at + 2..).unwrap_or_default().trim_start();
        let word = |text: &str| {
            text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        let name = word(item);
        let rest = item.get(name.len()..).unwrap_or_default();
        if name != "lookup" {
            return EXPANSIONS.contains(&&*name);
        }
        // `${lookup{KEY}lsearch{FILE}}`, or `${lookup mysql{QUERY}}`.
        let rest = super::calls::braced(rest).map_or(rest, |(_, rest)| rest);
        let kind =
            word(rest.trim_start().trim_start_matches("partial-").trim_start_matches("net-"));
        !FILES.contains(&&*kind)
    })
}
