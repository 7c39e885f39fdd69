//! Whether Postfix asks the daemon: for each recipient and message, at the right place of
//! its lists, and so that mail goes on without it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use super::super::finding::{Findings, quoted};
use super::main_cf::{Postfix, Service, inside, without_blanks, words};
use crate::serve::config::Address;

/// The lists that can have a policy service.
const LISTS: [&str; 7] = [
    "smtpd_client_restrictions",
    "smtpd_helo_restrictions",
    "smtpd_sender_restrictions",
    "smtpd_relay_restrictions",
    RECIPIENT,
    "smtpd_data_restrictions",
    END_OF_DATA,
];
const RECIPIENT: &str = "smtpd_recipient_restrictions";
const END_OF_DATA: &str = "smtpd_end_of_data_restrictions";
const CHECK: &str = "check_policy_service";
const MILTERS: &str = "smtpd_milters";
const LOCAL_MILTERS: &str = "non_smtpd_milters";
/// Postfix waits so long for a reply that clients give up, if exirate hangs: in seconds.
const TIMEOUT_MAX: u64 = 30;

/// Where the daemon listens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sockets<'a> {
    /// `listen.policy`
    pub(super) policy: Option<&'a Address>,
    /// `listen.milter`
    pub(super) milter: Option<&'a Address>,
}

/// A service or milter that a list names.
#[derive(Debug)]
struct Asked {
    /// As it is written: `unix:exirate/policy`.
    text: String,
    /// `None` if it is not an address.
    address: Option<Address>,
    options: Vec<(String, String)>,
    /// The first word before it in the list that decides for all mail, or for some.
    ending: Option<String>,
}

impl Asked {
    fn new(word: &str, ending: Option<String>, queue: &Path) -> Option<Self> {
        let parts = words(inside(word).unwrap_or(word));
        let (text, options) = parts.split_first()?;
        let option = |text: &String| {
            let (name, value) = inside(text).unwrap_or(text).split_once('=')?;
            Some((name.trim().to_owned(), value.trim().to_owned()))
        };
        let options = options.iter().filter_map(option).collect();
        Some(Self { text: text.clone(), address: address(text, queue), options, ending })
    }

    fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }
}

/// The address that Postfix connects to. What is relative is in the queue directory.
fn address(text: &str, queue: &Path) -> Option<Address> {
    if let Some(path) = text.strip_prefix("unix:").or_else(|| text.strip_prefix("local:")) {
        return Some(Address::Unix(queue.join(path)));
    }
    let (host, port) = text.strip_prefix("inet:")?.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host: IpAddr = match host {
        "localhost" | "" => Ipv4Addr::LOCALHOST.into(),
        host => host.parse().ok()?,
    };
    Some(Address::Inet(SocketAddr::new(host, port.parse().ok()?)))
}

/// Whether a restriction accepts mail, or refuses all of it, so that nothing behind it counts.
fn ends(word: &str) -> bool {
    word.starts_with("permit") || matches!(word, "reject" | "defer" | "discard")
}

/// The policy services in a list of restrictions.
fn policy_services(words: &[String], queue: &Path) -> Vec<Asked> {
    let mut found = Vec::new();
    let mut ending: Option<&String> = None;
    for (at, word) in words.iter().enumerate() {
        if ends(word) && ending.is_none() {
            ending = Some(word);
        }
        if word == CHECK
            && let Some(next) = words.get(at + 1)
        {
            found.extend(Asked::new(next, ending.cloned(), queue));
        }
    }
    found
}

fn milters(list: &str, queue: &Path) -> Vec<Asked> {
    let words = words(list);
    words.iter().filter_map(|word| Asked::new(word, None, queue)).collect()
}

/// The name of a socket as Postfix reaches it.
fn name(address: &Address, queue: &Path) -> String {
    match address {
        Address::Unix(path) => {
            format!("unix:{}", path.strip_prefix(queue).unwrap_or(path).display())
        }
        Address::Inet(_) => address.to_string(),
    }
}

/// What is wrong is reported; what is right, once.
pub(super) fn look(postfix: &Postfix, sockets: Sockets<'_>, findings: &mut Findings) {
    let queue = postfix.value(None, "queue_directory");
    let queue = Path::new(&queue);
    let (reinjecting, receiving): (Vec<&Service>, _) =
        postfix.services.iter().partition(|service| service.reinjects);
    let mut receivers: Vec<Option<&Service>> = receiving.into_iter().map(Some).collect();
    if receivers.is_empty() {
        receivers.push(None);
    }
    let before = findings.list.len();
    let mut ways = Ways::default();
    let mut seen: Vec<Option<&str>> = Vec::new();
    for &service in &receivers {
        // Those that take all from main.cf have the same faults.
        let settings = [RECIPIENT, END_OF_DATA, MILTERS, "milter_default_action"];
        let own = settings.iter().any(|name| service.is_some_and(|one| one.replaces(name)));
        let group = service.filter(|_| own).map(|one| &*one.name);
        if seen.contains(&group) {
            continue;
        }
        seen.push(group);
        let service = service.filter(|_| own);
        Look { postfix, service, queue, sockets }.look(&mut ways, findings);
    }
    for service in reinjecting {
        Look { postfix, service: Some(service), queue, sockets }.counts_again(findings);
    }
    let one = Look { postfix, service: None, queue, sockets };
    one.local(&ways, findings);
    for (address, is_used) in [(sockets.policy, ways.policy), (sockets.milter, ways.milter)] {
        if let Some(Address::Unix(path)) = address.filter(|_| is_used)
            && path.strip_prefix(queue).is_err()
            && let Some(service) = postfix.services.iter().find(|service| service.chroot)
        {
            findings.problem(format!(
                "{} of master.cf runs in the chroot {}, from which it cannot reach {}: the socket \
                 must be below that directory",
                service.name,
                queue.display(),
                path.display()
            ));
        }
    }
    if ways.policy && ways.milter {
        findings
            .problem(
                "Postfix asks both the policy service and the milter: everything counts twice. \
                 Use one of them",
            )
            .fixes(set(None, MILTERS, ""))
            .fixes(set(None, LOCAL_MILTERS, ""));
    }
    if findings.list.len() == before {
        let by = if ways.policy { "the policy protocol" } else { "the milter" };
        findings.ok(format!("Postfix asks exirate by {by}"));
    }
}

/// By what Postfix asks.
#[derive(Debug, Default)]
struct Ways {
    policy: bool,
    milter: bool,
}

/// A look at one service, or at `main.cf`.
struct Look<'a> {
    postfix: &'a Postfix,
    service: Option<&'a Service>,
    queue: &'a Path,
    sockets: Sockets<'a>,
}

impl Look<'_> {
    fn value(&self, name: &str) -> String {
        self.postfix.value(self.service, name)
    }

    /// Where a setting is.
    fn place(&self, name: &str) -> String {
        match self.service.filter(|service| service.replaces(name)) {
            Some(service) => format!("{name} of {} in master.cf", service.name),
            None => format!("{name} in main.cf"),
        }
    }

    /// The commands that set it.
    fn set(&self, name: &str, value: &str) -> Vec<String> {
        set(self.service.filter(|service| service.replaces(name)), name, value)
    }

    fn look(&self, ways: &mut Ways, findings: &mut Findings) {
        let asks_policy = self.policy(findings);
        let asks_milter = self.milter(findings);
        ways.policy |= asks_policy;
        ways.milter |= asks_milter;
        if asks_policy || asks_milter {
            return;
        }
        let (Some(address), name) = (match self.sockets {
            Sockets { policy: Some(policy), .. } => (Some(policy), RECIPIENT),
            Sockets { milter, .. } => (milter, MILTERS),
        }) else {
            return;
        };
        let who = self
            .service
            .map_or("Postfix".to_owned(), |service| format!("{} of master.cf", service.name));
        findings.problem(format!("{who} does not ask exirate: its mail is not limited"));
        if name == RECIPIENT {
            for name in [RECIPIENT, END_OF_DATA] {
                findings.fixes(self.set(name, &self.with_check(name, Some(address))));
            }
        } else {
            findings.fixes(self.set(name, &self.with_milter(Some(address))));
        }
    }

    /// Whether a service or milter is one of exirate, at this address or another one.
    fn is_ours(&self, asked: &Asked) -> bool {
        let sockets = [self.sockets.policy, self.sockets.milter];
        let listens = asked.address.is_some() && sockets.contains(&asked.address.as_ref());
        listens || asked.text.contains("exirate")
    }

    /// A list with the check before what ends it, or without the check; with no other check of
    /// exirate. A class that has the check is moved; without the check, its list stands in its
    /// place.
    fn with_check(&self, list: &str, address: Option<&Address>) -> String {
        let value = self.value(list);
        let mut words = match address {
            Some(_) => words(&value),
            None => self.postfix.restrictions(self.service, &value),
        }
        .into_iter();
        let (mut others, mut class): (Vec<String>, Option<String>) = (Vec::new(), None);
        while let Some(word) = words.next() {
            // With what it checks.
            if word.starts_with("check_")
                && let Some(next) = words.next()
            {
                let asked = (word == CHECK).then(|| Asked::new(&next, None, self.queue)).flatten();
                if !asked.is_some_and(|asked| self.is_ours(&asked)) {
                    others.push(format!("{word} {next}"));
                }
                continue;
            }
            let within = self.postfix.restrictions(self.service, &word);
            let mut asked = policy_services(&within, self.queue).into_iter();
            let is_check =
                |asked: Asked| asked.address.as_ref() == address && asked.ending.is_none();
            if address.is_some() && asked.any(is_check) {
                class = Some(word);
            } else {
                others.push(word);
            }
        }
        if let Some(address) = address {
            let name = name(address, self.queue);
            let check = format!("{CHECK} {{ {name}, timeout=10s, default_action=DUNNO }}");
            let at = others.iter().position(|word| ends(word)).unwrap_or(others.len());
            others.insert(at, class.unwrap_or(check));
        }
        others.join(", ")
    }

    /// The milters with that of exirate, or without it.
    fn with_milter(&self, address: Option<&Address>) -> String {
        let milter = address.map(|address| {
            let name = name(address, self.queue);
            format!("{{ {name}, command_timeout=10s, default_action=accept }}")
        });
        let others = words(&self.value(MILTERS)).into_iter().filter(|word| {
            !Asked::new(word, None, self.queue).is_some_and(|asked| self.is_ours(&asked))
        });
        milter.into_iter().chain(others).collect::<Vec<_>>().join(", ")
    }

    /// A service that takes back filtered mail asks for what was counted already.
    fn counts_again(&self, findings: &mut Findings) {
        let asks = |list: &&str| {
            let words = self.postfix.restrictions(self.service, &self.value(list));
            policy_services(&words, self.queue).iter().any(|asked| self.is_ours(asked))
        };
        let lists: Vec<&str> = LISTS.into_iter().filter(asks).collect();
        let asks_milter =
            milters(&self.value(MILTERS), self.queue).iter().any(|asked| self.is_ours(asked));
        if lists.is_empty() && !asks_milter {
            return;
        }
        let who = self.service.map_or("", |service| &service.name);
        findings.problem(format!(
            "{who} of master.cf takes back mail from a content filter and asks exirate again: each \
             message counts twice"
        ));
        for list in lists {
            findings.fixes(set(self.service, list, &self.with_check(list, None)));
        }
        if asks_milter {
            findings.fixes(set(self.service, MILTERS, &self.with_milter(None)));
        }
    }

    /// Whether it asks the policy service.
    fn policy(&self, findings: &mut Findings) -> bool {
        let mut lists = Vec::new();
        for list in LISTS {
            let words = self.postfix.restrictions(self.service, &self.value(list));
            for asked in policy_services(&words, self.queue) {
                let is_ours =
                    asked.address.is_some() && asked.address.as_ref() == self.sockets.policy;
                if is_ours {
                    lists.push((list, asked));
                } else if asked.text.contains("exirate") {
                    self.wrong_socket(list, &asked, self.sockets.policy, "policy", findings);
                }
            }
        }
        let Some(address) = self.sockets.policy.filter(|_| !lists.is_empty()) else { return false };
        let position = |name: &str| lists.iter().find(|(list, _)| *list == name);
        match position(RECIPIENT) {
            Some((list, Asked { ending: Some(ending), .. })) => {
                let what = match ending.starts_with("permit") {
                    true => "what it permits is not limited",
                    false => "no mail comes to it",
                };
                let place = self.place(list);
                findings
                    .problem(format!("in {place}, {ending} is before the check: {what}"))
                    .fixes(self.set(list, &self.with_check(list, Some(address))));
            }
            Some(_) => {}
            None => {
                let place = self.place(RECIPIENT);
                findings
                    .problem(format!(
                        "the check is not in {place}: recipients are not refused one by one"
                    ))
                    .fixes(self.set(RECIPIENT, &self.with_check(RECIPIENT, Some(address))));
            }
        }
        if position(END_OF_DATA).is_none() {
            let place = self.place(END_OF_DATA);
            findings
                .warning(format!("the check is not in {place}: bytes and messages are not counted"))
                .fixes(self.set(END_OF_DATA, &self.with_check(END_OF_DATA, Some(address))));
        }
        for (list, asked) in &lists {
            let default = self.value("smtpd_policy_service_default_action");
            let action = asked.option("default_action").unwrap_or(&default);
            if action.starts_with(['4', '5']) || action.to_ascii_uppercase().starts_with("REJECT") {
                findings
                    .warning(format!(
                        "in {}, the action without exirate is {action:?}: while the daemon is away, \
                         mail is refused",
                        self.place(list)
                    ))
                    .fixes(self.set(list, &self.with_check(list, Some(address))));
            }
            let default = self.value("smtpd_policy_service_timeout");
            let timeout = asked.option("timeout").unwrap_or(&default);
            if seconds(timeout).is_some_and(|timeout| timeout > TIMEOUT_MAX) {
                findings
                    .note(format!(
                        "in {}, Postfix waits up to {timeout} for a reply, and its client with it",
                        self.place(list)
                    ))
                    .fixes(self.set(list, &self.with_check(list, Some(address))));
            }
        }
        true
    }

    /// Whether it asks the milter.
    fn milter(&self, findings: &mut Findings) -> bool {
        let list = milters(&self.value(MILTERS), self.queue);
        let mut ours = None;
        for asked in &list {
            if asked.address.is_some() && asked.address.as_ref() == self.sockets.milter {
                ours = Some(asked);
            } else if asked.text.contains("exirate") {
                self.wrong_socket(MILTERS, asked, self.sockets.milter, "milter", findings);
            }
        }
        let Some(asked) = ours else { return false };
        let default = self.value("milter_default_action");
        let action = asked.option("default_action").unwrap_or(&default);
        if !matches!(action, "accept" | "quarantine") {
            let text = format!(
                "in {}, the action without exirate is {action}: while the daemon is away, mail is \
                 refused",
                self.place(MILTERS)
            );
            findings.warning(text).fix("postconf -e 'milter_default_action = accept'");
        }
        let macros = self.value("milter_mail_macros");
        if !macros.contains("auth_authen") {
            findings
                .problem(format!(
                    "{} lacks {{auth_authen}}: users are not known by their logins",
                    self.place("milter_mail_macros")
                ))
                .fixes(self.set("milter_mail_macros", &format!("{macros} {{auth_authen}}")));
        }
        true
    }

    /// Mail that does not come by SMTP.
    fn local(&self, ways: &Ways, findings: &mut Findings) {
        let Some(address) = self.sockets.milter.filter(|_| ways.milter) else { return };
        let list = milters(&self.value(LOCAL_MILTERS), self.queue);
        if !list.iter().any(|asked| asked.address.as_ref() == Some(address)) {
            findings
                .note("mail by the sendmail command is not limited: the milter is not in non_smtpd_milters")
                .fixes(set(None, LOCAL_MILTERS, "$smtpd_milters"));
        }
    }

    /// A list names a socket of exirate on which the daemon does not listen.
    fn wrong_socket(
        &self,
        list: &str,
        asked: &Asked,
        address: Option<&Address>,
        key: &str,
        findings: &mut Findings,
    ) {
        let where_ = match &asked.address {
            Some(address @ Address::Unix(_)) => format!("{} ({address})", asked.text),
            _ => asked.text.clone(),
        };
        let listens = address.map_or_else(
            || format!("[listen] has no {key}"),
            |address| format!("{key} in [listen] is {address}"),
        );
        let place = self.place(list);
        let value = match list {
            MILTERS => self.with_milter(address),
            RECIPIENT | END_OF_DATA => self.with_check(list, address),
            _ => self.with_check(list, None),
        };
        findings
            .problem(format!("{place} asks {where_}, and {listens}"))
            .fixes(self.set(list, &value));
    }
}

/// The commands that set a setting, in `master.cf` or `main.cf`.
fn set(service: Option<&Service>, name: &str, value: &str) -> Vec<String> {
    let main =
        |name: &str| format!("postconf -e {}", quoted(Path::new(&format!("{name} = {value}"))));
    let Some(service) = service else { return vec![main(name)] };
    let master = |value: &str| {
        let setting = format!("{}/{name}={value}", service.name);
        format!("postconf -P {}", quoted(Path::new(&setting)))
    };
    let short = without_blanks(value);
    if !short.contains(char::is_whitespace) {
        return vec![master(&short)];
    }
    // postconf takes no blanks there.
    let part = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let own: String = format!("exirate_{}_{name}", service.name).chars().map(part).collect();
    vec![main(&own), master(&format!("${own}"))]
}

/// Postfix's times: `100s`, `10`, `2m`.
fn seconds(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 604_800,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::Level;
    use super::*;

    const CHECK: &str =
        "check_policy_service { unix:exirate/policy, timeout=10s, default_action=DUNNO }";

    fn policy() -> Address {
        Address::Unix("/var/spool/postfix/exirate/policy".into())
    }

    fn milter() -> Address {
        Address::Inet("127.0.0.1:8893".parse().unwrap())
    }

    /// What is found, without what is well; and the commands that fix it.
    fn found(main: &str, master: &str) -> (Vec<(Level, String)>, Vec<String>) {
        let (policy, milter) = (policy(), milter());
        let sockets = Sockets { policy: Some(&policy), milter: Some(&milter) };
        let mut findings = Findings::default();
        look(&Postfix::new(main, master), sockets, &mut findings);
        let list = findings.list.into_iter().filter(|one| one.level != Level::Ok);
        let (texts, fixes): (Vec<_>, Vec<_>) =
            list.map(|one| ((one.level, one.text), one.fix)).unzip();
        (texts, fixes.concat())
    }

    fn by_policy(recipient: &str) -> String {
        format!("{RECIPIENT} = {recipient}\n{END_OF_DATA} = {CHECK}\n")
    }

    /// The commands that fix it, applied: nothing is found any more.
    fn is_repaired(main: &str, fixes: &[String]) {
        let mut main = main.to_owned();
        for fix in fixes {
            let setting = shlex::split(fix).unwrap();
            let ["postconf", "-e", setting] =
                &setting.iter().map(String::as_str).collect::<Vec<_>>()[..]
            else {
                panic!("{fix}")
            };
            main += &format!("{setting}\n");
        }
        assert_eq!(found(&main, "").0, [], "{main}");
    }

    #[test]
    fn lines_of_the_document_are_well() {
        let page = include_str!("../../../../../docs/postfix.md");
        let mut blocks =
            page.split("```cf\n").skip(1).map(|rest| rest.split("```").next().unwrap());
        assert_eq!(found(blocks.next().unwrap(), "").0, []);
        let lines = blocks.next().unwrap().replace("unix:exirate/milter", "inet:127.0.0.1:8893");
        assert_eq!(found(&lines, "").0, []);
        assert!(blocks.next().is_none());
        // Where more is in the lists, and a service has its own.
        let main = by_policy(&format!("reject_unauth_pipelining, {CHECK}, permit_mynetworks"));
        assert_eq!(found(&main, "").0, []);
    }

    #[test]
    fn a_postfix_that_asks_nothing_is_a_problem() {
        let main =
            "smtpd_recipient_restrictions = check_client_access hash:/x, permit_mynetworks\n";
        let (texts, fixes) = found(main, "");
        let [(Level::Problem, text)] = &texts[..] else { panic!("{texts:?}") };
        assert_eq!(text, "Postfix does not ask exirate: its mail is not limited");
        assert!(fixes[0].contains(&format!("hash:/x, {CHECK}, permit_mynetworks")), "{fixes:?}");
        is_repaired(main, &fixes);
        // With a milter alone.
        let (milter, mut findings) = (milter(), Findings::default());
        let sockets = Sockets { policy: None, milter: Some(&milter) };
        look(&Postfix::new("smtpd_milters = inet:localhost:11332\n", ""), sockets, &mut findings);
        let fix = "postconf -e 'smtpd_milters = { inet:127.0.0.1:8893, command_timeout=10s, \
                   default_action=accept }, inet:localhost:11332'";
        assert_eq!(findings.list[0].fix, [fix]);
    }

    #[test]
    fn what_permits_before_the_check_is_a_problem() {
        let main = by_policy(&format!("permit_sasl_authenticated, {CHECK}"));
        let (texts, fixes) = found(&main, "");
        let [(Level::Problem, text)] = &texts[..] else { panic!("{texts:?}") };
        assert!(text.contains("permit_sasl_authenticated is before the check"), "{text}");
        assert!(fixes[0].contains(&format!("{CHECK}, permit_sasl_authenticated'")), "{fixes:?}");
        is_repaired(&main, &fixes);
    }

    #[test]
    fn a_list_without_the_check_is_reported() {
        let (texts, fixes) = found(&format!("{RECIPIENT} = {CHECK}\n"), "");
        let [(Level::Warning, text)] = &texts[..] else { panic!("{texts:?}") };
        assert!(text.contains("bytes and messages are not counted"), "{text}");
        is_repaired(&format!("{RECIPIENT} = {CHECK}\n"), &fixes);
        let main = format!("smtpd_sender_restrictions = {CHECK}\n{END_OF_DATA} = {CHECK}\n");
        let (texts, _) = found(&main, "");
        let [(Level::Problem, text)] = &texts[..] else { panic!("{texts:?}") };
        assert!(text.contains("recipients are not refused one by one"), "{text}");
    }

    #[test]
    fn mail_must_go_on_without_the_daemon() {
        let check = "check_policy_service unix:exirate/policy";
        let main = format!("{RECIPIENT} = {check}\n{END_OF_DATA} = {check}\n");
        let (texts, fixes) = found(&main, "");
        let levels: Vec<Level> = texts.iter().map(|(level, _)| *level).collect();
        assert_eq!(levels, [Level::Warning, Level::Note, Level::Warning, Level::Note]);
        assert!(texts[0].1.contains("451 4.3.5"), "{texts:?}");
        assert!(texts[1].1.contains("up to 100s"), "{texts:?}");
        is_repaired(&main, &fixes);
        let main = "smtpd_milters = inet:127.0.0.1:8893\n";
        let (texts, fixes) = found(main, "");
        assert!(texts[0].1.contains("is tempfail"), "{texts:?}");
        assert!(texts[1].1.contains("the sendmail command"), "{texts:?}");
        is_repaired(main, &fixes);
    }

    #[test]
    fn two_ways_at_once_are_a_problem() {
        let both = "smtpd_milters = { inet:localhost:8893, default_action=accept }\n\
                    non_smtpd_milters = $smtpd_milters\n";
        let (texts, fixes) = found(&(by_policy(CHECK) + both), "");
        let [(Level::Problem, text)] = &texts[..] else { panic!("{texts:?}") };
        assert!(text.contains("everything counts twice"), "{text}");
        is_repaired(&(by_policy(CHECK) + both), &fixes);
    }

    #[test]
    fn another_socket_than_the_daemons_is_a_problem() {
        let main = by_policy(CHECK).replace("exirate/policy", "private/exirate");
        let (texts, _) = found(&main, "");
        let (Level::Problem, text) = &texts[0] else { panic!("{texts:?}") };
        assert!(text.contains(
            "unix:private/exirate (unix:/var/spool/postfix/private/exirate), and policy"
        ));
        assert!(text.ends_with(" in [listen] is unix:/var/spool/postfix/exirate/policy"), "{text}");
        let (right, other) = (by_policy(CHECK), CHECK.replace("exirate/policy", "private/exirate"));
        for wrong in [
            main.clone(),
            // The right one is there as well, or the wrong one is in another list.
            by_policy(&format!("{other}, {CHECK}")),
            format!(
                "{right}smtpd_sender_restrictions = check_policy_service unix:private/exirate\n"
            ),
        ] {
            let (_, fixes) = found(&wrong, "");
            assert!(fixes.iter().all(|fix| !fix.contains("private/exirate")), "{fixes:?}");
            is_repaired(&wrong, &fixes);
        }
        let (texts, fixes) =
            found("smtpd_milters = unix:/run/exirate/milter, inet:localhost:1\n", "");
        assert!(texts[0].1.contains("milter in [listen] is inet:127.0.0.1:8893"), "{texts:?}");
        assert!(!fixes.concat().contains("/run/exirate/milter"), "{fixes:?}");
        assert!(fixes.concat().contains("inet:localhost:1"), "{fixes:?}");
    }

    #[test]
    fn a_service_may_have_lists_of_its_own() {
        let master = "smtp inet n - y - - smtpd\nsubmission inet n - y - - smtpd\n  -o \
                      smtpd_recipient_restrictions=permit_sasl_authenticated,reject\n";
        let (texts, fixes) = found(&by_policy(CHECK), master);
        let [(Level::Problem, text)] = &texts[..] else { panic!("{texts:?}") };
        let place =
            "the check is not in smtpd_recipient_restrictions of submission/inet in master.cf";
        assert!(text.starts_with(place), "{text}");
        // postconf takes no blanks there.
        let fix = "postconf -P 'submission/inet/smtpd_recipient_restrictions=check_policy_service,\
                   {unix:exirate/policy,timeout=10s,default_action=DUNNO},\
                   permit_sasl_authenticated,reject'";
        assert_eq!(fixes, [fix]);
        // A text keeps its blanks.
        let master = master.replace(
            "  -o smtpd_recipient_restrictions=permit_sasl_authenticated,reject",
            "  -o { smtpd_recipient_restrictions = check_policy_service { unix:other, \
             default_action={450 later} }, reject }",
        );
        let (_, fixes) = found(&by_policy(CHECK), &master);
        let own = "exirate_submission_inet_smtpd_recipient_restrictions";
        assert!(fixes[0].starts_with(&format!("postconf -e '{own} = ")), "{fixes:?}");
        assert!(fixes[0].contains("{450 later}"), "{fixes:?}");
        let refers = format!("postconf -P 'submission/inet/smtpd_recipient_restrictions=${own}'");
        assert_eq!(fixes[1..], [refers]);
    }

    #[test]
    fn a_check_in_a_class_counts() {
        let classes = format!("smtpd_restriction_classes = limited\nlimited = {CHECK}\n");
        let main = |list: &str| by_policy(list) + &classes;
        assert_eq!(found(&main("limited, permit_mynetworks"), "").0, []);
        let behind = main("permit_mynetworks, limited, reject");
        let (texts, fixes) = found(&behind, "");
        assert!(texts[0].1.contains("permit_mynetworks is before the check"), "{texts:?}");
        let moved = format!("postconf -e '{RECIPIENT} = limited, permit_mynetworks, reject'");
        assert_eq!(fixes, [moved]);
        is_repaired(&behind, &fixes);
    }

    #[test]
    fn a_check_behind_a_plain_reject_is_a_problem() {
        let main = by_policy(&format!("reject_unauth_destination, reject, {CHECK}"));
        let (texts, fixes) = found(&main, "");
        assert!(
            texts[0].1.contains("reject is before the check: no mail comes to it"),
            "{texts:?}"
        );
        is_repaired(&main, &fixes);
    }

    #[test]
    fn mail_that_a_filter_gives_back_is_counted_once() {
        let main = by_policy(CHECK) + "content_filter = scan:[127.0.0.1]:10024\n";
        let smtp = "smtp inet n - n - - smtpd\n";
        let back = "127.0.0.1:10025 inet n - n - - smtpd\n -o content_filter=\n \
                    -o smtpd_recipient_restrictions=permit_mynetworks,reject\n";
        let once = format!("{smtp}{back} -o smtpd_end_of_data_restrictions=\n");
        assert_eq!(found(&main, &once).0, []);
        let (texts, fixes) = found(&main, &format!("{smtp}{back}"));
        let [(Level::Problem, text)] = &texts[..] else { panic!("{texts:?}") };
        assert!(text.contains("each message counts twice"), "{text}");
        assert_eq!(fixes, ["postconf -P '127.0.0.1:10025/inet/smtpd_end_of_data_restrictions='"]);
    }

    #[test]
    fn a_socket_outside_the_chroot_is_a_problem() {
        let (policy, master) =
            (Address::Unix("/run/exirate-mail/policy".into()), "smtp inet n - y - - smtpd\n");
        let sockets = Sockets { policy: Some(&policy), milter: None };
        let main = by_policy(CHECK).replace("exirate/policy", "/run/exirate-mail/policy");
        let found = |master: &str| {
            let mut findings = Findings::default();
            look(&Postfix::new(&main, master), sockets, &mut findings);
            findings.list.pop().unwrap()
        };
        assert!(found(master).text.contains("smtp/inet of master.cf runs in the chroot"));
        assert_eq!(found(&master.replace(" y ", " n ")).level, Level::Ok);
    }

    #[test]
    fn macros_of_postfix_must_have_the_login() {
        let main = "smtpd_milters = { inet:localhost:8893, default_action=accept }\n\
                    non_smtpd_milters = $smtpd_milters\nmilter_mail_macros = i\n";
        let (texts, fixes) = found(main, "");
        let [(Level::Problem, text)] = &texts[..] else { panic!("{texts:?}") };
        assert!(text.contains("lacks {auth_authen}"), "{text}");
        is_repaired(main, &fixes);
    }

    #[test]
    fn times_are_postfixs() {
        assert_eq!(
            [seconds("100s"), seconds("10"), seconds("2m"), seconds("x")],
            [Some(100), Some(10), Some(120), None]
        );
    }
}
