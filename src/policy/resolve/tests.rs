//! Precedence, against tables that are searched unit by unit in the order of the
//! language's rules.

use std::path::Path;

use quickcheck::{Arbitrary, Gen, quickcheck};

use super::*;
use crate::policy::model::{DomainPattern, Policies};
use crate::policy::network::Cidr;
use crate::policy::source::compile;
use crate::toml_file::Location;

fn policies(text: &str) -> Policies {
    let none = |_: &Path| Err(String::new());
    compile(Path::new("p"), text, &none).policies.unwrap()
}

fn subject(identity: &str) -> Subject<'_> {
    Subject { identity, ..Subject::default() }
}

/// The windows and the rule of a unit.
fn said(effective: &Effective<'_>, unit: Unit) -> Option<String> {
    let applied = effective.each.get(&unit)?;
    let windows: Vec<&str> = applied.what.windows.iter().map(|w| &*w.text).collect();
    Some(format!("{} by {}", windows.join(" "), applied.rule))
}

const TEXT: &str = r#"
version = 1
[policy.out.default]
messages = "1/1h"
recipients = ["100/1h", "500/1d"]
total.messages = "50/1h"
[policy.out.package.gold]
recipients = "1000/1h"
total.messages = "90/1h"
[policy.out.package.iron]
recipients = "10/1h"
total.bytes = "9/1h"
[policy.out.domain."example.org"]
package = "gold"
bytes = "1M/1d"
total.recipients = "3000/1h"
[policy.out.user."news@example.org"]
recipients = "unlimited"
[policy.out.user."slow@example.org"]
package = "iron"
"#;

#[test]
fn units_are_inherited_one_by_one() {
    let all = policies(TEXT);
    let policy = &all.policies["out"];
    let of = |identity, unit| said(&resolve(policy, &subject(identity), 0), unit);
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(of("x@other.org", Unit::Recipients), text("100/1h 500/1d by default"));
    assert_eq!(of("x@other.org", Unit::Bytes), None);
    assert_eq!(of("x@example.org", Unit::Messages), text("1/1h by default"));
    assert_eq!(of("x@example.org", Unit::Recipients), text("1000/1h by package gold"));
    assert_eq!(of("x@example.org", Unit::Bytes), text("1M/1d by domain example.org"));
    assert_eq!(of("news@example.org", Unit::Recipients), text(" by user news@example.org"));
    assert_eq!(of("news@example.org", Unit::Bytes), text("1M/1d by domain example.org"));
    assert_eq!(of("slow@example.org", Unit::Recipients), text("10/1h by package iron"));
}

#[test]
fn a_package_that_is_handed_over_is_above_that_of_the_domain() {
    let all = policies(TEXT);
    let policy = &all.policies["out"];
    let with = |identity, package| {
        resolve(policy, &Subject { package: Some(package), ..subject(identity) }, 0)
    };
    for (identity, package, known) in [
        ("x@other.org", "gold", true),
        ("x@example.org", "iron", true),
        ("x@example.org", "tin", false),
    ] {
        assert_eq!(with(identity, package).package, Some((package, known)));
    }
    let effective = with("slow@example.org", "gold");
    assert_eq!(effective.package, Some(("iron", true)));
    let unknown = said(&with("x@example.org", "tin"), Unit::Recipients);
    assert_eq!(unknown.as_deref(), Some("100/1h 500/1d by default"));
}

#[test]
fn the_total_is_of_the_domain() {
    let all = policies(TEXT);
    let policy = &all.policies["out"];
    let of = |identity: &str| -> Vec<String> {
        let effective = resolve(policy, &subject(identity), 0);
        let each = effective.total.iter();
        each.map(|(unit, applied)| format!("{} {}", unit.word(), applied.rule)).collect()
    };
    assert_eq!(of("x@other.org"), ["messages default"]);
    assert_eq!(of("x"), [""; 0]);
    let domain = ["messages package gold", "recipients domain example.org"];
    assert_eq!(of("x@example.org"), domain);
    // The package of the user does not change the total of the domain.
    assert_eq!(of("slow@example.org"), domain);
}

#[test]
fn exemptions_end() {
    let pattern = |below| DomainPattern { domain: "example.org".into(), below };
    let network = Cidr::parse("192.0.2.0/24").unwrap();
    let entry = |matches, recipients| Exempt {
        at: Location::default(),
        matches,
        recipients,
        until: Some(100),
        reason: None,
    };
    let from = |client: &str| Subject { client: client.parse().ok(), ..subject("bob") };
    let ceo = entry(vec![Match::Identity("ceo".into()), Match::Client(network)], vec![]);
    assert!(exempts(&ceo, &subject("ceo"), 99) && !exempts(&ceo, &subject("ceo"), 100));
    assert!(exempts(&ceo, &from("192.0.2.200"), 0) && exempts(&ceo, &from("::ffff:192.0.2.2"), 0));
    assert!(!exempts(&ceo, &from("192.0.3.1"), 0) && !exempts(&ceo, &subject("bob"), 0));
    // An identity that is a client.
    assert!(exempts(&ceo, &subject("192.0.2.7"), 0));
    let domain = entry(vec![Match::Domain(pattern(false))], vec![]);
    assert!(exempts(&domain, &subject("x@example.org"), 0));
    assert!(!exempts(&domain, &subject("x@a.example.org"), 0));
    let below = entry(vec![Match::Domain(pattern(true))], vec![]);
    assert!(exempts(&below, &subject("x@a.example.org"), 0));
    let to = entry(vec![], vec![Match::Identity("abuse@example.org".into())]);
    let mail = |to| Subject { recipient: Some(to), ..subject("bob") };
    assert!(exempts(&to, &mail("abuse@example.org"), 0) && !exempts(&to, &mail("bob"), 0));
    assert!(!exempts(&to, &subject("abuse@example.org"), 0));
    let both = entry(vec![Match::Identity("bob".into())], vec![Match::Identity("bob".into())]);
    assert!(exempts(&both, &mail("bob"), 0) && !exempts(&both, &subject("bob"), 0));
}

/// A table: which of two units it names, and the package that it names.
#[derive(Clone, Copy, Debug)]
struct Entry {
    exists: bool,
    messages: bool,
    bytes: bool,
    package: Option<bool>,
}

impl Arbitrary for Entry {
    fn arbitrary(g: &mut Gen) -> Self {
        let mut coin = || bool::arbitrary(g);
        let (exists, messages, bytes, named) = (coin(), coin(), coin(), coin());
        Self { exists, messages, bytes, package: named.then(coin) }
    }
}

impl Entry {
    /// As text, with limits of `number`.
    fn write(self, text: &mut String, table: &str, number: u32, may_name: bool) {
        if !self.exists {
            return;
        }
        *text += &format!("[policy.p.{table}]\n");
        if self.messages {
            *text += &format!("messages = \"{number}/1h\"\n");
        }
        if self.bytes {
            *text += &format!("bytes = \"{number}/1h\"\n");
        }
        if let Some(gold) = self.package.filter(|_| may_name) {
            *text += if gold { "package = \"gold\"\n" } else { "package = \"iron\"\n" };
        }
    }
}

quickcheck! {
    /// The rules as they are documented, spelled out for one user.
    fn precedence_is_as_documented(
        user: Entry, domain: Entry, default: Entry, gold: Entry, iron: Entry, handed: Option<bool>
    ) -> bool {
        let (gold, iron) = (Entry { exists: true, ..gold }, Entry { exists: true, ..iron });
        let mut text = "version = 1\n".to_owned();
        user.write(&mut text, "user.\"u@d.org\"", 1, true);
        domain.write(&mut text, "domain.\"d.org\"", 2, true);
        gold.write(&mut text, "package.gold", 3, false);
        iron.write(&mut text, "package.iron", 4, false);
        default.write(&mut text, "default", 5, false);
        let all = policies(&text);
        let package = match (user.exists, user.package, handed, domain.exists, domain.package) {
            (true, Some(name), ..) => Some(name),
            (_, _, Some(name), ..) => Some(name),
            (_, _, None, true, name) => name,
            _ => None,
        };
        let name = |gold| if gold { "gold" } else { "iron" };
        let expected = |of: fn(Entry) -> bool| -> Option<f64> {
            if user.exists && of(user) { return Some(1.0); }
            if domain.exists && of(domain) { return Some(2.0); }
            if package == Some(true) && of(gold) { return Some(3.0); }
            if package == Some(false) && of(iron) { return Some(4.0); }
            (default.exists && of(default)).then_some(5.0)
        };
        let handed = handed.map(name);
        let subject = Subject { package: handed, ..subject("u@d.org") };
        let effective = resolve(&all.policies["p"], &subject, 0);
        let found = |unit| effective.each.get(&unit).map(|one| one.what.windows[0].limit);
        effective.package == package.map(|gold| (name(gold), true))
            && found(Unit::Messages) == expected(|entry| entry.messages)
            && found(Unit::Bytes) == expected(|entry| entry.bytes)
    }
}
