//! The image returns what the plain evaluator does, and damage is never a wrong answer.

use crate::policy::destination::{Destination, Destinations};
use crate::policy::limit::AppliedHabits;
use crate::policy::settings::{DeliverySettings, HabitsSettings};
use std::collections::BTreeMap;
use std::net::IpAddr;

use quickcheck::{Arbitrary, Gen};

use super::layout::HEADER_CRC;
use super::{Image, build};
use crate::calendar::Zone;
use crate::engine::BlockTime;
use crate::policy::fold::Folding;
use crate::policy::limit::{Exemption, Limit, Package, Per, Subject};
use crate::policy::model::{
    Amount, Bucket, Buckets, ByUnit, DomainPattern, Exempt, Grade, Identity, Limits, Location,
    Match, Member, OnCrossing, Piece, Policies, Policy, PolicySettings, Template, UnitText, When,
    Window,
};
use crate::policy::network::Cidr;
use crate::policy::resolve::resolve;
use crate::policy::word::{Counting, Every, Field, OnError, Word};

/// Identities, of which some are in the tables and some are not.
const IDENTITIES: [&str; 14] = [
    "alice@example.org",
    "bob@example.org",
    "carol@mail.example.org",
    "dave@a.b.example.org",
    "\"e@f\"@example.net",
    "alice",
    "example.org",
    "@",
    "",
    "x@.example.org",
    "192.0.2.7",
    "2001:db8::1",
    "2001:db8::/64",
    "é@exämple.org",
];
const DOMAINS: [&str; 7] =
    ["example.org", "mail.example.org", "b.example.org", "example.net", "org", "", "exämple.org"];
const PACKAGES: [&str; 4] = ["gold", "silver", "bronze", "none"];
const CUSTOMERS: [&str; 3] = ["acme", "b,c", "Ä 3"];
const CLIENTS: [&str; 5] =
    ["192.0.2.7", "192.0.2.200", "::ffff:192.0.2.7", "2001:db8::1", "2001:db8:0:1::1"];

fn one<T: Copy>(g: &mut Gen, of: &[T]) -> T {
    *g.choose(of).unwrap()
}

fn some<T>(g: &mut Gen, most: usize, mut make: impl FnMut(&mut Gen) -> T) -> Vec<T> {
    (0..usize::arbitrary(g) % (most + 1)).map(|_| make(g)).collect()
}

fn maybe<T>(g: &mut Gen, make: impl FnOnce(&mut Gen) -> T) -> Option<T> {
    bool::arbitrary(g).then(|| make(g))
}

fn word<T: Word>(g: &mut Gen) -> T {
    one(g, T::ALL)
}

fn number(g: &mut Gen) -> f64 {
    f64::from(u32::arbitrary(g)) / 8.0 + 0.5
}

fn amounts(g: &mut Gen) -> ByUnit {
    let window = |g: &mut Gen| {
        let (limit, period) = (number(g), number(g));
        match maybe(g, word::<Every>) {
            Some(every) => {
                let text = format!("{limit} {}", every.word()).into();
                Window { text, limit, period: every.seconds(), every: Some(every) }
            }
            None => {
                Window { text: format!("{limit}/{period}s").into(), limit, period, every: None }
            }
        }
    };
    let amount = |g: &mut Gen| {
        (word(g), Amount { at: Location::default(), windows: some(g, 3, window).into() })
    };
    some(g, 4, amount).into_iter().collect()
}

fn limits(g: &mut Gen) -> Limits {
    let bucket = |g: &mut Gen| {
        let (burst, leak) = (number(g), number(g));
        Bucket { unit: word(g), burst, leak, text: format!("{leak}/1s") }
    };
    let buckets = |g: &mut Gen| Buckets { at: Location::default(), buckets: some(g, 3, bucket) };
    Limits {
        at: Location::default(),
        each: amounts(g),
        buckets: maybe(g, buckets).map(Box::new),
        total: amounts(g),
        habits: HabitsSettings {
            habits: maybe(g, word),
            sensitivity: maybe(g, word),
            contact: None,
        },
    }
}

fn pattern(g: &mut Gen) -> DomainPattern {
    DomainPattern { domain: one(g, &DOMAINS).to_owned(), below: bool::arbitrary(g) }
}

fn network(g: &mut Gen) -> Cidr {
    let bits = one(g, &[0, 8, 24, 25, 32, 48, 64, 128, 255]);
    Cidr::around(one(g, &CLIENTS).parse().unwrap(), bits)
}

fn matched(g: &mut Gen) -> Match {
    match u8::arbitrary(g) % 3 {
        0 => Match::Identity(one(g, &IDENTITIES).to_owned()),
        1 => Match::Domain(pattern(g)),
        _ => Match::Client(network(g)),
    }
}

/// A time at which some exemptions have ended.
fn time(g: &mut Gen) -> i64 {
    one(g, &[i64::MIN, -1, 0, 1, 99, 100, 101, i64::MAX])
}

fn exempt(g: &mut Gen) -> Exempt {
    Exempt {
        at: Location::default(),
        matches: some(g, 3, matched),
        recipients: some(g, 2, matched),
        until: maybe(g, time),
        reason: maybe(g, |g| format!("reason {}", u8::arbitrary(g))),
    }
}

fn template(g: &mut Gen) -> Template {
    let piece = |g: &mut Gen| match bool::arbitrary(g) {
        true => Piece::Text(String::arbitrary(g)),
        false => Piece::Value(word(g)),
    };
    Template(some(g, 4, piece))
}

fn when(g: &mut Gen) -> When {
    match u8::arbitrary(g) % 4 {
        0 => When::Is { state: word(g), not: bool::arbitrary(g) },
        1 => When::Client(some(g, 3, network)),
        2 => When::SenderDomain(some(g, 3, pattern)),
        _ => When::RecipientDomain(some(g, 3, pattern)),
    }
}

fn settings(g: &mut Gen) -> PolicySettings {
    let at = Location::default();
    PolicySettings {
        when: some(g, 3, when),
        action: word(g),
        update: word::<Counting>(g),
        on_error: word::<OnError>(g),
        text: maybe(g, template),
        texts: some(g, 3, |g| UnitText { unit: word(g), text: template(g) }),
        key: some(g, 3, word::<Field>),
        verdicts: some(g, 3, |g| Grade { from: number(g), verdict: word(g), at }),
        habits_failures: bool::arbitrary(g),
        longest_delay: number(g),
    }
}

fn destination(g: &mut Gen) -> Destination {
    Destination { name: one(g, &CUSTOMERS).to_owned(), domains: some(g, 3, pattern) }
}

fn delivery(g: &mut Gen) -> DeliverySettings {
    DeliverySettings {
        at: word(g),
        burst: maybe(g, number),
        longest: number(g),
        after_longest: word(g),
    }
}

fn policy(g: &mut Gen) -> Policy {
    let packages: BTreeMap<_, _> =
        some(g, 3, |g| (one(g, &PACKAGES).to_owned(), limits(g))).into_iter().collect();
    let names: Vec<String> = packages.keys().cloned().collect();
    // A member's package exists, and so does its customer.
    let choose = |g: &mut Gen, names: &[String]| {
        maybe(g, |g| g.choose(names).map(|name| name.as_str().into())).flatten()
    };
    let customer =
        |g: &mut Gen| Member { package: choose(g, &names), customer: None, limits: limits(g) };
    let customers: BTreeMap<_, _> =
        some(g, 3, |g| (one(g, &CUSTOMERS).to_owned(), customer(g))).into_iter().collect();
    let customer_names: Vec<String> = customers.keys().cloned().collect();
    let member = |g: &mut Gen| Member { customer: choose(g, &customer_names), ..customer(g) };
    let domains = some(g, 4, |g| (one(g, &DOMAINS).to_owned(), member(g)));
    let users = some(g, 8, |g| (one(g, &IDENTITIES).to_owned(), member(g)));
    Policy {
        at: Location::default(),
        settings: settings(g),
        delivery: maybe(g, delivery).unwrap_or_default(),
        default: limits(g),
        packages,
        customers: customers.into_iter().collect(),
        domains: domains.into_iter().collect(),
        users: users.into_iter().collect(),
        exempt: some(g, 6, exempt),
    }
}

/// Policies that a file could have, and some that it could not.
#[derive(Clone, Debug)]
pub(super) struct AnyPolicies(pub(super) Policies);

impl Arbitrary for AnyPolicies {
    fn arbitrary(g: &mut Gen) -> Self {
        let folding = Folding {
            case: bool::arbitrary(g),
            plus: bool::arbitrary(g),
            dots: some(g, 2, |g| one(g, &DOMAINS).to_owned()),
            qualify: maybe(g, |g| one(g, &DOMAINS).to_owned()),
            v4: u8::arbitrary(g),
            v6: u8::arbitrary(g),
        };
        let identity = Identity {
            chain: some(g, 3, word),
            folding,
            relay: some(g, 3, network),
            destinations: Destinations(some(g, 2, destination)),
            at: None,
        };
        let on_crossing = OnCrossing {
            log: bool::arbitrary(g),
            run: some(g, 3, template),
            post: maybe(g, String::arbitrary),
            mail: maybe(g, String::arbitrary),
            repeat: maybe(g, number),
            observed: bool::arbitrary(g),
            deny: maybe(g, |g| match BlockTime::arbitrary(g) {
                time @ (BlockTime::Seconds(_) | BlockTime::UntilLifted) => time,
                BlockTime::Ignored | BlockTime::Kept => BlockTime::Seconds(60),
            }),
            deny_reply: word(g),
            deny_policies: some(g, 2, |g| one(g, &["outbound", "web"]).to_owned()),
            deny_habits: bool::arbitrary(g).then_some(BlockTime::UntilLifted),
            contact: bool::arbitrary(g),
        };
        let names = ["outbound", "bounces", "web"];
        let policies = some(g, 3, |g| (one(g, &names).to_owned(), policy(g)));
        let policies = policies.into_iter().collect();
        let zone = maybe(g, |g| {
            let changes =
                some(g, 3, |g| (i64::from(u32::arbitrary(g)), i32::from(i16::arbitrary(g))));
            let changes: std::collections::BTreeMap<i64, i32> = changes.into_iter().collect();
            Zone {
                name: String::arbitrary(g).into(),
                first: -5,
                changes: changes.into_iter().collect(),
            }
        });
        let no_usage = bool::arbitrary(g);
        Self(Policies { files: Vec::new(), identity, on_crossing, zone, no_usage, policies })
    }
}

/// A subject, owned.
#[derive(Clone, Debug)]
pub(super) struct AnySubject {
    identity: String,
    is_ambiguous: bool,
    package: Option<&'static str>,
    client: Option<IpAddr>,
    recipient: Option<&'static str>,
    now: i64,
}

impl AnySubject {
    pub(super) fn get(&self) -> Subject<'_> {
        Subject {
            identity: &self.identity,
            is_ambiguous: self.is_ambiguous,
            package: self.package,
            client: self.client,
            recipient: self.recipient,
        }
    }
}

impl Arbitrary for AnySubject {
    fn arbitrary(g: &mut Gen) -> Self {
        let identity = match u8::arbitrary(g) % 4 {
            0 => String::arbitrary(g),
            _ => one(g, &IDENTITIES).to_owned(),
        };
        Self {
            identity,
            is_ambiguous: bool::arbitrary(g),
            package: maybe(g, |g| one(g, &PACKAGES)),
            client: maybe(g, |g| one(g, &CLIENTS).parse().unwrap()),
            recipient: maybe(g, |g| one(g, &IDENTITIES)),
            now: time(g),
        }
    }
}

/// All that an image or the evaluator says of a subject.
#[derive(Debug, PartialEq)]
struct Said<'a> {
    settings: &'a PolicySettings,
    limits: Vec<Limit<'a>>,
    exemption: Option<Exemption<'a>>,
    package: Option<Package<'a>>,
    customer: Option<&'a str>,
    habits: Option<AppliedHabits<'a>>,
}

fn evaluated<'a>(policy: &'a Policy, subject: &'a AnySubject) -> Said<'a> {
    let effective = resolve(policy, &subject.get(), subject.now);
    Said {
        settings: &policy.settings,
        limits: effective.limits(),
        exemption: effective.exemption(),
        package: effective.package,
        customer: effective.customer,
        habits: effective.habits,
    }
}

#[test]
fn an_image_says_what_the_plain_evaluator_does() {
    fn agrees(AnyPolicies(policies): AnyPolicies, subjects: Vec<AnySubject>) -> bool {
        let image = Image::from_bytes(build(&policies)).unwrap();
        assert_eq!(image.identity().unwrap(), &policies.identity);
        assert_eq!(image.on_crossing().unwrap(), policies.on_crossing);
        assert!(image.names().eq(policies.policies.keys()));
        assert!(image.policy("absent").unwrap().is_none());
        let back = image.policies().unwrap();
        assert_eq!(back, Policies { files: back.files.clone(), ..policies.clone() });
        for (name, policy) in &policies.policies {
            let compiled = image.policy(name).unwrap().unwrap();
            let mut limits = Vec::new();
            for subject in &subjects {
                compiled.limits(&subject.get(), &mut limits).unwrap();
                let said = Said {
                    settings: compiled.settings(),
                    limits: limits.clone(),
                    exemption: compiled.exemption(&subject.get(), subject.now).unwrap(),
                    package: compiled.package(&subject.get()).unwrap(),
                    customer: compiled.customer(&subject.get()).unwrap(),
                    habits: compiled.habits(&subject.get()).unwrap(),
                };
                assert!(compiled.uses_habits() || said.habits.is_none());
                assert_eq!(said, evaluated(policy, subject), "{subject:?}");
                let total = limits.iter().filter(|limit| limit.per == Per::Customer).copied();
                if let Some(customer) = said.customer {
                    let alone = compiled.customer_limits(customer).unwrap();
                    assert_eq!(alone, total.collect::<Vec<_>>(), "{customer}");
                }
            }
        }
        true
    }
    let check: fn(AnyPolicies, Vec<AnySubject>) -> bool = agrees;
    kit::quick_check().tests(300).quickcheck(check);
}

/// Any one bit of the image may be wrong, or its end missing: that is an error, or changes
/// nothing.
#[test]
fn damage_is_an_error_or_changes_nothing() {
    fn agrees(
        AnyPolicies(policies): AnyPolicies,
        subjects: Vec<AnySubject>,
        at: usize,
        cut: bool,
    ) -> bool {
        let sound = build(&policies);
        let mut bytes = sound.clone();
        let at = at % (bytes.len() * 8);
        if cut {
            bytes.truncate(at / 8);
        } else {
            bytes[at / 8] ^= 1 << (at % 8);
        }
        let Ok(image) = Image::from_bytes(bytes) else { return true };
        // Nothing is read from the padding, and the word says only that there may be
        // another image.
        assert!(!cut && at / 8 >= HEADER_CRC + 4, "byte {} is not checked", at / 8);
        if let Ok(identity) = image.identity() {
            assert_eq!(identity, &policies.identity);
        }
        if let Ok(on_crossing) = image.on_crossing() {
            assert_eq!(on_crossing, policies.on_crossing);
        }
        assert!(image.names().eq(policies.policies.keys()));
        if let Ok(back) = image.policies() {
            assert_eq!(back, Policies { files: back.files.clone(), ..policies.clone() });
        }
        for (name, policy) in &policies.policies {
            let Ok(Some(compiled)) = image.policy(name) else { continue };
            let mut limits = Vec::new();
            for subject in &subjects {
                let said = evaluated(policy, subject);
                assert_eq!(compiled.settings(), said.settings);
                match compiled.limits(&subject.get(), &mut limits) {
                    Ok(()) => assert_eq!(limits, said.limits),
                    Err(_) => assert!(limits.is_empty()),
                }
                if let Ok(exemption) = compiled.exemption(&subject.get(), subject.now) {
                    assert_eq!(exemption, said.exemption);
                }
                if let Ok(package) = compiled.package(&subject.get()) {
                    assert_eq!(package, said.package);
                }
                if let Ok(habits) = compiled.habits(&subject.get()) {
                    assert_eq!(habits, said.habits);
                }
            }
        }
        true
    }
    let check: fn(AnyPolicies, Vec<AnySubject>, usize, bool) -> bool = agrees;
    kit::quick_check().tests(2000).quickcheck(check);
}
