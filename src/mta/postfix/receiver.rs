//! What receives mail, as Postfix has it set, and the settings by which it asks exirate.

use std::path::Path;

use super::asked::{Asked, CHECK, ends, name, policy_services, takes_word};
use super::text::{without_blanks, words};
use super::{Postfix, Service};
use crate::mta::command::quoted;
use crate::serve::config::Address;

/// The lists that can have a policy service.
pub(crate) const LISTS: [&str; 7] = [
    "smtpd_client_restrictions",
    "smtpd_helo_restrictions",
    "smtpd_sender_restrictions",
    "smtpd_relay_restrictions",
    RECIPIENT,
    "smtpd_data_restrictions",
    END_OF_DATA,
];
pub(crate) const RECIPIENT: &str = "smtpd_recipient_restrictions";
pub(crate) const END_OF_DATA: &str = "smtpd_end_of_data_restrictions";
pub(crate) const MILTERS: &str = "smtpd_milters";
pub(crate) const LOCAL_MILTERS: &str = "non_smtpd_milters";

/// Where the daemon listens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sockets<'a> {
    /// `listen.policy`
    pub(crate) policy: Option<&'a Address>,
    /// `listen.milter`
    pub(crate) milter: Option<&'a Address>,
}

/// A service that receives mail, or what `main.cf` says for all.
pub(crate) struct Receiver<'a> {
    pub(crate) postfix: &'a Postfix,
    pub(crate) service: Option<&'a Service>,
    pub(crate) queue: &'a Path,
    pub(crate) sockets: Sockets<'a>,
}

impl Receiver<'_> {
    pub(crate) fn value(&self, name: &str) -> String {
        self.postfix.value(self.service, name)
    }

    /// Where a setting is.
    pub(crate) fn place(&self, name: &str) -> String {
        match self.service.filter(|service| service.replaces(name)) {
            Some(service) => format!("{name} of {} in master.cf", service.name),
            None => format!("{name} in main.cf"),
        }
    }

    /// The commands that set it.
    pub(crate) fn set(&self, name: &str, value: &str) -> Vec<String> {
        set(self.service.filter(|service| service.replaces(name)), name, value)
    }

    /// Whether a service or milter is one of exirate, at this address or another one.
    pub(crate) fn is_ours(&self, asked: &Asked) -> bool {
        let sockets = [self.sockets.policy, self.sockets.milter];
        let listens = asked.address.is_some() && sockets.contains(&asked.address.as_ref());
        listens || asked.text.contains("exirate")
    }

    /// A list with the check before what ends it, or without the check; with no other check of
    /// exirate. A class that has the check is moved; without the check, its list stands in its
    /// place.
    pub(crate) fn with_check(&self, list: &str, address: Option<&Address>) -> String {
        let value = self.value(list);
        let mut words = match address {
            Some(_) => words(&value),
            None => self.postfix.restrictions(self.service, &value),
        }
        .into_iter();
        let (mut others, mut class): (Vec<String>, Option<String>) = (Vec::new(), None);
        while let Some(word) = words.next() {
            // What it refuses, it only writes to the log.
            if word.eq_ignore_ascii_case("warn_if_reject")
                && let Some(next) = words.next()
            {
                let takes = if takes_word(&next) { words.next() } else { None };
                let both = [Some(word), Some(next), takes].into_iter().flatten();
                others.push(both.collect::<Vec<_>>().join(" "));
                continue;
            }
            // With what it checks.
            if takes_word(&word)
                && let Some(next) = words.next()
            {
                let is_policy = word.eq_ignore_ascii_case(CHECK);
                let asked = is_policy.then(|| Asked::new(&next, None, self.queue)).flatten();
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
    pub(crate) fn with_milter(&self, address: Option<&Address>) -> String {
        let milter = address.map(|address| {
            let name = name(address, self.queue);
            format!("{{ {name}, command_timeout=10s, default_action=accept }}")
        });
        let others = words(&self.value(MILTERS)).into_iter().filter(|word| {
            !Asked::new(word, None, self.queue).is_some_and(|asked| self.is_ours(&asked))
        });
        milter.into_iter().chain(others).collect::<Vec<_>>().join(", ")
    }
}

/// The commands that set a setting, in `master.cf` or `main.cf`.
pub(crate) fn set(service: Option<&Service>, name: &str, value: &str) -> Vec<String> {
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
