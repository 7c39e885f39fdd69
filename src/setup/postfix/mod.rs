//! Postfix: the check in its lists of restrictions, by the policy protocol.
//!
//! `main.cf` and `master.cf` are replaced by one rename each. A daemon that Postfix starts in
//! between has the check in the lists of `main.cf` and not yet in those that `master.cf` gives a
//! service of its own, which the master reads when it is reloaded. As nothing refuses mail then,
//! and mail passes where the check is missing, no message is lost or refused for it.

mod text;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::daemon::DaemonNeeds;
use super::files::Steps;
use super::files::Temporary;
use super::policy_file::{Facts, qualifying};
use super::probe::comes_to_policies;
use super::{BEGIN, Contents, END, MailServer, Plan, SetupError, run};
use crate::mta::postfix::{
    Asked, END_OF_DATA, MILTERS, Postfix as Settings, RECIPIENT, Receiver, Service, Sockets,
    milters, policy_services, without_blanks,
};
use crate::policy::needs::FrontEnd;
use crate::serve::config::Address;

/// The lists that the check belongs in.
const LISTS: [&str; 2] = [RECIPIENT, END_OF_DATA];
/// The group of Postfix's processes.
const GROUP: &str = "postfix";
/// How long Postfix may take until its new processes have replaced the old ones.
const RELOAD: Duration = Duration::from_secs(15);

/// A Postfix.
struct Postfix {
    settings: Settings,
    /// `/etc/postfix`
    directory: PathBuf,
    /// `/var/spool/postfix`
    queue: PathBuf,
    /// Whether it asks the milter already.
    by_milter: bool,
    daemon: DaemonNeeds,
    spool: PathBuf,
}

/// Looks at the Postfix of this machine.
pub(super) fn find() -> Result<Box<dyn MailServer>, SetupError> {
    let settings = Settings::of_this_machine().ok_or_else(|| match run("postconf", &["-n"]) {
        Err(why) => SetupError::unsound("Postfix", &why),
        Ok(()) => SetupError::Unfit("Postfix has no configuration".to_owned()),
    })?;
    let queue = PathBuf::from(settings.value(None, "queue_directory"));
    let directory = match settings.value(None, "config_directory") {
        empty if empty.is_empty() => "/etc/postfix".into(),
        directory => PathBuf::from(directory),
    };
    let by_milter = asks_milter(&settings, &queue);
    let key = if by_milter { "milter" } else { "policy" };
    let socket = queue.join("exirate").join(key);
    let group = Some(GROUP.to_owned());
    let daemon = DaemonNeeds { asker: "Postfix", key, socket, group };
    let spool = daemon.spool();
    Ok(Box::new(Postfix { settings, directory, queue, by_milter, daemon, spool }))
}

/// Whether Postfix asks the milter, which counts all that the policy service would: with both,
/// everything would count twice.
fn asks_milter(postfix: &Settings, queue: &Path) -> bool {
    let configured = DaemonNeeds::configured().ok().flatten();
    let milter = configured.as_ref().and_then(|mail| mail.milter.as_ref());
    let sockets = Sockets { policy: None, milter };
    let by = Receiver { postfix, service: None, queue, sockets };
    milters(&postfix.value(None, MILTERS), queue).iter().any(|asked| by.is_ours(asked))
}

impl MailServer for Postfix {
    fn name(&self) -> String {
        let by = if self.by_milter { "the milter" } else { "the policy protocol" };
        match &*self.settings.value(None, "mail_version") {
            // Its configuration cannot be read.
            "" => format!("Postfix, by {by}"),
            version => format!("Postfix {version}, by {by}"),
        }
    }

    fn spool(&self) -> &Path {
        &self.spool
    }

    fn plan(&self) -> Result<Plan, SetupError> {
        self.is_sound()?;
        let mut plan = Plan::default();
        self.daemon.plan(&mut plan, || Ok(self.facts()))?;
        if !self.by_milter {
            let address = self.daemon.address()?;
            self.main(&mut plan, &address)?;
            self.master(&mut plan, &address)?;
        }
        Ok(plan)
    }

    fn is_running(&self) -> Result<(), SetupError> {
        run("postfix", &["status"]).map_err(|_| {
            SetupError::Unfit(
                "Postfix does not run: start it, then run `exirate setup` again".to_owned(),
            )
        })
    }

    fn check(&self, changed: &Contents) -> Result<(), SetupError> {
        let copy = Temporary::make(0o755)?;
        for name in ["main.cf", "master.cf"] {
            copy.copy(&self.directory.join(name), changed)?;
        }
        let directory = copy.path().to_string_lossy();
        run("postconf", &["-c", &directory, "-n"])?;
        run("postconf", &["-c", &directory, "-M"])?;
        run("postconf", &["-c", &directory, "-P"])?;
        // Postfix's commands write to the log where there is no terminal.
        let says_why = |why| format!("{why}; `postfix check` in a terminal, or the log, says why");
        run("postfix", &["-c", &directory, "check"]).map_err(|why| SetupError::Unfit(says_why(why)))
    }

    fn put_into_force(&self, steps: &Steps) -> Result<(), SetupError> {
        run("postfix", &["reload"])?;
        steps.step();
        Ok(())
    }

    fn probe(&self) -> Result<(), SetupError> {
        let name = self.settings.value(None, "myhostname");
        let recipients = [format!("postmaster@{name}"), "postmaster".to_owned()];
        comes_to_policies(&self.spool, self.listener(), &recipients, false, RELOAD, remove)
    }
}

/// Removes the message of a probe that Postfix has taken, and holds.
fn remove(reply: &str) -> Result<(), SetupError> {
    let id = reply.rsplit_once("queued as ").map(|(_, id)| id.trim());
    // `postsuper -d ALL` deletes all messages.
    let is_id = |id: &&str| {
        !id.is_empty() && *id != "ALL" && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    match id.filter(is_id) {
        Some(id) => run("postsuper", &["-d", id]),
        None => Err(SetupError::Unfit(format!("a message of the probe is held: {reply}"))),
    }
}

impl Postfix {
    fn is_sound(&self) -> Result<(), SetupError> {
        let version = self.settings.value(None, "mail_version");
        let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        if major.is_some_and(|major| major < 3) {
            return Err(SetupError::Unfit(format!(
                "Postfix {version} is too old: the check needs Postfix 3.0"
            )));
        }
        self.check(&Contents::new()).map_err(|why| SetupError::unsound("Postfix", &why))
    }

    fn receiver<'a>(&'a self, service: Option<&'a Service>, address: &'a Address) -> Receiver<'a> {
        let sockets = Sockets { policy: Some(address), milter: None };
        Receiver { postfix: &self.settings, service, queue: &self.queue, sockets }
    }

    /// Whether mail comes to the check of a list: in the one of a service, or in `main.cf`.
    fn has(&self, service: Option<&Service>, list: &str, address: &Address) -> bool {
        let words = self.settings.restrictions(service, &self.settings.value(service, list));
        let asked = policy_services(&words, &self.queue);
        let is_right = |one: &Asked| one.ending.is_none() && !one.only_warns;
        asked.iter().any(|one| is_right(one) && one.address.as_ref() == Some(address))
    }

    /// The check, as a list has it.
    fn check_of(&self, address: &Address, blanks: bool) -> String {
        let name = match address {
            Address::Unix(path) => {
                let path = path.strip_prefix(&self.queue).unwrap_or(path);
                format!("unix:{}", path.display())
            }
            Address::Inet(_) => address.to_string(),
        };
        match blanks {
            true => format!("check_policy_service {{ {name}, timeout=10s, default_action=DUNNO }}"),
            false => format!("check_policy_service,{{{name},timeout=10s,default_action=DUNNO}}"),
        }
    }

    /// Adds the check to the lists of `main.cf`.
    fn main(&self, plan: &mut Plan, address: &Address) -> Result<(), SetupError> {
        let file = self.directory.join("main.cf");
        let text = ascii(plan.read(&file)?);
        let check = self.check_of(address, true);
        let mut block = String::new();
        for list in LISTS.into_iter().filter(|list| !self.has(None, list, address)) {
            match text::setting(&text, list) {
                Some(found) => {
                    let (at, insert) = found.insertion(&text, &check, true);
                    plan.insert(&file, at, insert);
                }
                // What Postfix refuses of its own is not counted.
                None if list == RECIPIENT => {
                    block += &format!("{list} = reject_unlisted_recipient, {check}\n");
                }
                None => block += &format!("{list} = {check}\n"),
            }
        }
        if !block.is_empty() {
            plan.append(&file, format!("{BEGIN}\n{block}{END}\n"));
        }
        Ok(())
    }

    /// Adds the check to the lists that services have of their own. A service that takes back
    /// what a content filter has seen gets none: it would count each message again.
    fn master(&self, plan: &mut Plan, address: &Address) -> Result<(), SetupError> {
        let file = self.directory.join("master.cf");
        let text = ascii(plan.read(&file)?);
        let check = self.check_of(address, false);
        for found in text::services(&text, &LISTS) {
            let Some(service) = self.settings.services.iter().find(|one| one.name == found.name)
            else {
                continue;
            };
            if !service.reinjects {
                for (name, list) in &found.lists {
                    if !self.has(Some(service), name, address) {
                        let (at, insert) = list.insertion(&text, &check, false);
                        plan.insert(&file, at, insert);
                    }
                }
                continue;
            }
            let mut lines = String::new();
            for list in LISTS.iter().filter(|list| !service.replaces(list)) {
                let value = self.receiver(Some(service), address).with_check(list, None);
                let value = without_blanks(&value);
                if value.contains(char::is_whitespace) {
                    plan.by_hand.push(format!(
                        "{}: the service {} takes back filtered mail, which counts twice there: \
                         give it {list} without the check",
                        file.display(),
                        found.name
                    ));
                } else {
                    lines += &format!("\n  -o {list}={value}");
                }
            }
            if !lines.is_empty() {
                plan.insert(&file, found.end, lines);
            }
        }
        Ok(())
    }

    /// Where Postfix receives mail, as this machine reaches it.
    fn listener(&self) -> SocketAddr {
        let interfaces = self.settings.value(None, "inet_interfaces");
        let addresses: Vec<IpAddr> = interfaces
            .split([',', ' ', '\t'])
            .filter_map(|one| one.trim_matches(['[', ']']).parse().ok())
            .collect();
        let loopback = addresses.iter().find(|address| address.is_loopback());
        let own = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let address = loopback.or(addresses.first()).copied().unwrap_or(own);
        SocketAddr::new(address, 25)
    }

    /// What the policy file says of this server.
    fn facts(&self) -> Facts {
        let list = |name: &str| {
            let value = self.settings.value(None, name);
            let items = value.split([',', ' ', '\t', '\n']).map(str::to_owned);
            items.filter(|item| !item.is_empty()).collect::<Vec<_>>()
        };
        let own = ["mydestination", "virtual_mailbox_domains", "virtual_alias_domains"];
        let domains = own.into_iter().flat_map(list).collect();
        let smarthost = self.settings.value(None, "relayhost");
        let smarthost = (!smarthost.is_empty()).then_some(smarthost);
        let name = self.settings.value(None, "myhostname");
        let facts = Facts::of(name, domains, list("mynetworks"), smarthost);
        let qualify = qualify(|name| self.settings.value(None, name));
        let front_end = if self.by_milter { FrontEnd::Milter } else { FrontEnd::PolicyProtocol };
        Facts { front_end: Some(front_end), qualify, ..facts }
    }
}

/// The domain that Postfix adds to logins and senders without one, by the values of its settings. In
/// a virtual domain, a mailbox is not the login of that name.
fn qualify(value: impl Fn(&str) -> String) -> Option<String> {
    let of_file = |text: String| match text.starts_with('/') {
        true => std::fs::read_to_string(&text).unwrap_or_default(),
        false => text,
    };
    let local = Some(value("smtpd_sasl_local_domain")).filter(|text| !text.is_empty());
    let domain = local.unwrap_or_else(|| of_file(value("myorigin")));
    let domain = qualifying(domain.lines().next().unwrap_or_default())?;
    let is_virtual = ["virtual_mailbox_domains", "virtual_alias_domains"].iter().any(|name| {
        let items = value(name);
        let mut items = items.split([',', ' ', '\t', '\n']);
        items.any(|item| item.eq_ignore_ascii_case(&domain))
    });
    (!is_virtual).then_some(domain)
}

/// A text of the same length, for places in it: comments may be in any encoding.
fn ascii(bytes: Option<&[u8]>) -> String {
    let bytes = bytes.unwrap_or_default().iter();
    bytes.map(|byte| if byte.is_ascii() { char::from(*byte) } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_get_the_domain_that_postfix_adds() {
        let folder = tempfile::tempdir().unwrap();
        let mailname = folder.path().join("mailname");
        std::fs::write(&mailname, "Mail.Test\n").unwrap();
        let mailname = mailname.to_str().unwrap();
        for (local, origin, mailboxes, expected) in [
            ("", "mail.test", "", Some("mail.test")),
            ("", mailname, "", Some("mail.test")),
            ("sasl.test", mailname, "mail.test", Some("sasl.test")),
            // A mailbox of a virtual domain is not the login of that name.
            ("", mailname, "other.test, MAIL.test", None),
            ("sasl.test", "mail.test", "hash:/etc/postfix/domains sasl.test", None),
            ("", "localhost", "", None),
            ("", "/nonexistent/mailname", "", None),
        ] {
            let value = |name: &str| {
                let text = match name {
                    "smtpd_sasl_local_domain" => local,
                    "myorigin" => origin,
                    "virtual_mailbox_domains" => mailboxes,
                    _ => "",
                };
                text.to_owned()
            };
            assert_eq!(qualify(value).as_deref(), expected, "{local} {origin} {mailboxes}");
        }
    }
}
