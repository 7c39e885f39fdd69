//! Postfix's settings: `main.cf`, and the services in `master.cf` that replace some.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::command;

/// Postfix's defaults of what is checked, for where `postconf` cannot be asked.
const DEFAULTS: [(&str, &str); 5] = [
    ("queue_directory", "/var/spool/postfix"),
    ("milter_default_action", "tempfail"),
    ("milter_mail_macros", "{auth_authen}"),
    ("smtpd_policy_service_default_action", "451 4.3.5 Server configuration problem"),
    ("smtpd_policy_service_timeout", "100s"),
];

/// A Postfix: its settings, and its services that receive mail by SMTP.
#[derive(Debug, Default)]
pub(in crate::cli::system::doctor) struct Postfix {
    main: BTreeMap<String, String>,
    pub(super) services: Vec<Service>,
}

/// A service that receives mail by SMTP.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Service {
    /// As `postconf -P` has it: `submission/inet`.
    pub(super) name: String,
    /// It runs in a chroot, the queue directory.
    pub(super) chroot: bool,
    /// The settings that it does not take from `main.cf`.
    own: BTreeMap<String, String>,
    /// It takes back what a content filter has seen: another service has received it.
    pub(super) reinjects: bool,
}

impl Service {
    /// Whether it has a setting of its own.
    pub(super) fn replaces(&self, name: &str) -> bool {
        self.own.contains_key(name)
    }
}

impl Postfix {
    /// The Postfix of this machine; `None` if there is none.
    pub(super) fn of_this_machine() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let places = [Path::new("postconf"), Path::new("/usr/sbin/postconf")];
        let postconf = places.into_iter().find_map(|program| command::named(program, &path));
        let settings = postconf.and_then(|program| {
            let mut command = Command::new(program);
            // Every setting, with what it refers to in its place.
            command.arg("-x");
            command::run(command).ok().filter(|output| output.success)
        });
        let settings = match settings {
            Some(output) => output.stdout,
            None => std::fs::read_to_string("/etc/postfix/main.cf").ok()?,
        };
        let directory =
            parse(&settings).get("config_directory").map_or("/etc/postfix".into(), PathBuf::from);
        let master = std::fs::read_to_string(directory.join("master.cf")).unwrap_or_default();
        Some(Self::new(&settings, &master))
    }

    /// From the text of both files.
    pub(super) fn new(main: &str, master: &str) -> Self {
        let main = parse(main);
        // Without a level, Postfix keeps the defaults of version 2.
        let level = main.get("compatibility_level").and_then(|level| level.split('.').next());
        let is_old = level.and_then(|level| level.trim().parse().ok()).unwrap_or(0) < 1;
        Self { services: services(master, is_old), main }
    }

    /// The words of a list of restrictions for a service or for all, with the lists of
    /// restriction classes in the place of their names.
    pub(super) fn restrictions(&self, service: Option<&Service>, list: &str) -> Vec<String> {
        let classes = words(&self.value(service, "smtpd_restriction_classes"));
        self.with_classes(service, words(list), &classes, 0)
    }

    fn with_classes(
        &self,
        service: Option<&Service>,
        list: Vec<String>,
        classes: &[String],
        depth: u32,
    ) -> Vec<String> {
        let each = list.into_iter().flat_map(|word| {
            if depth > 8 || !classes.contains(&word) {
                return vec![word];
            }
            self.with_classes(service, words(&self.value(service, &word)), classes, depth + 1)
        });
        each.collect()
    }

    /// A setting, for a service or for all.
    pub(super) fn value(&self, service: Option<&Service>, name: &str) -> String {
        self.expanded(service, name, 0)
    }

    fn expanded(&self, service: Option<&Service>, name: &str, depth: u32) -> String {
        let own = service.and_then(|service| service.own.get(name));
        let default = || DEFAULTS.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let value = own.or_else(|| self.main.get(name)).map(String::as_str).or_else(default);
        let mut rest = value.unwrap_or_default();
        let mut text = String::new();
        while let Some((before, after)) = rest.split_once('$') {
            text.push_str(before);
            let (name, next) = reference(after);
            // Settings that refer to each other have no value.
            if name.is_empty() || depth > 8 {
                text.push('$');
                rest = after;
            } else {
                text.push_str(&self.expanded(service, name, depth + 1));
                rest = next;
            }
        }
        text + rest
    }
}

/// The name at the start of what follows a `$`, and what comes after it.
fn reference(text: &str) -> (&str, &str) {
    for (open, close) in [('{', '}'), ('(', ')')] {
        if let Some((name, rest)) = text.strip_prefix(open).and_then(|text| text.split_once(close))
        {
            return (name, rest);
        }
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split_at(text.find(|c| !is_name(c)).unwrap_or(text.len()))
}

/// The logical lines of a file: a line that starts with a blank continues the one before.
fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if line.trim_start().starts_with('#') {
            continue;
        }
        match lines.last_mut() {
            Some(last) if line.starts_with([' ', '\t']) => {
                last.push(' ');
                last.push_str(line.trim());
            }
            _ => lines.push(line.trim_end().to_owned()),
        }
    }
    lines
}

/// The settings in `main.cf`, or in what `postconf` prints.
fn parse(text: &str) -> BTreeMap<String, String> {
    let setting = |line: &String| {
        let (name, value) = line.split_once('=')?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    lines(text).iter().filter_map(setting).collect()
}

/// The services in `master.cf` that receive mail by SMTP. `default_chroot` is what `-` stands
/// for in the column for the chroot.
fn services(text: &str, default_chroot: bool) -> Vec<Service> {
    let service = |line: &String| {
        let words = split(line, char::is_whitespace);
        let [name, kind, _, _, chroot, _, _, program, arguments @ ..] = &words[..] else {
            return None;
        };
        if program != "smtpd" || !matches!(&**kind, "inet" | "pass" | "unix") {
            return None;
        }
        let mut own = BTreeMap::new();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            // `-o name=value`, or `-oname=value`.
            let setting = match argument.strip_prefix("-o") {
                Some("") => arguments.next().map(String::as_str),
                setting => setting,
            };
            let setting = setting.map(|text| inside(text).unwrap_or(text));
            if let Some((name, value)) = setting.and_then(|text| text.split_once('=')) {
                own.insert(name.trim().to_owned(), value.trim().to_owned());
            }
        }
        let chroot = chroot == "y" || chroot == "-" && default_chroot;
        let is_empty = |name: &str| own.get(name).is_some_and(String::is_empty);
        let reinjects =
            is_loopback(name) && (is_empty("content_filter") || is_empty("smtpd_proxy_filter"));
        Some(Service { name: format!("{name}/{kind}"), chroot, own, reinjects })
    };
    lines(text).iter().filter_map(service).collect()
}

/// Whether a service listens on this machine only: `127.0.0.1:10025`, `[::1]:10026`.
fn is_loopback(name: &str) -> bool {
    let host = name.rsplit_once(':').map_or("", |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// A list without blanks, as `postconf -P` takes it: commas between the words, also of those
/// in braces. A text in braces keeps its blanks.
pub(super) fn without_blanks(list: &str) -> String {
    let word = |word: String| match inside(&word) {
        Some(list) => format!("{{{}}}", without_blanks(list)),
        None => word,
    };
    words(list).into_iter().map(word).collect::<Vec<_>>().join(",")
}

/// What is within braces.
pub(super) fn inside(word: &str) -> Option<&str> {
    Some(word.strip_prefix('{')?.strip_suffix('}')?.trim())
}

/// The words of a list, between blanks and commas; what is in braces is one word.
pub(super) fn words(text: &str) -> Vec<String> {
    split(text, |c| c.is_whitespace() || c == ',')
}

fn split(text: &str, is_gap: impl Fn(char) -> bool) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut depth) = (String::new(), 0_usize);
    for c in text.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && is_gap(c) {
            if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
        } else {
            word.push(c);
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_postfix_reads_them() {
        let main = "# mail_owner = x\nsmtpd_milters = unix:a,\n  # not this\n\n\tinet:localhost:1\n\
                    non_smtpd_milters = $smtpd_milters ${more}$(no)$\nmore=b\nloop = $loop\n\
                    mail_owner = one\nmail_owner = postfix\n";
        let postfix = Postfix::new(main, "");
        let value = |name: &str| postfix.value(None, name);
        assert_eq!(value("smtpd_milters"), "unix:a, inet:localhost:1");
        assert_eq!(value("non_smtpd_milters"), "unix:a, inet:localhost:1 b$");
        assert_eq!(value("mail_owner"), "postfix");
        assert_eq!(value("queue_directory"), "/var/spool/postfix");
        assert!(value("loop").starts_with('$'));
        assert_eq!(value("unknown"), "");
    }

    #[test]
    fn services_have_settings_of_their_own() {
        let master = "smtp      inet  n       -       y       -       -       smtpd\n\
                      pickup    unix  n       -       y       60      1       pickup\n\
                      submission inet n - - - - smtpd\n  -o syslog_name=postfix/submission\n  \
                      -o { smtpd_recipient_restrictions = permit_sasl_authenticated, reject }\n";
        let postfix = Postfix::new("syslog_name = postfix\ncompatibility_level = 3.6\n", master);
        let [smtp, submission] = &postfix.services[..] else { panic!("{postfix:?}") };
        assert_eq!((&*smtp.name, smtp.chroot), ("smtp/inet", true));
        assert_eq!((&*submission.name, submission.chroot), ("submission/inet", false));
        assert_eq!(postfix.value(Some(smtp), "syslog_name"), "postfix");
        assert_eq!(postfix.value(Some(submission), "syslog_name"), "postfix/submission");
        let list = postfix.value(Some(submission), "smtpd_recipient_restrictions");
        assert_eq!(list, "permit_sasl_authenticated, reject");
        assert!(submission.replaces("smtpd_recipient_restrictions"));
    }

    #[test]
    fn the_default_of_the_chroot_is_that_of_the_level() {
        let chroot = |main: &str| {
            let master = "smtp inet n - - - - smtpd\n";
            Postfix::new(main, master).services[0].chroot
        };
        assert!(chroot("") && chroot("compatibility_level = 0\n"));
        assert!(!chroot("compatibility_level = 1\n") && !chroot("compatibility_level = 3.6\n"));
    }

    #[test]
    fn a_service_that_takes_back_filtered_mail_is_known() {
        let is = |line: &str| Postfix::new("", line).services[0].reinjects;
        assert!(is("127.0.0.1:10025 inet n - n - - smtpd -o content_filter=\n"));
        assert!(is("[::1]:10025 inet n - n - - smtpd -o smtpd_proxy_filter=\n"));
        assert!(!is("127.0.0.1:10025 inet n - n - - smtpd\n"));
        assert!(!is("10025 inet n - n - - smtpd -o content_filter=\n"));
        assert!(!is("192.0.2.1:25 inet n - n - - smtpd -o content_filter=\n"));
    }

    #[test]
    fn classes_stand_for_their_lists() {
        let main = "smtpd_restriction_classes = a, b\na = b, permit_mynetworks\nb = reject\n\
                    c = no\n";
        let postfix = Postfix::new(main, "");
        assert_eq!(postfix.restrictions(None, "x, a c"), ["x", "reject", "permit_mynetworks", "c"]);
        let endless = Postfix::new("smtpd_restriction_classes = a\na = a\n", "");
        assert_eq!(endless.restrictions(None, "a"), ["a"]);
    }

    #[test]
    fn lists_can_do_without_blanks() {
        assert_eq!(
            without_blanks(
                "check_policy_service { unix:a, timeout=10s }, permit_mynetworks  reject"
            ),
            "check_policy_service,{unix:a,timeout=10s},permit_mynetworks,reject"
        );
        assert!(without_blanks("{ unix:a, default_action={450 later} }").contains(' '));
    }

    #[test]
    fn what_is_in_braces_is_one_word() {
        let list = "reject_unlisted_recipient,check_policy_service { unix:a, timeout=10s } permit";
        let expected = [
            "reject_unlisted_recipient",
            "check_policy_service",
            "{ unix:a, timeout=10s }",
            "permit",
        ];
        assert_eq!(words(list), expected);
        assert_eq!(inside("{ unix:a, timeout=10s }"), Some("unix:a, timeout=10s"));
        assert_eq!(words(" , "), [""; 0]);
    }
}
