//! Whether Sendmail asks the milter, by its `sendmail.cf`.

use std::path::Path;

use super::super::finding::{Finding, Findings, Level};
use crate::mta::sendmail::Sendmail;
use crate::serve::config::Address;

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
            "Sendmail does not ask exirate: its mail is not limited; `exirate setup` adds the line, or \
             {add}, and run m4 /etc/mail/sendmail.mc >/etc/mail/sendmail.cf"
        ));
        return;
    };
    let before = findings.list.len();
    let (asking, others): (Vec<_>, Vec<_>) =
        sendmail.uses(&filter.name).into_iter().partition(|(_, uses)| *uses);
    let is_of_all = sendmail.used.contains(&filter.name);
    if asking.is_empty() && !is_of_all {
        findings.problem(format!(
            "sendmail.cf defines the milter {}, and does not use it (O InputMailFilters): \
             INPUT_MAIL_FILTER in sendmail.mc does both, MAIL_FILTER does not",
            filter.name
        ));
    }
    for (daemon, _) in others.into_iter().filter(|_| !asking.is_empty() || is_of_all) {
        // Where the filter is that of some daemons, that of others is meant.
        let text = match is_of_all {
            true => format!(
                "{} in DAEMON_OPTIONS of sendmail.mc has its own InputMailFilters, and {} is not \
                 among them: the mail that it receives is not limited",
                daemon.name, filter.name
            ),
            false => format!(
                "only {} in DAEMON_OPTIONS of sendmail.mc uses the milter {}: the mail that {} \
                 receives is not limited",
                asking.iter().map(|(one, _)| &*one.name).collect::<Vec<_>>().join(", "),
                filter.name,
                daemon.name
            ),
        };
        if is_of_all {
            findings.problem(text)
        } else {
            findings.note(text)
        };
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
    let is_well = |found: &Finding| found.level <= Level::Note;
    if !asking.is_empty() && findings.list.iter().skip(before).all(is_well) {
        findings.ok("Sendmail asks exirate by the milter");
    }
}

#[cfg(test)]
mod tests {
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
    fn one_daemon_alone_may_ask() {
        let socket = Address::Unix("/run/exirate-mail/milter".into());
        let daemons = "O InputMailFilters=other\nO DaemonPortOptions=Name=MTA, Port=smtp\n\
             O DaemonPortOptions=Name=MSA, Port=587, M=E, InputMailFilters=other;exirate\n";
        let text = GOOD.replace("O InputMailFilters=other,exirate\n", daemons);
        let list = found(&text, Some(&socket));
        let [(Level::Note, note), (Level::Ok, _)] = &list[..] else { panic!("{list:?}") };
        let words = "only MSA in DAEMON_OPTIONS of sendmail.mc uses the milter exirate: the mail that MTA receives";
        assert!(note.starts_with(words), "{note}");
        let none = text.replace(";exirate", "");
        assert!(found(&none, Some(&socket))[0].1.contains("does not use it"));
    }

    #[test]
    fn options_are_read_as_sendmail_reads_them() {
        let socket = Address::Unix("/run/exirate-mail/milter".into());
        for text in [
            GOOD.replace("O InputMailFilters=", "O inputMAILfilters = "),
            GOOD.replace("O Milter.macros.envfrom=", "O milter.Macros.EnvFrom =\t"),
            GOOD.replace("Xexirate, ", "Xexirate,\n\t"),
            GOOD.replace("O InputMailFilters=", "O inputmail="),
            GOOD.replace("Xexirate, S=", "Xexirate, Socket="),
            GOOD.replace("Xother", "O DaemonPortOptions=Name=MTA\nXother"),
            GOOD.replace("Xother", "O DaemonPortOptions=Name=MTA, I=exirate;other\nXother"),
        ] {
            let list = found(&text, Some(&socket));
            assert_eq!(list[0].0, Level::Ok, "{text}: {list:?}");
        }
    }

    #[test]
    fn the_line_of_the_document_is_the_one_to_add() {
        let page = include_str!("../../../docs/sendmail.md");
        assert!(page.contains(&line(&Address::Unix("/run/exirate-mail/milter".into()))));
        let inet = Address::Inet("127.0.0.1:8893".parse().unwrap());
        assert!(line(&inet).contains("S=inet:8893@127.0.0.1, "), "{}", line(&inet));
        assert!(is("inet:8893@localhost", &inet) && is("inet:8893@127.0.0.1", &inet));
        assert!(!is("inet:8894@localhost", &inet) && !is("local:/x", &inet));
        let list = found(GOOD, None);
        assert!(list[0].1.contains("[listen] has no milter"), "{list:?}");
    }
}
