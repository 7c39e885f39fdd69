//! Precedence, against tables that are searched unit by unit in the order of the
//! language's rules.

use std::path::Path;

use kit::quickcheck;
use quickcheck::{Arbitrary, Gen};

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
    for (identity, package) in [("x@other.org", "gold"), ("x@example.org", "iron")] {
        let expected = Package { name: package, from: PackageFrom::FrontEnd };
        assert_eq!(with(identity, package).package, Some(expected));
    }
    let effective = with("slow@example.org", "gold");
    let package = effective.package.map(|package| package.to_string());
    assert_eq!(package.as_deref(), Some("package iron, from user slow@example.org"));
    // One that does not exist lifts nothing.
    let unknown = with("x@example.org", "tin");
    let expected = Package { name: "gold", from: PackageFrom::Domain("example.org") };
    assert_eq!(unknown.package, Some(expected));
    assert_eq!(said(&unknown, Unit::Recipients).as_deref(), Some("1000/1h by package gold"));
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
struct TableEntry {
    exists: bool,
    messages: bool,
    bytes: bool,
    package: Option<bool>,
}

impl Arbitrary for TableEntry {
    fn arbitrary(g: &mut Gen) -> Self {
        let mut coin = || bool::arbitrary(g);
        let (exists, messages, bytes, named) = (coin(), coin(), coin(), coin());
        Self { exists, messages, bytes, package: named.then(coin) }
    }
}

impl TableEntry {
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

/// A policy of one user, and what is handed over with its mail.
#[derive(Clone, Copy, Debug)]
struct Tree {
    user: TableEntry,
    domain: TableEntry,
    default: TableEntry,
    gold: TableEntry,
    iron: TableEntry,
    /// The customers `a` and `b`.
    customers: [TableEntry; 2],
    /// Which of them has the user, and which the domain.
    user_of: Option<bool>,
    domain_of: Option<bool>,
    /// Which of the tables have a total of messages.
    totals: u8,
    handed: Option<bool>,
}

impl Arbitrary for Tree {
    fn arbitrary(g: &mut Gen) -> Self {
        let entry = |g: &mut Gen| TableEntry { exists: true, ..TableEntry::arbitrary(g) };
        Self {
            user: TableEntry::arbitrary(g),
            domain: TableEntry::arbitrary(g),
            default: TableEntry::arbitrary(g),
            gold: entry(g),
            iron: entry(g),
            customers: [entry(g), entry(g)],
            user_of: Option::arbitrary(g),
            domain_of: Option::arbitrary(g),
            totals: u8::arbitrary(g),
            handed: Option::arbitrary(g),
        }
    }
}

fn package_name(gold: bool) -> &'static str {
    if gold { "gold" } else { "iron" }
}

impl Tree {
    fn has_total(&self, number: u32) -> bool {
        self.totals >> (number % 8) & 1 == 1
    }

    fn text(&self) -> String {
        let mut text = "version = 1\n".to_owned();
        let mut write = |entry: TableEntry, table: &str, number, may_name, may_have_total: bool| {
            entry.write(&mut text, table, number, may_name);
            if entry.exists && may_have_total && self.has_total(number) {
                text += &format!("total.messages = \"{number}/1h\"\n");
            }
        };
        write(self.user, "user.\"u@d.org\"", 1, true, false);
        write(self.domain, "domain.\"d.org\"", 2, true, true);
        write(self.gold, "package.gold", 3, false, true);
        write(self.iron, "package.iron", 4, false, true);
        write(self.default, "default", 5, false, true);
        for (at, customer) in self.customers.into_iter().enumerate() {
            let (name, number) = (["a", "b"][at], 6 + at as u32);
            write(customer, &format!("customer.{name}"), number, true, true);
        }
        for (at, name) in ["a", "b"].into_iter().enumerate() {
            let lists = |of: Option<bool>| of == Some(at == 1);
            let table = format!("[policy.p.customer.{name}]\n");
            let mut lines = table.clone();
            if lists(self.user_of) {
                lines += "users = [\"U@d.org\"]\n";
            }
            if lists(self.domain_of) {
                lines += "domains = [\"D.org.\"]\n";
            }
            text = text.replace(&table, &lines);
        }
        text
    }
}

quickcheck! {
    /// The rules as they are documented, spelled out for one user.
    fn precedence_is_as_documented(tree: Tree) -> bool {
        let Tree { user, domain, default, gold, iron, customers, .. } = tree;
        let all = policies(&tree.text());
        let of_domain = if domain.exists { domain.package } else { None };
        let customer = tree.user_of.or(tree.domain_of).map(usize::from);
        let package = if user.exists && user.package.is_some() {
            user.package
        } else if tree.handed.is_some() {
            tree.handed
        } else if of_domain.is_some() {
            of_domain
        } else {
            customer.and_then(|at| customers[at].package)
        };
        let expected = |of: fn(TableEntry) -> bool| -> Option<f64> {
            if user.exists && of(user) { return Some(1.0); }
            if domain.exists && of(domain) { return Some(2.0); }
            if let Some(at) = customer && of(customers[at]) { return Some(6.0 + at as f64); }
            if package == Some(true) && of(gold) { return Some(3.0); }
            if package == Some(false) && of(iron) { return Some(4.0); }
            (default.exists && of(default)).then_some(5.0)
        };
        let domain_package = of_domain.or(tree.domain_of.and_then(|b| customers[usize::from(b)].package));
        let total = if domain.exists && tree.has_total(2) {
            Some(2.0)
        } else if domain_package == Some(true) && tree.has_total(3) {
            Some(3.0)
        } else if domain_package == Some(false) && tree.has_total(4) {
            Some(4.0)
        } else {
            (default.exists && tree.has_total(5)).then_some(5.0)
        };
        let customer_total =
            customer.filter(|at| tree.has_total(6 + *at as u32)).map(|at| 6.0 + at as f64);
        let subject = Subject { package: tree.handed.map(package_name), ..subject("u@d.org") };
        let effective = resolve(&all.policies["p"], &subject, 0);
        let limit = |found: &BTreeMap<Unit, Ruled<'_, Amount>>, unit| {
            found.get(&unit).map(|one| one.what.windows[0].limit)
        };
        effective.package.map(|one| one.name) == package.map(package_name)
            && effective.customer == customer.map(|at| ["a", "b"][at])
            && limit(&effective.each, Unit::Messages) == expected(|entry| entry.messages)
            && limit(&effective.each, Unit::Bytes) == expected(|entry| entry.bytes)
            && limit(&effective.total, Unit::Messages) == total
            && limit(&effective.customer_total, Unit::Messages) == customer_total
    }
}
