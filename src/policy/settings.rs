//! A policy file as a flat list of settings: what two files differ in.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::Hasher as _;

use siphasher::sip128::{Hash128, Hasher128 as _, SipHasher24};

use super::model::{
    Amount, Buckets, DomainPattern, Match, Member, Piece, Policies, Policy, Rates, Template, When,
};
use super::word::{Unit, Word};

/// The name of each setting and its value. Where something is written, and how it
/// is spelled (`60m` apart from `1h`), is not in it; what is default is.
#[must_use]
pub fn settings(policies: &Policies) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut set = |name: &str, value: String| {
        all.insert(name.to_owned(), value);
    };
    let identity = &policies.identity;
    let folding = &identity.folding;
    set("identity.chain", words(&identity.chain));
    set("identity.fold.case", folding.case.to_string());
    set("identity.fold.plus", folding.plus.to_string());
    set("identity.mask.v4", folding.v4.to_string());
    set("identity.mask.v6", folding.v6.to_string());
    for domain in &folding.dots {
        set(&format!("identity.fold.dots {domain:?}"), "true".to_owned());
    }
    if let Some(domain) = &folding.qualify {
        set("identity.qualify", domain.clone());
    }
    for network in &identity.relay {
        set(&format!("identity.relay {network}"), "true".to_owned());
    }
    let on = &policies.on_crossing;
    set("on.crossing.log", on.log.to_string());
    if !on.run.is_empty() {
        set("on.crossing.run", format!("{:?}", on.run.iter().map(template).collect::<Vec<_>>()));
    }
    for (name, value) in [("post", &on.post), ("mail", &on.mail)] {
        if let Some(value) = value {
            set(&format!("on.crossing.{name}"), value.clone());
        }
    }
    if let Some(repeat) = on.repeat {
        set("on.crossing.repeat", seconds(repeat));
    }
    for (name, policy) in &policies.policies {
        add(&mut all, &format!("policy.{name}"), policy);
    }
    all
}

/// The same for policies that mean the same, in 32 hexadecimal digits: what shows whether two
/// servers have the same policies. It is no protection against somebody who wants two policies
/// with the same digest.
#[must_use]
pub fn digest(policies: &Policies) -> String {
    let mut hasher = SipHasher24::new();
    for (name, value) in settings(policies) {
        // Neither has a byte that is 0.
        for text in [name, value] {
            hasher.write(text.as_bytes());
            hasher.write(&[0]);
        }
    }
    let Hash128 { h1, h2 } = hasher.finish128();
    format!("{h1:016x}{h2:016x}")
}

/// How many settings of a part differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Only the new ones have it.
    pub added: usize,
    /// Only the old ones have it.
    pub removed: usize,
    /// Its value differs.
    pub changed: usize,
}

/// How many settings differ, by part: `identity`, `on.crossing`, `policy.outbound`.
/// Without old ones, all are added.
#[must_use]
pub fn changes(old: Option<&Policies>, new: &Policies) -> BTreeMap<String, Changes> {
    // Of a hundred thousand users, most are alike.
    let (old, new) = match old {
        Some(old) => (settings(&unlike(old, new)), settings(&unlike(new, old))),
        None => (BTreeMap::new(), settings(new)),
    };
    let mut all: BTreeMap<String, Changes> = BTreeMap::new();
    let mut part = |name: &str, count: fn(&mut Changes) -> &mut usize| {
        // No name of a policy has a dot.
        let levels = if name.starts_with("identity.") { 1 } else { 2 };
        let end = name.match_indices('.').nth(levels - 1).map_or(name.len(), |(end, _)| end);
        *count(all.entry(name.get(..end).unwrap_or(name).to_owned()).or_default()) += 1;
    };
    for (name, value) in &new {
        match old.get(name) {
            None => part(name, |changes| &mut changes.added),
            Some(before) if before != value => part(name, |changes| &mut changes.changed),
            Some(_) => {}
        }
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        part(name, |changes| &mut changes.removed);
    }
    all
}

/// The policies without the users that `other` has as well, with the same settings.
fn unlike(policies: &Policies, other: &Policies) -> Policies {
    let of = |name: &String, policy: &Policy| {
        // Both are sorted by name: one pass through both.
        let others = other.policies.get(name).map(|other| &other.users);
        let mut others = others.into_iter().flatten().peekable();
        let mut is_alike = |user: &String, member: &Member| {
            while others.next_if(|(name, _)| *name < user).is_some() {}
            others.peek().is_some_and(|(name, other)| *name == user && alike(member, other))
        };
        let users = policy.users.iter().filter(|(user, member)| !is_alike(user, member));
        Policy {
            at: policy.at,
            head: policy.head.clone(),
            default: policy.default.clone(),
            packages: policy.packages.clone(),
            domains: policy.domains.clone(),
            users: users.map(|(user, member)| (user.clone(), member.clone())).collect(),
            exempt: policy.exempt.clone(),
        }
    };
    Policies {
        files: Vec::new(),
        identity: policies.identity.clone(),
        on_crossing: policies.on_crossing.clone(),
        policies: policies.policies.iter().map(|(n, p)| (n.clone(), of(n, p))).collect(),
    }
}

/// Whether two members certainly have the same settings.
fn alike(one: &Member, other: &Member) -> bool {
    let amounts = |one: &BTreeMap<Unit, Amount>, other: &BTreeMap<Unit, Amount>| {
        one.iter()
            .map(|(unit, amount)| (unit, &amount.windows))
            .eq(other.iter().map(|(unit, amount)| (unit, &amount.windows)))
    };
    let buckets = |rates: &Rates| rates.buckets.as_ref().map(|all| all.buckets.clone());
    one.package == other.package
        && amounts(&one.rates.each, &other.rates.each)
        && amounts(&one.rates.total, &other.rates.total)
        && buckets(&one.rates) == buckets(&other.rates)
}

fn add(all: &mut BTreeMap<String, String>, name: &str, policy: &Policy) {
    let mut set = |what: String, value: String| {
        all.insert(format!("{name}.{what}"), value);
    };
    let when: Vec<String> = policy.head.when.iter().map(condition).collect();
    set("when".into(), if when.is_empty() { "always".into() } else { when.join(" and ") });
    set("action".into(), policy.head.action.word().into());
    set("update".into(), policy.head.update.word().into());
    set("on_error".into(), policy.head.on_error.word().into());
    set("longest_delay".into(), seconds(policy.head.longest_delay));
    if !policy.head.key.is_empty() {
        set("key".into(), words(&policy.head.key));
    }
    if let Some(text) = &policy.head.text {
        set("text".into(), template(text));
    }
    for grade in &policy.head.verdicts {
        set(format!("verdicts {}%", grade.from * 100.0), grade.verdict.word().into());
    }
    rates(&mut set, "default", &policy.default);
    for (package, table) in &policy.packages {
        set(format!("package {package:?}"), "exists".into());
        rates(&mut set, &format!("package {package:?}"), table);
    }
    for (domain, table) in &policy.domains {
        member(&mut set, &format!("domain {domain:?}"), table);
    }
    for (user, table) in &policy.users {
        member(&mut set, &format!("user {user:?}"), table);
    }
    for entry in &policy.exempt {
        let mut what = "exempt".to_owned();
        // Writing to a String cannot fail.
        let _ = write!(what, " {}", list(entry.matches.iter().map(matched)));
        if !entry.recipients.is_empty() {
            let _ = write!(what, " to {}", list(entry.recipients.iter().map(matched)));
        }
        let until = entry.until.map_or("for ever".to_owned(), |until| {
            let time = jiff::Timestamp::from_second(until);
            format!("until {}", time.map_or_else(|_| format!("@{until}"), |time| time.to_string()))
        });
        let reason = entry.reason.as_ref().map(|reason| format!(": {reason}"));
        set(what, until + &reason.unwrap_or_default());
    }
}

fn member(set: &mut impl FnMut(String, String), name: &str, member: &Member) {
    if let Some(package) = &member.package {
        set(format!("{name}.package"), package.clone());
    }
    rates(set, name, &member.rates);
}

fn rates(set: &mut impl FnMut(String, String), name: &str, rates: &Rates) {
    for (unit, amount) in &rates.each {
        set(format!("{name}.{}", unit.word()), windows(amount));
    }
    for (unit, amount) in &rates.total {
        set(format!("{name}.total.{}", unit.word()), windows(amount));
    }
    if let Some(all) = &rates.buckets {
        set(format!("{name}.bucket"), buckets(all));
    }
}

/// The windows of a unit, in words: `100 / 1h, 500 / 1d`.
#[must_use]
pub fn windows(amount: &Amount) -> String {
    match &amount.windows[..] {
        [] => "unlimited".to_owned(),
        all => list(all.iter().map(|w| format!("{} / {}", w.limit, seconds(w.period)))),
    }
}

/// Buckets, in words: `5 recipients, 1/1h leak`.
#[must_use]
pub fn buckets(all: &Buckets) -> String {
    match &all.buckets[..] {
        [] => "unlimited".to_owned(),
        all => list(all.iter().map(|b| format!("{} {}, leak {}", b.burst, b.unit.word(), b.text))),
    }
}

/// A period as it is written: `1d`, `1h30m`.
#[must_use]
pub fn seconds(period: f64) -> String {
    let mut left = period as u64; // whole, and at most 68 years
    let mut text = String::new();
    for (unit, length) in [("w", 604_800), ("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)] {
        if left >= length {
            let _ = write!(text, "{}{unit}", left / length);
            left %= length;
        }
    }
    text
}

/// A condition as it is written.
#[must_use]
pub fn condition(when: &When) -> String {
    let domains = |domains: &[DomainPattern]| list(domains.iter().map(pattern));
    match when {
        When::Is { state, not } => format!("{}{}", if *not { "!" } else { "" }, state.word()),
        When::Client(networks) => {
            format!("client in {}", list(networks.iter().map(|n| n.to_string())))
        }
        When::SenderDomain(all) => format!("sender_domain in {}", domains(all)),
        When::RecipientDomain(all) => format!("recipient_domain in {}", domains(all)),
    }
}

fn pattern(pattern: &DomainPattern) -> String {
    format!("{}{}", if pattern.below { "*." } else { "" }, pattern.domain)
}

fn matched(one: &Match) -> String {
    match one {
        Match::Identity(name) => name.clone(),
        Match::Domain(domain) => format!("@{}", pattern(domain)),
        Match::Client(network) => network.to_string(),
    }
}

fn template(template: &Template) -> String {
    let pieces = template.0.iter().map(|piece| match piece {
        Piece::Text(text) => text.replace('{', "{{").replace('}', "}}"),
        Piece::Value(value) => format!("{{{}}}", value.word()),
    });
    pieces.collect()
}

fn words<T: Word>(words: &[T]) -> String {
    list(words.iter().map(|word| word.word().to_owned()))
}

fn list(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::policy::source::compile;

    fn read(text: &str) -> Policies {
        let none = |_: &Path| Err(String::new());
        compile(Path::new("p"), text, &none).policies.unwrap()
    }

    fn of(text: &str) -> BTreeMap<String, String> {
        settings(&read(text))
    }

    #[test]
    fn spelling_and_order_make_no_difference() {
        let one =
            "version = 1\n[policy.a]\ndefault.messages = [\"1k/60m\", \"5/1d\"]\nuser.X = {}\n";
        let other = "version = 1\n# x\n[policy.a]\n[policy.a.user.x]\n[policy.a.default]\n\
                     messages = [\"1024 / 1h\", \"5/1d\"]\n";
        assert_eq!(of(one), of(other));
    }

    #[test]
    fn each_setting_makes_a_difference() {
        let base = "version = 1\n[policy.a]\ndefault.messages = \"1/1h\"\n";
        for more in [
            "action = \"observe\"",
            "update = \"strict\"",
            "on_error = \"fail-closed\"",
            "text = \"{limit}\"",
            "key = \"client\"",
            "when = \"local\"",
            "when = { client = \"192.0.2.1\" }",
            "verdicts = { \"100%\" = \"reject\" }",
            "verdicts = { \"90%\" = \"log\", \"100%\" = \"defer\" }",
            "longest_delay = \"5s\"",
            "bucket = { burst = 1, rate = 1 }",
            "default.bytes = \"1/1h\"",
            "default.total.bytes = \"1/1h\"",
            "package.x = {}",
            "package.x.messages = \"unlimited\"",
            "domain.x.messages = \"2/1h\"",
            "user.x.messages = \"2/1h\"",
            "exempt = [{ match = \"a\" }]",
            "exempt = [{ match = \"a\", reason = \"b\" }]",
            "exempt = [{ match = \"a\", until = 2026-12-31T00:00:00Z }]",
            "exempt = [{ match = \"a\", recipients = \"b\" }]",
            "[on.crossing]\nlog = true",
            "[on.crossing]\nrun = \"/bin/true\"",
            "[on.crossing]\nrepeat = \"1d\"",
            "[on.crossing]\nmail = \"a@b\"",
            "[identity]\nchain = \"auth\"",
            "[identity]\nfold.case = false",
            "[identity]\nfold.dots = \"x.org\"",
            "[identity]\nmask.v6 = 48",
            "[identity]\nrelay = \"::1\"",
            "[identity]\nqualify = \"x.org\"",
        ] {
            // A command is an array.
            let more = more.replace("\"/bin/true\"", "[\"/bin/true\"]");
            assert_ne!(of(base), of(&format!("{base}{more}\n")), "{more}");
        }
    }

    #[test]
    fn changes_are_counted_by_part() {
        let old = read(
            "version = 1\n[policy.a]\ndefault.messages = \"1/1h\"\nuser.\"x.y\" = {}\n\
                      user.z.bytes = \"1/1h\"\n[policy.b]\ndefault.bytes = \"1/1h\"\n",
        );
        let new = read(
            "version = 1\n[identity]\nfold.case = false\n[policy.a]\n\
                      default.messages = \"2/1h\"\nuser.\"x.y\".bytes = \"1/1h\"\n[policy.b]\n\
                      default.bytes = \"1/1h\"\n[on.crossing]\nlog = true\n",
        );
        let of = |added, removed, changed| Changes { added, removed, changed };
        let found: Vec<_> = changes(Some(&old), &new).into_iter().collect();
        let wanted = [
            ("identity".to_owned(), of(0, 0, 1)),
            ("on.crossing".to_owned(), of(0, 0, 1)),
            ("policy.a".to_owned(), of(1, 1, 1)),
        ];
        assert_eq!(found, wanted);
        assert!(changes(Some(&new), &new).is_empty());
        // However it is spelled.
        let user = |text| read(&format!("version = 1\n[policy.a.user.x]\n{text}\n"));
        let hour = user("bytes = \"1k/1h\"");
        let same = user("\nbytes = \"1024/60m\"");
        assert!(changes(Some(&hour), &same).is_empty());
        assert!(digest(&hour) == digest(&same) && digest(&hour).len() == 32);
        for other in [
            "bytes = \"2k/1h\"",
            "bytes = \"1k/2h\"",
            "messages = \"1k/1h\"",
            "",
            "bytes = \"1k/1h\"\nbucket = { burst = 1, rate = 1 }",
        ] {
            assert_eq!(changes(Some(&hour), &user(other)).len(), 1, "{other}");
            assert_ne!(digest(&hour), digest(&user(other)), "{other}");
        }
    }

    #[test]
    fn periods_are_written_back() {
        for text in ["1s", "90s", "1h", "1d12h", "1w2d3h4m5s"] {
            let period = crate::spec::period(text.as_bytes()).unwrap();
            assert_eq!(crate::spec::period(seconds(period).as_bytes()), Ok(period), "{text}");
        }
    }
}
