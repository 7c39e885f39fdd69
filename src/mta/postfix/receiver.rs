//! What receives mail, as Postfix has it set, and the settings by which it asks exirate.

use std::path::Path;

use super::asked::{Asked, CHECK, name};
use super::restriction::{Restriction, own, policy_services};
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
/// Those of them that are evaluated for each recipient; all that are before it in the dialogue
/// only if `smtpd_delay_reject` is set.
const BY_RECIPIENT: [&str; 2] = ["smtpd_relay_restrictions", RECIPIENT];
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

    /// Whether a list is evaluated for each recipient.
    pub(crate) fn is_by_recipient(&self, list: &str) -> bool {
        let before = LISTS.iter().take_while(|one| !BY_RECIPIENT.contains(one));
        let is_delayed = self.value("smtpd_delay_reject") != "no";
        BY_RECIPIENT.contains(&list) || is_delayed && before.into_iter().any(|one| *one == list)
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
    /// exirate. A class that has the check at its right place is moved; of another one that has
    /// one, the restrictions stand in its place.
    pub(crate) fn with_check(&self, list: &str, address: Option<&Address>) -> String {
        let is_check = |one: &Restriction| {
            one.policy_service(self.queue).is_some_and(|asked| self.is_ours(&asked))
        };
        let (mut others, mut class, mut at): (Vec<String>, Option<String>, _) =
            (Vec::new(), None, None);
        for one in own(&self.value(list)) {
            let (text, is_direct) = (one.text(), is_check(&one));
            let within = self.postfix.within(self.service, one, 0);
            let asked = policy_services(&within, self.queue);
            let is_right = |asked: &Asked| {
                asked.address.as_ref() == address && asked.ending.is_none() && !asked.only_warns
            };
            let ours: Vec<&Asked> = asked.iter().filter(|asked| self.is_ours(asked)).collect();
            if !is_direct
                && address.is_some()
                && !ours.is_empty()
                && ours.iter().all(|one| is_right(one))
            {
                class = Some(text);
                continue;
            }
            if within.iter().any(Restriction::ends) {
                at.get_or_insert(others.len());
            }
            match ours.is_empty() {
                true => others.push(text),
                false => {
                    let left = within.iter().filter(|one| !is_check(one));
                    others.extend(left.map(Restriction::text));
                }
            }
        }
        if let Some(address) = address {
            let name = name(address, self.queue);
            let check = format!("{CHECK} {{ {name}, timeout=10s, default_action=DUNNO }}");
            others.insert(at.unwrap_or(others.len()), class.unwrap_or(check));
        }
        others.join(", ")
    }

    /// The milters with that of exirate, or without it.
    pub(crate) fn with_milter(&self, address: Option<&Address>) -> String {
        let milter = address.map(|address| {
            let name = name(address, self.queue);
            format!("{{ {name}, command_timeout=10s, default_action=accept }}")
        });
        let others = words(&self.value(MILTERS))
            .into_iter()
            .filter(|word| !Asked::new(word, self.queue).is_some_and(|asked| self.is_ours(&asked)));
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
