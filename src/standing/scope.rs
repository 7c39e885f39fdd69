//! Whose identities somebody may see and change: those of all, of one customer, or of some domains.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use crate::engine::{Kind, RecordKey};
use crate::identity::fold::{CUSTOMER, Folding, domain, split_field};
use crate::identity::{Field, first_field, mailbox};
use crate::policy::image::{Image, PolicyFile};
use crate::policy::limit::Subject;
use crate::policy::model::MemberKind;
use crate::spool::{LoggedEvent, Options, Spool};
use crate::store::{Entry, Override, Target};
use crate::text;
use crate::toml_file::diagnostic::similar;

/// The longest name of a customer: a longer one is not whole in a key.
const NAME_MAX: usize = 255;
/// What stands for keys of others, and for globs, which others may be meant by.
pub(crate) const OTHERS: &str = "a group of senders";

/// Whose identities somebody may see.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Those of this customer, as the policies in use say.
    Customer(String),
    /// Those of these domains, folded and in order.
    Domains(Vec<String>),
}

impl Scope {
    /// That nobody is known in the customer, or in a domain of it, with the nearest one: a sentence for
    /// each.
    ///
    /// # Errors
    /// That the policies in use cannot be read, in a sentence.
    pub(crate) fn unknown(&self, spool: &Path) -> Result<Vec<String>, String> {
        let policies = PolicyFile::open(spool);
        let unread = |why| format!("whether anybody is in {self} is not known: {why}");
        let image = policies.image().map_err(unread)?;
        Ok(match self {
            Self::Customer(name) => {
                let known = members(image, MemberKind::Customer);
                unknown(name, "customer", &known).into_iter().collect()
            }
            Self::Domains(names) => {
                let mut known = members(image, MemberKind::Domain);
                let users = members(image, MemberKind::User);
                known.extend(users.iter().filter_map(|user| Some(domain(user)?.to_owned())));
                // Only then: it reads the whole database.
                if !names.iter().all(|name| known.contains(name)) {
                    known.extend(seen_domains(spool));
                }
                names.iter().filter_map(|name| unknown(name, "domain", &known)).collect()
            }
        })
    }

    /// Of the customer with this name; `None` if there can be no such name.
    #[must_use]
    pub fn customer(name: &str) -> Option<Self> {
        let is_name = (1..=NAME_MAX).contains(&name.len()) && name.trim() == name;
        (is_name && !name.contains(char::is_control)).then(|| Self::Customer(name.to_owned()))
    }

    /// Of these domains; `None` if one is no domain, or there is none.
    #[must_use]
    pub fn domains<'d>(names: impl IntoIterator<Item = &'d str>) -> Option<Self> {
        let folded = |name: &str| {
            let address = format!("x@{name}");
            let address = mailbox::plain(&address).filter(|_| !name.is_empty())?;
            let address = Folding::default().identity(&address)?;
            domain(&address).filter(|name| name.len() <= NAME_MAX / 2).map(str::to_owned)
        };
        let mut all: Vec<String> = names.into_iter().map(folded).collect::<Option<_>>()?;
        all.sort_unstable();
        all.dedup();
        (!all.is_empty()).then_some(Self::Domains(all))
    }

    /// As the command that adds a token takes it, after a blank.
    pub(crate) fn arguments(&self) -> String {
        match self {
            Self::Customer(name) => format!(" --customer {}", text::shell(name)),
            Self::Domains(names) => names.iter().map(|name| format!(" --domain {name}")).collect(),
        }
    }

    /// Reads what [`Scope`] is written as.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, names) = text.split_once(' ')?;
        let scope = match kind {
            "customer" => Self::customer(names),
            "domain" => Self::domains(names.split(' ')),
            _ => None,
        };
        scope.filter(|scope| scope.to_string() == text)
    }
}

/// `customer acme`, `domain example.net example.org`
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Customer(name) => write!(f, "customer {name}"),
            Self::Domains(names) => write!(f, "domain {}", names.join(" ")),
        }
    }
}

/// What somebody with a scope sees: whose an identity is, by the policies in use. Where that is not
/// known, it is somebody else's.
#[derive(Clone, Debug)]
pub(crate) struct Sight<'p> {
    scope: Option<&'p Scope>,
    image: Option<&'p Image>,
    folding: Folding,
}

impl<'p> Sight<'p> {
    pub(crate) fn new(
        scope: Option<&'p Scope>,
        image: Option<&'p Image>,
        folding: Folding,
    ) -> Self {
        Self { scope, image, folding }
    }

    /// By the policies of this file.
    pub(crate) fn by(
        scope: Option<&'p Scope>,
        policies: &'p PolicyFile,
        folding: &Folding,
    ) -> Self {
        Self::new(scope, policies.image().ok(), folding.clone())
    }

    /// Whether all is seen.
    pub(crate) fn is_of_all(&self) -> bool {
        self.scope.is_none()
    }

    /// Whether it has the record of this key.
    pub(crate) fn has(&self, key: &RecordKey<'_>) -> bool {
        match key.kind {
            _ if self.is_of_all() => true,
            // A name without a domain may be that of a local account.
            Kind::Spec => {
                let folding = self.folding.without_qualify();
                self.has_name(folding.folded_bytes(key.identity(), &mut String::new()))
            }
            Kind::Policy | Kind::Habits | Kind::Usage => self.has_identity(key.identity()),
        }
    }

    /// Whether it has all that a target means; a glob may mean others.
    pub(crate) fn has_target(&self, target: &Target) -> bool {
        let Target::Exact { key, counted_as, .. } = target else { return self.is_of_all() };
        let has = |name: &Vec<u8>| match split_field(name) {
            Some(_) => self.has_identity(name),
            None => self.has_name(name),
        };
        self.is_of_all() || std::iter::once(key).chain(counted_as).all(has)
    }

    /// Whether it has what was logged: of a record that it has, and by a login that it has, as many
    /// are counted by the record of a total, and a stranger may name any sender.
    pub(crate) fn has_event(&self, event: &LoggedEvent) -> bool {
        if self.is_of_all() {
            return true;
        }
        let login = String::from_utf8_lossy(&event.texts.login);
        let mut folded = String::new();
        let mut is_own = |by: &Folding| by.fold_into(&login, &mut folded) && self.has_user(&folded);
        !event.is_cut()
            && self.has(&event.record_key())
            && (login.is_empty()
                || is_own(&self.folding)
                || is_own(&self.folding.without_qualify()))
    }

    /// Whether it has an identity of a policy: a login, a local account or a script of it, perhaps with
    /// other fields, or its total. What only strangers name, such as a sender, is nobody's.
    pub(crate) fn has_identity(&self, identity: &[u8]) -> bool {
        let Some(scope) = self.scope else { return true };
        let (mut rest, mut is_own) = (Some(identity), false);
        while let Some(field) = first_field(&mut rest) {
            let Some((name, value)) = split_field(&field) else { return false };
            let Ok(value) = std::str::from_utf8(value) else { return false };
            is_own = match Field::of(name) {
                Some(Field::Auth) => {
                    let mut login = String::new();
                    self.folding.fold_into(value, &mut login) && self.has_user(&login)
                }
                Some(Field::LocalAccount) => self.has_user(value),
                // Whoever makes a script gives it its name.
                Some(Field::Script) => !value.contains('@') && self.has_user(value),
                Some(_) => continue,
                None if name == CUSTOMER.as_bytes() => {
                    matches!(scope, Scope::Customer(own) if own == value)
                }
                None => self.has_user(&format!("@{value}")),
            };
            if !is_own {
                return false;
            }
        }
        is_own
    }

    /// Whether it has a name without a field, which may be a key of a spec, made of anything: only one
    /// that looks like a mailbox or a login, and not like two, or like an address of a client.
    fn has_name(&self, name: &[u8]) -> bool {
        let Ok(name) = std::str::from_utf8(name) else { return false };
        let is_sign = |c: char| c.is_alphanumeric() || "._+-=@'&#~".contains(c);
        name.chars().all(is_sign)
            && name.matches('@').count() <= 1
            && name.parse::<IpAddr>().is_err()
            && self.has_user(name)
    }

    /// Whether a user, or with an empty local part a domain, is of the scope.
    fn has_user(&self, name: &str) -> bool {
        match self.scope {
            None => true,
            Some(Scope::Domains(all)) => {
                domain(name).is_some_and(|domain| all.iter().any(|one| one == domain))
            }
            Some(Scope::Customer(customer)) => {
                let subject = Subject { identity: name, ..Subject::default() };
                let mut policies = self.image.into_iter().flat_map(Image::each);
                policies.any(|(_, policy)| {
                    policy.is_ok_and(|policy| {
                        policy.customer(&subject).is_ok_and(|found| found == Some(customer))
                    })
                })
            }
        }
    }

    /// An override without what it says of others.
    pub(crate) fn masked(&self, one: &Override) -> Override {
        match self.has_target(&one.target) {
            true => one.clone(),
            false => Override { argument: OTHERS.to_owned(), reason: String::new(), ..one.clone() },
        }
    }

    /// Why nothing is shown or changed of a key that it does not have: the same of all.
    pub(crate) fn refusal(&self) -> String {
        let scope = self.scope.map_or_else(String::new, Scope::to_string);
        format!("the token is for identities of {scope} alone")
    }
}

/// That nobody is known in the customer or domain of this name, if it is none of `known`.
fn unknown(name: &str, what: &str, known: &BTreeSet<String>) -> Option<String> {
    if known.contains(name) {
        return None;
    }
    let nearest = similar(name, known.iter().map(String::as_str));
    let nearest = nearest
        .map_or_else(String::new, |one| format!("; similar: {}", text::printable(one.as_bytes())));
    Some(format!(
        "the policies in use have no {what} {name}, so the token shows nobody now{nearest}"
    ))
}

/// The names of all customers, domains or users of the policies.
fn members(image: &Image, kind: MemberKind) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for policy in image.names() {
        // What is damaged is the doctor's matter.
        let Ok(Some(policy)) = image.policy(policy) else { continue };
        let _ = policy.each_member(kind, &mut |name, _| _ = names.insert(name.to_owned()));
    }
    names
}

/// The domains of the logins that were counted.
fn seen_domains(spool: &Path) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let Ok(mut database) = Spool::open_existing(spool, Options::default()) else { return seen };
    let _ = database.for_each(&mut |entry: Entry| {
        let key = entry.record_key();
        let domain = std::str::from_utf8(key.identity()).ok().and_then(domain);
        seen.extend(domain.map(str::to_owned));
    });
    seen
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::policy::image::build;
    use crate::policy::source::compile;
    use crate::standing::audit_line::AuditLine;
    use crate::standing::key_text::record_of;
    use crate::standing::one_key::OneKey;

    const POLICIES: &str = r#"version = 1
identity.qualify = "acme.test"
[policy.out]
default.recipients = "9/1h"
customer.acme = { domains = ["acme.test"], users = ["bob@shared.test", "web7"] }
customer."evil, inc" = { domains = ["evil.test"] }
"#;

    /// What each of three sees: a customer, a domain of it, and the domain of others.
    fn seen(has: impl Fn(&Sight<'_>, &Folding) -> bool) -> [bool; 3] {
        let none = |_: &Path| Err("none".to_owned());
        let policies = compile(Path::new("p.toml"), POLICIES, &none).policies.unwrap();
        let image = Image::from_bytes(build(&policies)).unwrap();
        let folding = image.identity().unwrap().folding.clone();
        let evil = Scope::customer("evil, inc");
        let all = [Scope::customer("acme"), Scope::domains(["acme.test"]), evil];
        all.map(|scope| {
            has(&Sight::new(Some(&scope.unwrap()), Some(&image), folding.clone()), &folding)
        })
    }

    #[test]
    fn whose_an_identity_is() {
        let (nobody, both, acme, evil) =
            ([false; 3], [true, true, false], [true, false, false], [false, false, true]);
        for (name, expected) in [
            ("auth:alice@acme.test", both),
            ("auth:alice@acme.test,client:192.0.2.7", both),
            ("client:192.0.2.7,local_account:alice@acme.test", both),
            ("auth:bob@shared.test", acme),
            ("local_account:web7", acme),
            ("script:web7", acme),
            ("customer:acme", acme),
            ("domain:acme.test", both),
            ("domain:shared.test", nobody),
            ("customer:evil,, inc", evil),
            ("auth:eve@evil.test", evil),
            ("auth:eve@acme.test.evil.test", nobody),
            ("auth:eve@sub.acme.test", nobody),
            ("auth:eve@evil.test,local_account:alice@acme.test", nobody),
            // Anybody may name a sender, a recipient or a script.
            ("sender:alice@acme.test", nobody),
            ("sender_domain:acme.test", nobody),
            ("recipient:alice@acme.test", nobody),
            ("script:/home/eve/x@acme.test", nobody),
            ("client:192.0.2.7", nobody),
            // Keys of specs.
            ("alice@acme.test", both),
            ("Alice@ACME.test", both),
            ("web7", acme),
            ("eve@evil.test/alice@acme.test", nobody),
            ("eve@evil.test>alice@acme.test", nobody),
            ("eve:alice@acme.test", nobody),
            ("192.0.2.7", nobody),
            ("", nobody),
        ] {
            let found = seen(|sight, _| sight.has(&record_of(name.as_bytes())));
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn a_key_is_all_that_it_may_mean_and_so_is_a_line_of_the_log() {
        let (nobody, both, acme) = ([false; 3], [true, true, false], [true, false, false]);
        for (key, of_key, of_line) in [
            ("alice@acme.test", both, both),
            ("auth:alice", both, both),
            // Also the local account of this name, which is nobody's.
            ("alice", nobody, nobody),
            ("web7", acme, acme),
            ("*@acme.test", nobody, nobody),
            ("{eve@evil.test,*@acme.test}", nobody, nobody),
            ("customer:acme", acme, acme),
            ("[192.0.2.7]", nobody, nobody),
            // Whole stored keys, of records that were reset.
            ("out/recipients/1h/auth:alice@acme.test", nobody, both),
            ("out/recipients/1h/sender:alice@acme.test", nobody, nobody),
            ("1h/per_rcpt/alice@acme.test", nobody, both),
            ("1h/per_rcpt/eve@evil.test/alice@acme.test", nobody, nobody),
        ] {
            let found = seen(|sight, folding| {
                OneKey::parse(key, folding).is_ok_and(|one| sight.has_target(&one.target))
            });
            assert_eq!(found, of_key, "{key}");
            let line = format!("2026-11-29T11:00:00Z uid=0 deny until=forever key={key} reason=x");
            let line = AuditLine::parse(line.as_bytes()).unwrap();
            let found = seen(|sight, folding| line.is_seen(sight, folding));
            assert_eq!(found, of_line, "{line:?}");
        }
    }
}
