//! Whether Postfix asks the daemon: for each recipient and message, at the right place of
//! its lists, and so that mail goes on without it.

use std::path::Path;

use super::super::finding::Findings;
use crate::mta::postfix::{
    Asked, END_OF_DATA, LISTS, LOCAL_MILTERS, MILTERS, Postfix, RECIPIENT, Receiver, Service,
    Sockets, milters, policy_services, set,
};
use crate::serve::config::Address;

/// Postfix waits so long for a reply that clients give up, if exirate hangs: in seconds.
const TIMEOUT_MAX: u64 = 30;

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
        receiver(&Receiver { postfix, service, queue, sockets }, &mut ways, findings);
    }
    for service in reinjecting {
        counts_again(&Receiver { postfix, service: Some(service), queue, sockets }, findings);
    }
    let all = Receiver { postfix, service: None, queue, sockets };
    local(&all, &ways, findings);
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

fn receiver(one: &Receiver<'_>, ways: &mut Ways, findings: &mut Findings) {
    let asks_policy = policy(one, findings);
    let asks_milter = milter(one, findings);
    ways.policy |= asks_policy;
    ways.milter |= asks_milter;
    if asks_policy || asks_milter {
        return;
    }
    let (Some(address), name) = (match one.sockets {
        Sockets { policy: Some(policy), .. } => (Some(policy), RECIPIENT),
        Sockets { milter, .. } => (milter, MILTERS),
    }) else {
        return;
    };
    let who = one
        .service
        .map_or("Postfix".to_owned(), |service| format!("{} of master.cf", service.name));
    findings.problem(format!(
        "{who} does not ask exirate: its mail is not limited; `exirate setup` adds what is missing"
    ));
    if name == RECIPIENT {
        for name in [RECIPIENT, END_OF_DATA] {
            findings.fixes(one.set(name, &one.with_check(name, Some(address))));
        }
    } else {
        findings.fixes(one.set(name, &one.with_milter(Some(address))));
    }
}

/// A service that takes back filtered mail asks for what was counted already.
fn counts_again(one: &Receiver<'_>, findings: &mut Findings) {
    let asks = |list: &&str| {
        let words = one.postfix.restrictions(one.service, &one.value(list));
        policy_services(&words, one.queue).iter().any(|asked| one.is_ours(asked))
    };
    let lists: Vec<&str> = LISTS.into_iter().filter(asks).collect();
    let asks_milter =
        milters(&one.value(MILTERS), one.queue).iter().any(|asked| one.is_ours(asked));
    if lists.is_empty() && !asks_milter {
        return;
    }
    let who = one.service.map_or("", |service| &service.name);
    findings.problem(format!(
        "{who} of master.cf takes back mail from a content filter and asks exirate again: each \
         message counts twice"
    ));
    for list in lists {
        findings.fixes(set(one.service, list, &one.with_check(list, None)));
    }
    if asks_milter {
        findings.fixes(set(one.service, MILTERS, &one.with_milter(None)));
    }
}

/// Whether it asks the policy service.
fn policy(one: &Receiver<'_>, findings: &mut Findings) -> bool {
    let mut lists = Vec::new();
    for list in LISTS {
        let words = one.postfix.restrictions(one.service, &one.value(list));
        for asked in policy_services(&words, one.queue) {
            let is_ours = asked.address.is_some() && asked.address.as_ref() == one.sockets.policy;
            if is_ours {
                lists.push((list, asked));
            } else if asked.text.contains("exirate") {
                wrong_socket(one, list, &asked, one.sockets.policy, "policy", findings);
            }
        }
    }
    let Some(address) = one.sockets.policy.filter(|_| !lists.is_empty()) else { return false };
    let by_recipient = lists.iter().filter(|(list, _)| one.is_by_recipient(list));
    if !is_come_to(one, by_recipient, address, findings) {
        let place = one.place(RECIPIENT);
        findings
            .problem(format!("the check is not in {place}: recipients are not refused one by one"))
            .fixes(one.set(RECIPIENT, &one.with_check(RECIPIENT, Some(address))));
    }
    let at_end = lists.iter().filter(|(list, _)| *list == END_OF_DATA);
    if !is_come_to(one, at_end, address, findings) {
        let place = one.place(END_OF_DATA);
        findings
            .warning(format!("the check is not in {place}: bytes and messages are not counted"))
            .fixes(one.set(END_OF_DATA, &one.with_check(END_OF_DATA, Some(address))));
    }
    for (list, asked) in &lists {
        let default = one.value("smtpd_policy_service_default_action");
        let action = asked.option("default_action").unwrap_or(&default);
        if action.starts_with(['4', '5']) || action.to_ascii_uppercase().starts_with("REJECT") {
            findings
                .warning(format!(
                    "in {}, the action without exirate is {action:?}: while the daemon is away, \
                     mail is refused",
                    one.place(list)
                ))
                .fixes(one.set(list, &one.with_check(list, Some(address))));
        }
        let default = one.value("smtpd_policy_service_timeout");
        let timeout = asked.option("timeout").unwrap_or(&default);
        if seconds(timeout).is_some_and(|timeout| timeout > TIMEOUT_MAX) {
            findings
                .note(format!(
                    "in {}, Postfix waits up to {timeout} for a reply, and its client with it",
                    one.place(list)
                ))
                .fixes(one.set(list, &one.with_check(list, Some(address))));
        }
    }
    true
}

/// Whether there is a check in one of these lists. One that mail comes to is enough; else it is a
/// problem that none does.
fn is_come_to<'a>(
    one: &Receiver<'_>,
    lists: impl Iterator<Item = &'a (&'static str, Asked)>,
    address: &Address,
    findings: &mut Findings,
) -> bool {
    let lists: Vec<&(&str, Asked)> = lists.collect();
    if lists.iter().any(|(_, asked)| asked.ending.is_none() && !asked.only_warns) {
        return true;
    }
    let Some((list, asked)) = lists.last() else { return false };
    let place = one.place(list);
    let what = match &asked.ending {
        Some(ending) => {
            let permits = !["reject", "defer", "discard"].contains(&&*ending.to_ascii_lowercase());
            let what =
                if permits { "what it permits is not limited" } else { "no mail reaches it" };
            format!("{ending} is before the check: {what}")
        }
        None => "warn_if_reject is before the check: what is over a limit is only logged, and \
                 accepted"
            .to_owned(),
    };
    let fix = one.set(list, &one.with_check(list, Some(address)));
    findings.problem(format!("in {place}, {what}")).fixes(fix);
    true
}

/// Whether it asks the milter.
fn milter(one: &Receiver<'_>, findings: &mut Findings) -> bool {
    let list = milters(&one.value(MILTERS), one.queue);
    let mut ours = None;
    for asked in &list {
        if asked.address.is_some() && asked.address.as_ref() == one.sockets.milter {
            ours = Some(asked);
        } else if asked.text.contains("exirate") {
            wrong_socket(one, MILTERS, asked, one.sockets.milter, "milter", findings);
        }
    }
    let Some(asked) = ours else { return false };
    let default = one.value("milter_default_action");
    let action = asked.option("default_action").unwrap_or(&default);
    if !matches!(action, "accept" | "quarantine") {
        let text = format!(
            "in {}, the action without exirate is {action}: while the daemon is away, mail is \
             refused",
            one.place(MILTERS)
        );
        findings.warning(text).fix("postconf -e 'milter_default_action = accept'");
    }
    let macros = one.value("milter_mail_macros");
    if !macros.contains("auth_authen") {
        findings
            .problem(format!(
                "{} lacks {{auth_authen}}: users are not known by their logins",
                one.place("milter_mail_macros")
            ))
            .fixes(one.set("milter_mail_macros", &format!("{macros} {{auth_authen}}")));
    }
    true
}

/// Mail that does not come by SMTP.
fn local(one: &Receiver<'_>, ways: &Ways, findings: &mut Findings) {
    let Some(address) = one.sockets.milter.filter(|_| ways.milter) else { return };
    let list = milters(&one.value(LOCAL_MILTERS), one.queue);
    if !list.iter().any(|asked| asked.address.as_ref() == Some(address)) {
        findings
            .note(
                "mail by the sendmail command is not limited: the milter is not in \
                   non_smtpd_milters",
            )
            .fixes(set(None, LOCAL_MILTERS, "$smtpd_milters"));
    }
}

/// A list names a socket of exirate on which the daemon does not listen.
fn wrong_socket(
    one: &Receiver<'_>,
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
    let place = one.place(list);
    let value = match list {
        MILTERS => one.with_milter(address),
        RECIPIENT | END_OF_DATA => one.with_check(list, address),
        _ => one.with_check(list, None),
    };
    findings.problem(format!("{place} asks {where_}, and {listens}")).fixes(one.set(list, &value));
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
mod tests;
