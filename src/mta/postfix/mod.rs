//! Postfix: its settings in `main.cf`, and the services in `master.cf` that replace some.

mod asked;
mod main_cf;
mod master_cf;
mod receiver;
mod restriction;
mod text;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::command;
use main_cf::{parse, reference};
use master_cf::services;
pub(crate) use text::without_blanks;
use text::{inside, split};

pub(crate) use asked::{Asked, milters};
pub(crate) use master_cf::Service;
pub(crate) use receiver::{
    END_OF_DATA, LISTS, LOCAL_MILTERS, MILTERS, RECIPIENT, Receiver, Sockets, set,
};
pub(crate) use restriction::policy_services;

/// Postfix's defaults of what is checked, for where `postconf` cannot be asked.
const DEFAULTS: [(&str, &str); 6] = [
    ("myorigin", "$myhostname"),
    ("queue_directory", "/var/spool/postfix"),
    ("milter_default_action", "tempfail"),
    ("milter_mail_macros", "{auth_authen}"),
    ("smtpd_policy_service_default_action", "451 4.3.5 Server configuration problem"),
    ("smtpd_policy_service_timeout", "100s"),
];

/// A Postfix: its settings, and its services that receive mail by SMTP.
#[derive(Debug, Default)]
pub(crate) struct Postfix {
    main: BTreeMap<String, String>,
    pub(crate) services: Vec<Service>,
    /// What looks up keys in its tables.
    postmap: Option<PathBuf>,
}

impl Postfix {
    /// The Postfix of this machine; `None` if there is none.
    pub(crate) fn of_this_machine() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let program = |name: &str| {
            let places = [PathBuf::from(name), Path::new("/usr/sbin").join(name)];
            places.into_iter().find_map(|program| command::named(&program, &path))
        };
        let settings = program("postconf").and_then(|program| {
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
        Some(Self { postmap: program("postmap"), ..Self::new(&settings, &master) })
    }

    /// From the text of both files.
    pub(crate) fn new(main: &str, master: &str) -> Self {
        let main = parse(main);
        // Without a level, Postfix keeps the defaults of version 2.
        let level = main.get("compatibility_level").and_then(|level| level.split('.').next());
        let is_old = level.and_then(|level| level.trim().parse().ok()).unwrap_or(0) < 1;
        Self { services: services(master, &main, is_old), main, postmap: None }
    }

    /// A setting, for a service or for all.
    pub(crate) fn value(&self, service: Option<&Service>, name: &str) -> String {
        self.expanded(service, name, 0)
    }

    /// What `$name`, `${name?text}`, `${name:text}` or `${name?{text}:{text}}` stands for.
    fn referred(&self, service: Option<&Service>, reference: &str, depth: u32) -> String {
        let Some(at) = reference.find(['?', ':']) else {
            return self.expanded(service, reference, depth);
        };
        let (name, then) = reference.split_at(at);
        let is_set = !self.expanded(service, name.trim(), depth).is_empty();
        let (wanted, text) = (then.starts_with('?') == is_set, then.get(1..).unwrap_or_default());
        let parts = split(text, |c| c == ':');
        let text = match (&parts[..], wanted) {
            ([yes, _], true) if inside(yes).is_some() => yes,
            ([yes, no], false) if inside(yes).is_some() => no,
            (_, true) => text,
            (_, false) => return String::new(),
        };
        self.with_values(service, inside(text).unwrap_or(text), depth)
    }

    fn expanded(&self, service: Option<&Service>, name: &str, depth: u32) -> String {
        let own = service.and_then(|service| service.own.get(name));
        let default = || DEFAULTS.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let value = own.or_else(|| self.main.get(name)).map(String::as_str).or_else(default);
        self.with_values(service, value.unwrap_or_default(), depth)
    }

    /// A text with the values of the settings that it refers to.
    fn with_values(&self, service: Option<&Service>, mut rest: &str, depth: u32) -> String {
        let mut text = String::new();
        while let Some((before, after)) = rest.split_once('$') {
            text.push_str(before);
            let (reference, next) = reference(after);
            // Settings that refer to each other have no value.
            if reference.is_empty() || depth > 8 {
                text.push('$');
                rest = after;
            } else {
                text.push_str(&self.referred(service, reference, depth + 1));
                rest = next;
            }
        }
        text + rest
    }
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
        let main = "set = x\na = ${set?yes}${set:no}\nb = ${none?yes}${none:no $set}\n\
                    c = ${set?{$set, y}:{n}} ${none?{y}:{n}}\n";
        let postfix = Postfix::new(main, "");
        let values = ["a", "b", "c"].map(|name| postfix.value(None, name));
        assert_eq!(values, ["yes", "no x", "x, y n"]);
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
    fn classes_stand_for_their_lists() {
        let main = "smtpd_restriction_classes = a, b\na = b, permit_mynetworks\nb = reject\n\
                    c = no\n";
        let texts = |main: &str, list: &str| -> Vec<String> {
            let list = Postfix::new(main, "").restrictions(None, list);
            list.iter().map(restriction::Restriction::text).collect()
        };
        assert_eq!(texts(main, "x, a c"), ["x", "reject", "permit_mynetworks", "c"]);
        assert_eq!(texts("smtpd_restriction_classes = a\na = a\n", "a"), ["a"]);
        // What is before a class is before all of it.
        let warned = ["warn_if_reject reject", "warn_if_reject permit_mynetworks", "c"];
        assert_eq!(texts(main, "warn_if_reject a c"), warned);
        for (said, list) in [
            ("ok", "permit"),
            ("{ OK }", "permit"),
            ("12", "permit"),
            ("REJECT", "reject"),
            ("{554 no}", "reject"),
            ("a", "reject permit_mynetworks"),
            ("dunno", "check_client_access static:dunno"),
        ] {
            let said = format!("check_client_access static:{said}");
            let said = if said.ends_with("no") && said.contains(' ') {
                said.replace("554 no", "{554 no}")
            } else {
                said
            };
            assert_eq!(texts(main, &said).join(" "), list, "{said}");
        }
    }
}
