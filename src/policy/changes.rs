//! A policy file as a flat list of settings: what two files differ in.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::Hasher as _;

use schemars::JsonSchema;
use serde::Serialize;
use siphasher::sip128::{Hash128, Hasher128 as _, SipHasher24};

use super::image::{Image, ImageError, PolicyImage};
use super::model::{
    Amount, Buckets, ByUnit, DeliverySettings, HabitsSettings, Limits, Match, Member, MemberKind,
    Members, Policies, Policy, Window,
};
use super::settings::Group;
use super::value::list;

/// The name of each setting and its value. Where something is written, and how it
/// is spelled (`60m` apart from `1h`), is not in it; what is default is.
#[must_use]
pub fn settings(policies: &Policies) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    add_settings(&mut all, "identity", &policies.identity);
    for one in &policies.identity.destinations.0 {
        all.insert(format!("destination.{}", one.name), list(&one.domains));
    }
    add_settings(&mut all, "on.crossing", &policies.on_crossing);
    if let Some(zone) = &policies.zone {
        all.insert("timezone".to_owned(), zone.to_string());
    }
    if policies.no_usage {
        all.insert("usage".to_owned(), "false".to_owned());
    }
    for (name, policy) in &policies.policies {
        add(&mut all, &format!("policy.{name}"), policy);
    }
    all
}

/// Whether the policies of `image` are those that are `written`; not if it cannot be read.
#[must_use]
pub fn are_applied(image: &Image, written: &Policies) -> bool {
    image.policies().is_ok_and(|applied| settings(&applied) == settings(written))
}

/// The same for policies that mean the same, in 32 hexadecimal digits: what shows whether two
/// servers have the same policies. It is no protection against somebody who wants two policies
/// with the same digest.
#[must_use]
pub fn digest(policies: &Policies) -> String {
    let mut hasher = SipHasher24::new();
    let mut add = |name: &str, value: &str| {
        // Neither has a byte that is 0.
        for text in [name, value] {
            hasher.write(text.as_bytes());
            hasher.write(&[0]);
        }
    };
    settings(&policies.outline()).iter().for_each(|(name, value)| add(name, value));
    for (name, policy) in &policies.policies {
        for kind in MemberKind::ALL {
            for (member, table) in policy.members(kind).iter() {
                let name = format!("policy.{name}.{} {member:?}", kind.word());
                of_member(table)
                    .iter()
                    .for_each(|(what, value)| add(&(name.clone() + what), value));
            }
        }
    }
    let Hash128 { h1, h2 } = hasher.finish128();
    format!("{h1:016x}{h2:016x}")
}

/// How many settings of a part differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Changes {
    /// Only the new ones have it.
    pub added: usize,
    /// Only the old ones have it.
    pub removed: usize,
    /// Its value differs.
    pub changed: usize,
}

impl Changes {
    /// Adds what differs between some settings.
    fn add(&mut self, old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) {
        for (name, value) in new {
            match old.get(name) {
                None => self.added += 1,
                Some(before) => self.changed += usize::from(before != value),
            }
        }
        self.removed += old.keys().filter(|name| !new.contains_key(*name)).count();
    }

    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// How many settings differ, by part: `identity`, `on.crossing`, `policy.outbound`.
/// Without old ones, all are added.
///
/// Of a million users, one after the other is compared: no list of their settings is made.
///
/// # Errors
/// The image of the old ones is damaged.
pub fn changes(
    old: Option<&Image>,
    new: &Policies,
) -> Result<BTreeMap<String, Changes>, ImageError> {
    let before = old.map(Image::outline).transpose()?;
    let mut all: BTreeMap<String, Changes> = BTreeMap::new();
    let [before, after] =
        [before.as_ref().map(by_part).unwrap_or_default(), by_part(&new.outline())];
    let none = BTreeMap::new();
    for part in before.keys().chain(after.keys()) {
        let [before, after] = [&before, &after].map(|parts| parts.get(part).unwrap_or(&none));
        let mut changes = Changes::default();
        changes.add(before, after);
        all.insert(part.clone(), changes);
    }
    let mut names: Vec<&str> = new.policies.keys().map(String::as_str).collect();
    names.extend(old.into_iter().flat_map(Image::names));
    names.sort_unstable();
    names.dedup();
    for name in names {
        let changes = all.entry(format!("policy.{name}")).or_default();
        let old = old.map(|old| old.policy(name)).transpose()?.flatten();
        for kind in MemberKind::ALL {
            members(
                old.as_ref(),
                new.policies.get(name).map(|new| new.members(kind)),
                kind,
                changes,
            )?;
        }
    }
    all.retain(|_, changes| !changes.is_none());
    Ok(all)
}

/// The settings of each part.
fn by_part(policies: &Policies) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut parts: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for (name, value) in settings(policies) {
        // No name of a policy has a dot.
        let levels = if name.starts_with("identity.") { 1 } else { 2 };
        let end = name.match_indices('.').nth(levels - 1).map_or(name.len(), |(end, _)| end);
        let part = name.get(..end).unwrap_or(&name).to_owned();
        parts.entry(part).or_default().insert(name, value);
    }
    parts
}

/// Adds what differs between the customers, the domains, or the users, of two policies.
fn members(
    old: Option<&PolicyImage<'_>>,
    new: Option<&Members>,
    kind: MemberKind,
    changes: &mut Changes,
) -> Result<(), ImageError> {
    let mut kept = 0;
    for (name, member) in new.into_iter().flat_map(Members::iter) {
        match old.map(|old| old.find_member(kind, name)).transpose()?.flatten() {
            None => changes.added += count(member),
            Some(before) => {
                kept += 1;
                if !alike(&before, member) {
                    changes.add(&of_member(&before), &of_member(member));
                }
            }
        }
    }
    let Some(old) = old else { return Ok(()) };
    if old.members(kind)? > kept {
        old.each_member(kind, &mut |name, member| {
            if new.is_none_or(|new| !new.contains_key(name)) {
                changes.removed += count(&member);
            }
        })?;
    }
    Ok(())
}

/// How many settings a member has.
fn count(member: &Member) -> usize {
    let Limits { each, total, buckets, habits, .. } = &member.limits;
    let one = usize::from;
    one(member.package.is_some())
        + one(member.customer.is_some())
        + each.len()
        + total.len()
        + one(buckets.is_some())
        + HabitsSettings::SETTINGS.iter().map(|setting| (setting.show)(habits).len()).sum::<usize>()
}

/// The settings of a member: `.recipients`, `.package`.
fn of_member(table: &Member) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut set = |name: String, value: String| {
        all.insert(name, value);
    };
    member(&mut set, "", table);
    all
}

/// Whether two members certainly have the same settings.
fn alike(one: &Member, other: &Member) -> bool {
    let amounts = |one: &ByUnit, other: &ByUnit| {
        one.iter()
            .map(|(unit, amount)| (unit, &amount.windows))
            .eq(other.iter().map(|(unit, amount)| (unit, &amount.windows)))
    };
    let buckets = |limits: &Limits| limits.buckets.as_ref().map(|all| all.buckets.clone());
    (&one.package, &one.customer) == (&other.package, &other.customer)
        && amounts(&one.limits.each, &other.limits.each)
        && amounts(&one.limits.total, &other.limits.total)
        && buckets(&one.limits) == buckets(&other.limits)
        && one.limits.habits == other.limits.habits
}

/// Adds the settings of a group, which are named after it.
fn add_settings<G: Group>(all: &mut BTreeMap<String, String>, name: &str, group: &G) {
    for setting in G::SETTINGS {
        for (entry, value) in (setting.show)(group) {
            all.insert(format!("{name}.{}{entry}", setting.name), value);
        }
    }
}

fn add(all: &mut BTreeMap<String, String>, name: &str, policy: &Policy) {
    add_settings(all, name, &policy.settings);
    // What 0.1.0 and its like say of a policy stays as it is, and so does its digest.
    if policy.delivery != DeliverySettings::default() {
        add_settings(all, name, &policy.delivery);
    }
    let mut set = |what: String, value: String| {
        all.insert(format!("{name}.{what}"), value);
    };
    limits(&mut set, "default", &policy.default);
    for (package, table) in &policy.packages {
        set(format!("package {package:?}"), "exists".into());
        limits(&mut set, &format!("package {package:?}"), table);
    }
    for kind in MemberKind::ALL {
        for (one, table) in policy.members(kind).iter() {
            member(&mut set, &format!("{} {one:?}", kind.word()), table);
        }
    }
    for entry in &policy.exempt {
        let mut what = "exempt".to_owned();
        // Writing to a String cannot fail.
        let _ = write!(what, " {}", list(entry.matches.iter().map(Match::to_string)));
        if !entry.recipients.is_empty() {
            let _ = write!(what, " to {}", list(entry.recipients.iter().map(Match::to_string)));
        }
        let until = entry.until.map_or("forever".to_owned(), |until| {
            let time = jiff::Timestamp::from_second(until);
            format!("until {}", time.map_or_else(|_| format!("@{until}"), |time| time.to_string()))
        });
        let reason = entry.reason.as_ref().map(|reason| format!(": {reason}"));
        set(what, until + &reason.unwrap_or_default());
    }
}

fn member(set: &mut impl FnMut(String, String), name: &str, member: &Member) {
    if let Some(package) = &member.package {
        set(format!("{name}.package"), package.to_string());
    }
    if let Some(customer) = &member.customer {
        set(format!("{name}.customer"), customer.to_string());
    }
    limits(set, name, &member.limits);
}

fn limits(set: &mut impl FnMut(String, String), name: &str, limits: &Limits) {
    for (unit, amount) in &limits.each {
        set(format!("{name}.{}", unit.word()), windows(amount));
    }
    for (unit, amount) in &limits.total {
        set(format!("{name}.total.{}", unit.word()), windows(amount));
    }
    if let Some(all) = &limits.buckets {
        set(format!("{name}.bucket"), buckets(all));
    }
    for setting in HabitsSettings::SETTINGS {
        for (entry, value) in (setting.show)(&limits.habits) {
            set(format!("{name}.{}{entry}", setting.name), value);
        }
    }
}

/// The windows of a unit, in words: `100 / 1h, 500 / 1d`.
#[must_use]
pub fn windows(amount: &Amount) -> String {
    match &amount.windows[..] {
        [] => "unlimited".to_owned(),
        all => list(all.iter().map(Window::to_string)),
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::policy::source::compile;

    fn read(text: &str) -> Policies {
        let none = |_: &Path| Err(String::new());
        compile(Path::new("p"), text, &none).policies.unwrap()
    }

    fn image(policies: &Policies) -> Image {
        Image::from_bytes(crate::policy::image::build(policies)).unwrap()
    }

    fn differ(old: &Policies, new: &Policies) -> BTreeMap<String, Changes> {
        changes(Some(&image(old)), new).unwrap()
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
    fn a_zone_is_a_setting() {
        let text =
            |top: &str| format!("version = 1\n{top}[policy.a]\ndefault.messages = \"5 daily\"\n");
        let [berlin, kathmandu] = ["Europe/Berlin", "Asia/Kathmandu"]
            .map(|zone| read(&text(&format!("timezone = \"{zone}\"\n"))));
        let zone = &settings(&berlin)["timezone"];
        assert!(zone.starts_with("Europe/Berlin (rules "), "{zone}");
        let changed = differ(&berlin, &kathmandu);
        assert_eq!(changed["timezone"], Changes { changed: 1, ..Changes::default() });
        // The file of the zone has other rules.
        let mut other = berlin.clone();
        if let Some(zone) = &mut other.zone {
            zone.changes = zone.changes[1..].into();
        }
        assert!(differ(&berlin, &other).contains_key("timezone"));
        assert_eq!(settings(&berlin)["policy.a.default.messages"], "5 daily");
        // None is needed.
        assert!(!settings(&read("version = 1\n")).contains_key("timezone"));
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
            "habits_failures = true",
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
            "habits = \"observe\"",
            "default.habits = \"hold\"",
            "sensitivity = \"low\"",
            "package.x.habits = \"off\"",
            "user.x.sensitivity = \"high\"",
            "[on.crossing]\nlog = true",
            "[on.crossing]\nrun = \"/bin/true\"",
            "[on.crossing]\nrepeat = \"1d\"",
            "[on.crossing]\nobserved = true",
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
    fn each_part_of_a_value_makes_a_difference() {
        for (one, other) in [
            ("on.crossing.run = [\"/bin/a\", \"{key}\"]", "on.crossing.run = [\"/bin/a\"]"),
            ("identity.relay = \"192.0.2.0/24\"", "identity.relay = \"192.0.2.0/25\""),
            ("identity.chain = [\"auth\", \"client\"]", "identity.chain = [\"auth\", \"helo\"]"),
            ("policy.a.key = [\"sender\", \"client\"]", "policy.a.key = [\"sender\", \"helo\"]"),
            ("policy.a.when = \"local\"", "policy.a.when = \"!local\""),
            ("policy.a.when = [\"local\", \"system\"]", "policy.a.when = [\"local\"]"),
            (
                "policy.a.verdicts = { \"90%\" = \"log\" }",
                "policy.a.verdicts = { \"90%\" = \"hold\" }",
            ),
            (
                "policy.a.default.messages = [\"1/1h\", \"9/1d\"]",
                "policy.a.default.messages = \"1/1h\"",
            ),
            ("policy.a.domain.x.messages = \"1/1h\"", "policy.a.domain.x.messages = \"2/1h\""),
            (
                "policy.a.domain.x.total.bytes = \"1/1h\"",
                "policy.a.domain.x.total.bytes = \"2/1h\"",
            ),
            ("policy.a.user.x.messages = \"1/1h\"", "policy.a.user.x.messages = \"1/2h\""),
        ] {
            let [old, new] = [one, other]
                .map(|more| read(&format!("version = 1\npolicy.a.action = \"observe\"\n{more}\n")));
            assert_ne!(settings(&old), settings(&new), "{one}");
            assert_ne!(digest(&old), digest(&new), "{one}");
            assert_eq!(differ(&old, &new).len(), 1, "{one}");
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
        let found: Vec<_> = differ(&old, &new).into_iter().collect();
        let wanted = [
            ("identity".to_owned(), of(0, 0, 1)),
            ("on.crossing".to_owned(), of(0, 0, 1)),
            ("policy.a".to_owned(), of(1, 1, 1)),
        ];
        assert_eq!(found, wanted);
        assert!(differ(&new, &new).is_empty());
        // As the two lists of settings have it, for all pairs; without old ones, all are added.
        let two = read(
            "version = 1\n[policy.a]\ndefault.messages = \"1/1h\"\npackage.p = {}\n\
                        user.x = { package = \"p\", bytes = \"1/1h\" }\ndomain.\"x.y\" = { \
                        total.bytes = \"1/1h\", bucket = { burst = 1, rate = 1 } }\n",
        );
        let sum = |found: BTreeMap<String, Changes>| {
            let all = found.values();
            all.fold([0; 3], |[a, r, c], one| [a + one.added, r + one.removed, c + one.changed])
        };
        for one in [&old, &new, &two] {
            let all = settings(one);
            assert_eq!(sum(changes(None, one).unwrap()), [all.len(), 0, 0]);
            for other in [&old, &new, &two] {
                let others = settings(other);
                let added = others.keys().filter(|name| !all.contains_key(*name)).count();
                let removed = all.keys().filter(|name| !others.contains_key(*name)).count();
                let differs = |(name, value): &(&String, &String)| {
                    all.get(*name).is_some_and(|before| before != *value)
                };
                let changed = others.iter().filter(differs).count();
                assert_eq!(sum(differ(one, other)), [added, removed, changed]);
            }
        }
        // However it is spelled.
        let user = |text| read(&format!("version = 1\n[policy.a.user.x]\n{text}\n"));
        let hour = user("bytes = \"1k/1h\"");
        let same = user("\nbytes = \"1024/60m\"");
        assert!(differ(&hour, &same).is_empty());
        assert!(digest(&hour) == digest(&same) && digest(&hour).len() == 32);
        for other in [
            "bytes = \"2k/1h\"",
            "bytes = \"1k/2h\"",
            "messages = \"1k/1h\"",
            "",
            "bytes = \"1k/1h\"\nbucket = { burst = 1, rate = 1 }",
        ] {
            assert_eq!(differ(&hour, &user(other)).len(), 1, "{other}");
            assert_ne!(digest(&hour), digest(&user(other)), "{other}");
        }
    }
}
