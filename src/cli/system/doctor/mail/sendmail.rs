//! Whether Sendmail asks the milter, by its `sendmail.cf`.

use std::path::Path;

use super::super::finding::Findings;
use crate::serve::config::Address;

/// The milters in `sendmail.cf`, and what it passes on to them.
#[derive(Debug, Default)]
pub(in crate::cli::system::doctor) struct Sendmail {
    filters: Vec<Filter>,
    /// Those that are used, by their names.
    used: Vec<String>,
    /// The macros that a milter gets at MAIL.
    macros: Option<String>,
    daemons: Vec<Daemon>,
}

/// `O DaemonPortOptions=…`
#[derive(Debug)]
struct Daemon {
    name: String,
    /// The milters of its own; `None` for those of all.
    used: Option<Vec<String>>,
}

/// `Xexirate, S=local:/run/exirate-mail/milter, T=C:5s`
#[derive(Debug, Default)]
struct Filter {
    name: String,
    socket: String,
    flags: String,
}

impl Sendmail {
    /// The Sendmail of this machine; `None` if there is none.
    pub(super) fn of_this_machine() -> Option<Self> {
        ["/etc/mail/sendmail.cf", "/etc/sendmail.cf"]
            .iter()
            .find_map(|path| std::fs::read_to_string(path).ok())
            .map(|text| Self::new(&text))
    }

    /// From the text of `sendmail.cf`.
    pub(super) fn new(text: &str) -> Self {
        let mut sendmail = Self::default();
        for line in logical_lines(text) {
            if let Some(filter) = line.strip_prefix('X') {
                sendmail.filters.push(filter_of(filter));
            }
            // The names of options are in any case, and blanks may be around the `=`.
            let option = line.strip_prefix("O ").and_then(|option| option.split_once('='));
            let Some((name, value)) = option else { continue };
            match &*name.trim().to_ascii_lowercase() {
                "inputmailfilters" => sendmail.used = names(value),
                "milter.macros.envfrom" => sendmail.macros = Some(value.to_owned()),
                "daemonportoptions" => sendmail.daemons.push(daemon_of(value)),
                _ => {}
            }
        }
        sendmail
    }
}

/// The lines of `sendmail.cf`: one that starts with a blank continues the one before.
fn logical_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match lines.last_mut() {
            Some(last) if line.starts_with([' ', '\t']) => last.push_str(line),
            _ => lines.push(line.to_owned()),
        }
    }
    lines
}

fn names(text: &str) -> Vec<String> {
    let names = text.split([',', ';']).map(|name| name.trim().to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

/// `Port=smtp, Name=MTA, InputMailFilters=exirate`: the first letters of the names count.
fn daemon_of(text: &str) -> Daemon {
    let mut daemon = Daemon { name: "the daemon".to_owned(), used: None };
    for (key, value) in text.split(',').filter_map(|part| part.split_once('=')) {
        match key.trim().chars().next().map(|c| c.to_ascii_uppercase()) {
            Some('N') => value.trim().clone_into(&mut daemon.name),
            Some('I') => daemon.used = Some(names(value)),
            _ => {}
        }
    }
    daemon
}

fn filter_of(text: &str) -> Filter {
    let mut parts = text.split(',').map(str::trim);
    let mut filter =
        Filter { name: parts.next().unwrap_or_default().to_owned(), ..Filter::default() };
    for part in parts {
        match part.split_once('=').map(|(key, value)| (key.trim(), value.trim())) {
            Some(("S", socket)) => socket.clone_into(&mut filter.socket),
            Some(("F", flags)) => flags.clone_into(&mut filter.flags),
            _ => {}
        }
    }
    filter
}

/// Whether it is a socket as Sendmail writes it: `local:/run/x`, `inet:8893@localhost`.
fn is(socket: &str, address: &Address) -> bool {
    match address {
        Address::Unix(path) => ["local:", "unix:"]
            .iter()
            .find_map(|kind| socket.strip_prefix(kind))
            .is_some_and(|named| Path::new(named) == path),
        Address::Inet(address) => {
            let named = socket.strip_prefix("inet6:").or_else(|| socket.strip_prefix("inet:"));
            named.and_then(|named| named.split_once('@')).is_some_and(|(port, host)| {
                let host = host.trim_start_matches('[').trim_end_matches(']');
                let is_host = host == address.ip().to_string()
                    || host == "localhost" && address.ip().is_loopback();
                port == address.port().to_string() && is_host
            })
        }
    }
}

/// The line of `sendmail.mc` for a socket.
fn line(address: &Address) -> String {
    let socket = match address {
        Address::Unix(path) => format!("local:{}", path.display()),
        Address::Inet(address) => format!("inet:{}@{}", address.port(), address.ip()),
    };
    format!("INPUT_MAIL_FILTER(`exirate', `S={socket}, T=C:5s;S:10s;R:10s;E:1m')dnl")
}

/// What is wrong is reported; what is right, once.
pub(super) fn look(sendmail: &Sendmail, milter: Option<&Address>, findings: &mut Findings) {
    let Some(address) = milter else {
        findings.problem(
            "[listen] has no milter, which is what Sendmail can ask; such as \
             milter = \"unix:/run/exirate-mail/milter\"",
        );
        return;
    };
    let add = format!("add to /etc/mail/sendmail.mc, above the MAILER lines: {}", line(address));
    let Some(filter) = sendmail.filters.iter().find(|filter| is(&filter.socket, address)) else {
        let others = sendmail.filters.iter().filter(|filter| filter.socket.contains("exirate"));
        for other in others {
            findings.problem(format!(
                "the milter {} of sendmail.cf is {}, and milter in [listen] is {address}",
                other.name, other.socket
            ));
        }
        findings.problem(format!(
            "Sendmail does not ask exirate: its mail is not limited; {add}, and run m4 \
             /etc/mail/sendmail.mc >/etc/mail/sendmail.cf"
        ));
        return;
    };
    let before = findings.list.len();
    if !sendmail.used.contains(&filter.name) {
        findings.problem(format!(
            "sendmail.cf defines the milter {}, and does not use it (O InputMailFilters): \
             INPUT_MAIL_FILTER in sendmail.mc does both, MAIL_FILTER does not",
            filter.name
        ));
    }
    for daemon in &sendmail.daemons {
        if daemon.used.as_ref().is_some_and(|used| !used.contains(&filter.name)) {
            findings.problem(format!(
                "{} in DAEMON_OPTIONS of sendmail.mc has its own InputMailFilters, and {} is not \
                 among them: the mail that it receives is not limited",
                daemon.name, filter.name
            ));
        }
    }
    if filter.flags.contains(['T', 'R', '4']) {
        findings.warning(format!(
            "the milter {} has F={}: while the daemon is away, mail is refused; without F= it passes",
            filter.name, filter.flags
        ));
    }
    if sendmail.macros.as_ref().is_some_and(|macros| !macros.contains("{auth_authen}")) {
        findings.problem(
            "confMILTER_MACROS_ENVFROM in sendmail.mc lacks {auth_authen}: users are not known by \
             their logins",
        );
    }
    if findings.list.len() == before {
        findings.ok("Sendmail asks exirate by the milter");
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::Level;
    use super::*;

    const GOOD: &str = "O InputMailFilters=other,exirate\n\
        Xother, S=inet:11332@localhost, F=T\n\
        Xexirate, S=local:/run/exirate-mail/milter, T=C:5s;S:10s;R:10s;E:1m\n\
        O Milter.macros.envfrom=i, {auth_type}, {auth_authen}, {mail_addr}\n";

    fn found(text: &str, address: Option<&Address>) -> Vec<(Level, String)> {
        let mut findings = Findings::default();
        look(&Sendmail::new(text), address, &mut findings);
        findings.list.into_iter().map(|one| (one.level, one.text)).collect()
    }

    #[test]
    fn each_fault_is_named() {
        let socket = Address::Unix("/run/exirate-mail/milter".into());
        let found = |text: &str| found(text, Some(&socket));
        assert_eq!(found(GOOD), [(Level::Ok, "Sendmail asks exirate by the milter".into())]);
        for (from, to, level, words) in [
            ("Xexirate", "# exirate", Level::Problem, "add to /etc/mail/sendmail.mc, above"),
            ("other,exirate", "other", Level::Problem, "does not use it"),
            ("milter, T", "milter, F=T, T", Level::Warning, "while the daemon is away"),
            ("{auth_authen}", "", Level::Problem, "lacks {auth_authen}"),
            (
                "Xother",
                "O DaemonPortOptions=Name=MSA, Port=587, InputMailFilters=other\nXother",
                Level::Problem,
                "MSA in DAEMON_OPTIONS",
            ),
            (
                "-mail/milter",
                "/milter",
                Level::Problem,
                "is local:/run/exirate/milter, and milter in",
            ),
        ] {
            let list = found(&GOOD.replace(from, to));
            assert_eq!(list[0].0, level, "{list:?}");
            assert!(list[0].1.contains(words), "{list:?}");
        }
    }

    #[test]
    fn options_are_read_as_sendmail_reads_them() {
        let socket = Address::Unix("/run/exirate-mail/milter".into());
        for text in [
            GOOD.replace("O InputMailFilters=", "O inputMAILfilters = "),
            GOOD.replace("O Milter.macros.envfrom=", "O milter.Macros.EnvFrom =\t"),
            GOOD.replace("Xexirate, ", "Xexirate,\n\t"),
            GOOD.replace("Xother", "O DaemonPortOptions=Name=MTA\nXother"),
            GOOD.replace("Xother", "O DaemonPortOptions=Name=MTA, I=exirate;other\nXother"),
        ] {
            let list = found(&text, Some(&socket));
            assert_eq!(list[0].0, Level::Ok, "{text}: {list:?}");
        }
    }

    #[test]
    fn the_line_of_the_document_is_the_one_to_add() {
        let page = include_str!("../../../../../docs/sendmail.md");
        assert!(page.contains(&line(&Address::Unix("/run/exirate-mail/milter".into()))));
        let inet = Address::Inet("127.0.0.1:8893".parse().unwrap());
        assert!(line(&inet).contains("S=inet:8893@127.0.0.1, "), "{}", line(&inet));
        assert!(is("inet:8893@localhost", &inet) && is("inet:8893@127.0.0.1", &inet));
        assert!(!is("inet:8894@localhost", &inet) && !is("local:/x", &inet));
        let list = found(GOOD, None);
        assert!(list[0].1.contains("[listen] has no milter"), "{list:?}");
    }
}
