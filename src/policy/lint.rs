//! What is sound but probably not meant.

mod amounts;

use std::collections::{BTreeMap, BTreeSet};

use super::limit::{self, Tables};
use super::model::{Exempt, Location, Member, OnCrossing, Policies, Policy, When};
use super::word::{Action, Counting, Field, State, Unit, Verdict, Word as _};
use crate::toml_file::diagnostic::Diagnostics;

/// Adds warnings about `policies` at `now`, in seconds since 1970.
pub fn lint(policies: &Policies, now: i64, diagnostics: &mut Diagnostics) {
    for (name, policy) in &policies.policies {
        claimed(policies, name, policy, diagnostics);
        // Where mail waits, it is kept from nobody.
        if !policy.delivery.is_at_delivery() {
            chosen(policies, name, policy, diagnostics);
        }
        invented(policies, name, policy, diagnostics);
        failed_for_others(name, policy, diagnostics);
        system(name, policy, diagnostics);
        amounts::amounts(policy, policy.settings.requires(State::Authenticated), diagnostics);
        redundant(policy, diagnostics);
        unused(policy, diagnostics);
        domains_as_users(policies, policy, diagnostics);
        exempt(policy, now, diagnostics);
        grades(policy, diagnostics);
        habits(name, policy, diagnostics);
        if !limits(policy, |_| true) && !policy.uses_habits() {
            diagnostics.warning(policy.at, format!("the policy {name:?} has no limit"));
        }
    }
    contacts(policies, diagnostics);
    if policies.policies.is_empty() {
        diagnostics.warning(
            Location::START,
            "no policy: nothing is limited; expected such as [policy.outbound]",
        );
    }
}

/// Contacts to which nothing is written, and writing to contacts where there are none.
fn contacts(policies: &Policies, diagnostics: &mut Diagnostics) {
    let mut users = policies.policies.values().flat_map(|policy| policy.users.iter());
    let is_any = users.any(|(_, user)| user.limits.habits.contact.is_some());
    let text = match (policies.on_crossing.contact, is_any) {
        (true, false) => "contact in [on.crossing] has no effect: no user has a contact",
        (false, true) => {
            "the contacts of users have no effect without contact = true in [on.crossing]"
        }
        (true, true) | (false, false) => return,
    };
    diagnostics.warning(Location::START, text);
}

/// The fields of the key that say who sends: the server is the same for all.
pub(super) fn key_of_sender(policy: &Policy) -> Vec<Field> {
    policy.settings.key.iter().copied().filter(|field| *field != Field::Server).collect()
}

/// Identities that a stranger can choose: he would exhaust the limit of a customer.
fn claimed(policies: &Policies, name: &str, policy: &Policy, diagnostics: &mut Diagnostics) {
    if policy.settings.requires(State::Relay) || policy.settings.requires(State::Local) {
        return;
    }
    let advice = "so strangers can use up the limit of a customer; use it only with when = \"relay\" or \"local\"";
    if !policy.settings.key.is_empty() {
        let key = key_of_sender(policy);
        if let Some(field) = key.first().filter(|_| key.iter().all(|field| field.is_claimed())) {
            let field = field.word();
            diagnostics.warning(
                policy.at,
                format!("any client can claim the {field} that {name:?} counts, {advice}"),
            );
        }
        return;
    }
    let known = policy.settings.requires(State::Authenticated);
    // What comes after a field that is always known is never reached.
    let reached =
        policies.identity.chain.iter().copied().take_while(|field| {
            !matches!((known, field), (true, Field::Auth) | (_, Field::Client))
        });
    if let (Some(field), Some(at)) =
        (reached.into_iter().find(|f| f.is_claimed()), policies.identity.at)
    {
        let field = field.word();
        diagnostics.warning(
            at,
            format!(
                "any client can claim the {field} in the chain, which {name:?} counts, {advice}"
            ),
        );
    }
}

/// Failed deliveries that are counted by what a sender writes: whoever may send mail has them
/// counted for another.
fn failed_for_others(name: &str, policy: &Policy, diagnostics: &mut Diagnostics) {
    let key = key_of_sender(policy);
    let is_chosen = |field: &Field| field.is_claimed() || field.is_of_recipient();
    let Some(field) = key.first().filter(|_| key.iter().all(is_chosen)) else { return };
    // A receiver that is sent too much puts off the mail of all.
    let is_of_senders = |unit: &Unit| unit.is_from_log() && *unit != Unit::ThrottledRecipients;
    if Unit::ALL.iter().any(|unit| is_of_senders(unit) && policy.limits(*unit)) {
        let field = field.word();
        diagnostics.warning(
            policy.at,
            format!(
                "whoever may send mail chooses the {field} for which {name:?} counts failed deliveries, \
                 and so has the mail of others refused; write key = \"auth\", or add client to the key"
            ),
        );
    }
}

/// A key that a stranger chooses: he would have it refused to those who need it, or make it an
/// alert each. What is counted at RCPT may never become a message.
fn chosen(policies: &Policies, name: &str, policy: &Policy, diagnostics: &mut Diagnostics) {
    let known = [State::Authenticated, State::Relay, State::Local];
    if known.into_iter().any(|state| policy.settings.requires(state)) {
        return;
    }
    let key = key_of_sender(policy);
    if key.is_empty() && !policy.settings.key.is_empty() {
        if policy.settings.action == Action::Enforce {
            diagnostics.warning(
                policy.at,
                format!(
                    "{name:?} counts what any client tries, also what is refused, so strangers can \
                     stop all mail; add when = \"authenticated\", \"relay\" or \"local\", or write \
                     action = \"observe\""
                ),
            );
        }
        return;
    }
    let is_chosen = key.iter().all(|field| field.is_claimed() || field.is_of_recipient());
    let field = key.iter().find(|field| field.is_of_recipient()).filter(|_| is_chosen);
    let Some(field) = field else { return };
    let OnCrossing { run, post, mail, observed, .. } = &policies.on_crossing;
    // What is only observed raises an alert where that is asked for.
    let sends_alerts = *observed && (!run.is_empty() || post.is_some() || mail.is_some());
    let why = match policy.settings.action {
        Action::Enforce => {
            "strangers can keep its mail from a recipient; write action = \"observe\", or add"
        }
        Action::Observe if sends_alerts => "they choose how many alerts [on.crossing] sends; add",
        Action::Observe => return,
    };
    let field = field.word();
    diagnostics.warning(
        policy.at,
        format!(
            "any client can choose the {field} that {name:?} counts, so {why} client to the key"
        ),
    );
}

/// Scripts: a local program chooses what it is called, and each new name would be a new allowance,
/// unless its account has a limit too.
fn invented(policies: &Policies, name: &str, policy: &Policy, diagnostics: &mut Diagnostics) {
    let settings = &policy.settings;
    let (at, advice) = if settings.key.contains(&Field::Script) {
        (policy.at, "add a policy with the same `when` and key = \"local_account\"")
    } else {
        let is_others = settings.requires(State::Authenticated)
            || settings.when.contains(&When::Is { state: State::Local, not: true });
        let in_chain = settings.key.is_empty() && policies.identity.chain.contains(&Field::Script);
        let at = policies.identity.at.filter(|_| in_chain && !is_others);
        let Some(at) = at.filter(|_| !counts_account(policies, policy)) else { return };
        (at, "write local_account before script in the chain, or leave script out")
    };
    let counts_too = |other: &Policy| {
        let always = When::Is { state: State::Always, not: false };
        let applies =
            other.settings.when.iter().all(|one| *one == always || settings.when.contains(one));
        let is_as_strict =
            other.settings.action == Action::Enforce || settings.action == Action::Observe;
        let refuses = other.settings.verdicts.iter().any(|grade| grade.verdict >= Verdict::Defer);
        // A cap holds for each message by itself.
        let has_rate = limits(other, |unit| !unit.is_cap());
        applies && is_as_strict && refuses && has_rate && counts_account(policies, other)
    };
    if !policies.policies.values().any(counts_too) {
        diagnostics.warning(
            at,
            format!(
                "any local program can call itself another script each time, so what {name:?} \
                 counts by it limits nobody; {advice}"
            ),
        );
    }
}

/// Whether local mail counts for its account, whatever else it says of itself.
fn counts_account(policies: &Policies, policy: &Policy) -> bool {
    let (key, chain) = (&policy.settings.key, &policies.identity.chain);
    let is_of_others = |field: &&Field| **field != Field::Auth && !field.is_of_client();
    match key.is_empty() {
        false => key.as_slice() == [Field::LocalAccount],
        true => chain.iter().find(is_of_others) == Some(&Field::LocalAccount),
    }
}

/// A policy that refuses what the mail server or the system sends.
fn system(name: &str, policy: &Policy, diagnostics: &mut Diagnostics) {
    if policy.settings.action == Action::Enforce && policy.settings.requires(State::System) {
        diagnostics.warning(
            policy.at,
            format!(
                "what {name:?} refuses is lost: bounces and warnings of the mail server, and mail of root; \
                 write action = \"observe\""
            ),
        );
    }
}

/// A sensitivity without habits, and habits of a policy that applies to no account.
fn habits(name: &str, policy: &Policy, diagnostics: &mut Diagnostics) {
    if !policy.uses_habits() {
        if policy.tables().any(|limits| limits.habits.sensitivity.is_some()) {
            let text = format!(
                "the sensitivity of {name:?} has no effect: its habits are off; write habits = \"observe\""
            );
            diagnostics.warning(policy.at, text);
        }
        if policy.settings.habits_failures {
            let text = format!(
                "habits_failures of {name:?} has no effect: its habits are off; write habits = \"observe\""
            );
            diagnostics.warning(policy.at, text);
        }
        return;
    }
    let requires = |state| policy.settings.requires(state);
    if requires(State::NullSender) || requires(State::System) || requires(State::Relay) {
        let text = format!(
            "habits are of accounts that log in and of local ones, which {name:?} does not apply to"
        );
        diagnostics.warning(policy.at, text);
    }
}

/// Whether it limits anything in one of these units.
fn limits(policy: &Policy, of: impl Fn(Unit) -> bool) -> bool {
    policy.tables().any(|limits| {
        limits.amounts().any(|(unit, amount)| of(*unit) && !amount.windows.is_empty())
            || limits.buckets.as_ref().is_some_and(|buckets| !buckets.buckets.is_empty())
    })
}

/// Limits of users that are what they would inherit.
fn redundant(policy: &Policy, diagnostics: &mut Diagnostics) {
    // Where a user has two names, the one that is not folded inherits less.
    let with_domain = policy.users.iter().filter(|(name, _)| name.contains('@'));
    let domains: BTreeSet<Location> = with_domain.map(|(_, member)| member.limits.at).collect();
    for (name, member) in policy.users.iter() {
        if !name.contains('@') && domains.contains(&member.limits.at) {
            continue;
        }
        // The front end may hand over any package.
        if member.package.is_none() && !policy.packages.is_empty() {
            continue;
        }
        let domain_name = super::fold::domain(name);
        let domain = domain_name.and_then(|name| policy.domains.get(name));
        let customer_of = |member: &Member| member.customer.clone();
        let customer = limit::customer(customer_of(member), domain.and_then(customer_of));
        let customer = customer.as_deref();
        let customer = customer.and_then(|name| Some((name, policy.customers.get(name)?)));
        let of = |member: &Member| member.package.clone();
        let package = limit::package(
            of(member).map(|package| (name, package)),
            None,
            domain_name.zip(domain.and_then(of)),
            customer.and_then(|(name, one)| Some((name, of(one)?))),
        );
        let package = package.and_then(|(_, name)| policy.packages.get_key_value(&*name));
        let inherited = Tables {
            user: None,
            domain: domain_name.zip(domain.map(|domain| &domain.limits)),
            customer: customer.map(|(name, one)| (name, &one.limits)),
            package: package.map(|(name, limits)| (name.as_str(), limits)),
            domain_package: None,
            default: &policy.default,
        };
        for (unit, amount) in &member.limits.each {
            let would = inherited.of_keys().find_map(|(_, limits)| limits.each.get(unit));
            if would.is_some_and(|would| would.windows == amount.windows) {
                let text =
                    format!("{} of user {name:?} has no effect: it is as inherited", unit.word());
                diagnostics.warning(amount.at, text);
            }
        }
    }
}

/// Customers without users, and packages that nobody has though others are had: a front end may
/// hand over any.
fn unused(policy: &Policy, diagnostics: &mut Diagnostics) {
    let members = || policy.domains.values().chain(policy.users.values());
    let customers: BTreeSet<&str> = members().filter_map(|one| one.customer.as_deref()).collect();
    let mut known: BTreeMap<String, &str> = BTreeMap::new();
    for (name, customer) in policy.customers.iter() {
        if let Some(other) = known.insert(name.to_lowercase(), name) {
            let text = format!(
                "the customers {other:?} and {name:?} are two, with a total each: their names differ in case only"
            );
            diagnostics.warning(customer.limits.at, text);
        }
        if !customers.contains(name) {
            let text = format!("the customer {name:?} has no domain and no user");
            diagnostics.warning(customer.limits.at, text);
        }
    }
    let packages: BTreeSet<&str> = members()
        .chain(policy.customers.values())
        .filter_map(|one| one.package.as_deref())
        .collect();
    for (name, limits) in policy.packages.iter().filter(|_| !packages.is_empty()) {
        if !packages.contains(name.as_str()) {
            let text = format!(
                "no user, domain or customer has the package {name:?}: it applies only where a front end hands it over"
            );
            diagnostics.warning(limits.at, text);
        }
    }
}

/// Domains among the users, which have no limit by that.
fn domains_as_users(policies: &Policies, policy: &Policy, diagnostics: &mut Diagnostics) {
    let (key, chain) = (&policy.settings.key, &policies.identity.chain);
    let fields = key.first().map_or(chain.as_slice(), std::slice::from_ref);
    let is_name = |field: &Field| {
        use Field::{Destination, Helo, RecipientDomain, Script, SenderDomain, Server};
        matches!(field, Destination | Helo | RecipientDomain | Script | SenderDomain | Server)
    };
    // Logins may be names with points in them, if others have none.
    let is_plain = |name: &str| !name.contains(['@', '.']);
    if fields.iter().any(is_name) || policy.users.iter().any(|(name, _)| is_plain(name)) {
        return;
    }
    let is_only_listed = |member: &Member| member.package.is_none() && member.limits.is_empty();
    for (name, member) in policy.users.iter() {
        let Some(customer) = member.customer.as_ref().filter(|_| is_like_a_domain(name)) else {
            let qualify = policies.identity.folding.qualify.as_deref();
            let added = qualify.and_then(|domain| name.strip_suffix(domain)?.strip_suffix('@'));
            let bare = added.unwrap_or(name);
            // Others have a domain: with one that is added to all, this one.
            let mut others = policy.users.iter().filter_map(|(name, _)| name.rsplit_once('@'));
            let is_domain = |(_, domain): (&str, &str)| qualify.is_none() || domain == bare;
            if is_like_a_domain(bare) && others.any(is_domain) {
                let text = format!(
                    "the user {bare:?} looks like a domain; did you mean the table domain.{bare:?}?"
                );
                diagnostics.warning(member.limits.at, text);
            }
            continue;
        };
        let is_used = policies.policies.values().any(|policy| {
            let user = policy.users.get(name);
            policy.domains.contains_key(name) || user.is_some_and(|one| !is_only_listed(one))
        });
        if !is_used {
            let text = format!(
                "the user {name:?} of the customer {customer:?} is written like a domain; did you mean domains?"
            );
            diagnostics.warning(member.limits.at, text);
        }
    }
}

/// Whether it has a point and no `@`, and ends as domains do: not an address.
fn is_like_a_domain(name: &str) -> bool {
    let label =
        |label: &str| !label.is_empty() && label.chars().all(|c| c.is_alphanumeric() || c == '-');
    name.rsplit_once('.').is_some_and(|(rest, last)| {
        rest.split('.').all(label) && last.len() > 1 && last.chars().all(char::is_alphabetic)
    })
}

/// Entries that have expired, or that an earlier entry covers.
fn exempt(policy: &Policy, now: i64, diagnostics: &mut Diagnostics) {
    for (at, entry) in policy.exempt.iter().enumerate() {
        if let Some(until) = entry.until.filter(|&until| until <= now) {
            let time = jiff::Timestamp::from_second(until)
                .map_or_else(|_| until.to_string(), |t| t.to_string());
            diagnostics.warning(entry.at, format!("expired at {time}: nobody is exempt by it"));
            continue;
        }
        let shadow = policy.exempt.iter().enumerate().find(|(other_at, other)| {
            let wider = covers(other, entry);
            wider && (*other_at < at || *other_at > at && !covers(entry, other))
        });
        if let Some((_, other)) = shadow {
            let place = crate::toml_file::diagnostic::place(&diagnostics.files, other.at);
            diagnostics.warning(
                entry.at,
                format!("has no effect: the entry at {place} exempts the same and more"),
            );
        }
    }
}

/// Whether `one` exempts all that `other` does, for as long.
fn covers(one: &Exempt, other: &Exempt) -> bool {
    let all = |wide: &[super::model::Match], narrow: &[super::model::Match]| {
        wide.is_empty()
            || !narrow.is_empty() && narrow.iter().all(|n| wide.iter().any(|w| w.covers(n)))
    };
    let as_long = match (one.until, other.until) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(one), Some(other)) => one >= other,
    };
    as_long && all(&one.matches, &other.matches) && all(&one.recipients, &other.recipients)
}

/// Verdicts that are never reached, or are milder than one below them.
fn grades(policy: &Policy, diagnostics: &mut Diagnostics) {
    let mut strictest: Option<super::model::Grade> = None;
    for grade in &policy.settings.verdicts {
        let word = grade.verdict.word();
        let percent = (grade.from * 100.0).round();
        if grade.from < 1.0 && grade.verdict > Verdict::Log && grade.verdict != Verdict::Delay {
            diagnostics.warning(grade.at, format!("{word:?} at {percent}% refuses mail below the limit; write a smaller limit, or log or delay"));
        }
        if let Some(below) = strictest.filter(|below| below.verdict > grade.verdict) {
            let below = below.verdict.word();
            diagnostics.warning(
                grade.at,
                format!(
                    "{word:?} from {percent}% on is milder than {below:?}, which applies below it"
                ),
            );
        }
        let refused =
            strictest.filter(|below| below.verdict >= Verdict::Defer && below.from <= 1.0);
        if grade.from > 1.0
            && policy.settings.update == Counting::Leaky
            && policy.settings.action == Action::Enforce
            && refused.is_some()
        {
            diagnostics.warning(grade.at, format!("{percent}% is hardly ever reached: what is refused does not count with update = \"leaky\"; write update = \"strict\""));
        }
        if strictest.is_none_or(|below| below.verdict <= grade.verdict) {
            strictest = Some(*grade);
        }
    }
}
