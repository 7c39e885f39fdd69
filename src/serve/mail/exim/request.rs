//! Requests of Exim: lines `name=value`, as Postfix's are. A value that a client can choose is
//! in base64; the others are numbers, flags and addresses that Exim has made.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::event::session::SessionFacts;
use crate::event::{AclStage, Caller, Circumstances, Context, Event, HandedOver, Origin};
use crate::event::{Signs, account_key, is_of_dialogue};
use crate::identity::written;
use crate::policy::key::address;
use crate::policy::word::{At, OnError, Word as _};
use crate::rate::habits::marks;
use crate::serve::mail::event::{EximCall, MailEvent};
use crate::sys::users;

/// The longest line, without its end: the list of recipients.
pub const LINE_MAX: usize = 960 << 10;
/// The largest request.
pub const REQUEST_MAX: usize = 1 << 20;
/// Where `RATELIMIT_EVENT` in exim/exirate.conf cuts off the list of recipients.
const LIST_MAX: usize = 700_000;
/// So many at most of those that are cut off are counted.
const UNKNOWN_MAX: usize = 100_000;
/// The first line of a request about policies.
pub const POLICY: &[u8] = b"request=exirate_policy";
/// The first line of a request about a spec.
pub const CHECK: &[u8] = b"request=exirate_ratelimit";

macro_rules! attributes {
    ($($name:ident,)+) => {
        /// The values of a request, as they were sent. [`EximRequest::step`] has what they mean.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct EximRequest {
            /// It is about a spec.
            pub is_check: bool,
            $($name: Option<Vec<u8>>,)+
        }

        impl EximRequest {
            /// The place of the attribute of this name, if it is used.
            fn attribute(&mut self, name: &[u8]) -> Option<&mut Option<Vec<u8>>> {
                $(if name == stringify!($name).as_bytes() {
                    return Some(&mut self.$name);
                })+
                None
            }
        }
    };
}

attributes! {
    // The connection and the message: any texts that differ.
    session, message,
    // What the stage is derived from; the command in base64.
    command, notquit, router, transport,
    // Where it comes from; all but the addresses in base64.
    address, server, protocol, helo, ident, authenticated, login,
    // What it is about, in base64.
    sender, local_part, domain, list,
    // Headers that may mark the message, in base64.
    auto_submitted, precedence, list_id,
    id, size, recipients, number, failed, auth_failed,
    // User ids: of who handed the message over, of who started Exim, of Exim, and of the accounts
    // that serve connections.
    originator, caller, exim, serving,
    // The recipient of this RCPT has been refused; nothing is counted.
    refused, look,
    // A router asks about a recipient of a message: `delivery`; the message's age in seconds.
    at, age,
    // What an administrator adds, in base64.
    policies, package, script, on_error,
    spec, key, unique,
}

/// Why a request cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EximFault {
    /// An attribute is given twice.
    #[error("an attribute is given twice")]
    Twice,
    /// A value is not base64.
    #[error("the value of {0} is not base64")]
    NotBase64(&'static str),
    /// `on_error` is none of its words.
    #[error("on_error is fail-open or fail-closed")]
    OnError,
    /// There is no spec to be checked.
    #[error("it has no spec")]
    NoSpec,
}

/// A step of an SMTP session, and which session it is of.
#[derive(Clone, Debug, PartialEq)]
pub struct EximStep {
    /// The SMTP connection; empty if that is not known.
    pub session: Vec<u8>,
    /// The message, by which a new one is known.
    pub message: Vec<u8>,
    /// The number of the RCPT command in its message.
    pub number: Vec<u8>,
    /// What is to be decided.
    pub event: MailEvent,
    /// The spec that is to be checked, if it is not about policies.
    pub check: Option<EximCheck>,
}

/// A check of a spec.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EximCheck {
    /// The spec.
    pub spec: Vec<u8>,
    /// The key, if it is not in the spec.
    pub key: Option<Vec<u8>>,
    /// The unique event.
    pub unique: Option<Vec<u8>>,
    address: Option<Vec<u8>>,
    size: Option<u64>,
    local_part: Vec<u8>,
    domain: Vec<u8>,
}

impl EximCheck {
    /// What the spec needs to know of a step.
    #[must_use]
    pub fn context(&self, event: &MailEvent) -> Context<'_> {
        Context {
            stage: event.stage,
            host_address: self.address.as_deref(),
            recipients: event.facts.recipients,
            message_size: self.size,
            local_part: &self.local_part,
            domain: &self.domain,
        }
    }
}

impl EximRequest {
    /// One without attributes: about a spec, or about policies.
    #[must_use]
    pub fn new(is_check: bool) -> Self {
        Self { is_check, ..Self::default() }
    }

    /// Sets an attribute; one that is not used is read over.
    ///
    /// # Errors
    /// It is there already.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), EximFault> {
        let Some(place) = self.attribute(name) else { return Ok(()) };
        place.replace(value.to_owned()).map_or(Ok(()), |_| Err(EximFault::Twice))
    }

    /// What it asks.
    ///
    /// # Errors
    /// A value is not what it should be.
    pub fn step(&self) -> Result<EximStep, EximFault> {
        let given = |value: &Option<Vec<u8>>| value.clone().unwrap_or_default();
        let is = |value: &Option<Vec<u8>>| value.as_ref().is_some_and(|text| !text.is_empty());
        let command = decoded("command", &self.command)?.unwrap_or_default();
        let protocol = decoded("protocol", &self.protocol)?.unwrap_or_default();
        let local_part = decoded("local_part", &self.local_part)?.unwrap_or_default();
        let domain = decoded("domain", &self.domain)?.unwrap_or_default();
        let has_id = is(&self.id);
        // A batch is no dialogue, although it has commands; a connection has none at first.
        let interactive = !protocol.ends_with(b"bsmtp")
            && (!command.is_empty() || !has_id && protocol != b"local" && !protocol.is_empty());
        let signs = Signs {
            interactive,
            notquit: is(&self.notquit),
            router: is(&self.router),
            transport: is(&self.transport),
            command: &command,
            has_domain: !domain.is_empty(),
            has_message_id: has_id,
            has_protocol: !protocol.is_empty(),
            // What is not set cannot be told from what is empty.
            has_sender: true,
        };
        let stage = signs.stage();
        let refused = is(&self.refused) && stage == AclStage::Rcpt;
        let facts = SessionFacts {
            recipients: number(&self.recipients).unwrap_or(0),
            message_size: number(&self.size).unwrap_or(0),
            rejected_recipients: number::<u32>(&self.failed)
                .unwrap_or(0)
                .saturating_add(refused.into()),
            auth_failed: number::<u64>(&self.auth_failed).is_some_and(|failed| failed != 0),
            has_message: has_id,
            message_age: number(&self.age).unwrap_or(0),
        };
        let is_route = self.at.as_deref() == Some(At::Delivery.word().as_bytes());
        let is_route = is_route && stage == AclStage::Outside && has_id;
        let event = self.event(stage, interactive, &protocol, recipient(&local_part, &domain))?;
        let list = decoded("list", &self.list)?.unwrap_or_default();
        let mut recipients = if stage.has_all_recipients() { addresses(&list) } else { Vec::new() };
        if list.len() >= LIST_MAX {
            // The last one may be cut off, and those behind it are not known: each counts as another
            // one, which may be of any domain.
            recipients.pop();
            let id = String::from_utf8_lossy(self.id.as_deref().unwrap_or_default());
            let unknown = (recipients.len()..facts.recipients as usize).take(UNKNOWN_MAX);
            recipients.extend(unknown.map(|number| format!("{number}%{id}@unknown.invalid")));
        }
        let on_error = decoded("on_error", &self.on_error)?.filter(|word| !word.is_empty());
        let on_error = on_error
            .map(|word| OnError::of(&String::from_utf8_lossy(&word)).ok_or(EximFault::OnError));
        let policies = decoded("policies", &self.policies)?.filter(|names| !names.is_empty());
        let call = EximCall {
            policies: policies.map(text),
            on_error: on_error.transpose()?,
            only_looks: is(&self.look) || self.only_looks(interactive, has_id, &protocol),
            is_new_command: true,
            is_of_account: self.caller().account().is_some(),
        };
        Ok(EximStep {
            // Each recipient is decided by itself, long after its connection.
            session: if is_route { Vec::new() } else { given(&self.session) },
            message: given(&self.message),
            number: given(&self.number),
            event: MailEvent {
                stage: if is_route { AclStage::Route } else { stage },
                event,
                facts,
                recipients,
                exim: Some(call),
                marked: self.is_marked()?,
                hold: None,
            },
            check: self.is_check.then(|| self.check(local_part, domain)).transpose()?,
        })
    }

    /// The check of a spec that it asks for.
    fn check(&self, local_part: Vec<u8>, domain: Vec<u8>) -> Result<EximCheck, EximFault> {
        // A client that only the account speaks of is not counted: no key may be that of another.
        let claims = self.claims_client();
        let key = match claims {
            Some(account) => Some(account_key(account).into_owned()),
            None => decoded("key", &self.key)?,
        };
        let address = self.address.clone().filter(|_| claims.is_none());
        Ok(EximCheck {
            spec: decoded("spec", &self.spec)?.ok_or(EximFault::NoSpec)?,
            key,
            unique: decoded("unique", &self.unique)?,
            address: address.filter(|address| !address.is_empty()),
            size: number(&self.size),
            local_part,
            domain,
        })
    }

    fn event(
        &self,
        stage: AclStage,
        interactive: bool,
        protocol: &[u8],
        recipient: Option<String>,
    ) -> Result<Event<String>, EximFault> {
        use AclStage as S;
        let known = |name, value| -> Result<_, EximFault> {
            Ok(decoded(name, value)?.filter(|text| !text.is_empty()).map(text))
        };
        let ascii = |value: &Option<Vec<u8>>| {
            let text = value.as_deref().unwrap_or_default();
            Some(String::from_utf8_lossy(text).into_owned()).filter(|text| !text.is_empty())
        };
        let account = self.claims_client();
        let client = match ascii(&self.address).filter(|_| account.is_none()) {
            None => Origin::Program,
            Some(client) => Origin::of_client(address(&client)),
        };
        // Whose ident server would be asked is the account's choice as well.
        let local_account = match account {
            Some(account) => Some(name_of(account)),
            None => known("ident", &self.ident)?,
        };
        let is_of_message = stage.has_all_recipients()
            || matches!(stage, S::Mail | S::Rcpt | S::Outside)
            || stage == S::NotQuit && number::<u64>(&self.number).is_some_and(|n| n > 0);
        let sender = known("sender", &self.sender)?;
        let has_recipient = matches!(stage, S::Rcpt | S::Prdr | S::Outside);
        let event = Event {
            auth: known("login", &self.login)?,
            local_account,
            script: known("script", &self.script)?,
            client,
            helo: known("helo", &self.helo)?,
            protocol: Some(String::from_utf8_lossy(protocol).into_owned())
                .filter(|protocol| !protocol.is_empty()),
            sender: sender.or_else(|| is_of_message.then(String::new)),
            recipient: recipient.filter(|_| has_recipient),
            package: known("package", &self.package)?,
            message_id: ascii(&self.id),
            ..Event::default()
        };
        let is_systems = || {
            (stage != S::Outside || event.message_id.is_some())
                && !is_of_dialogue(interactive, protocol)
                && self.is_system(&self.originator)
        };
        let circumstances = Circumstances {
            has_used_auth: self.authenticated.as_ref().is_some_and(|flag| !flag.is_empty()),
            server: &|| ascii(&self.server).and_then(|text| address(&text)),
            handed_over: HandedOver::ByProcess(&is_systems),
            in_router: stage == S::Outside,
        };
        Ok(event.clone().complete(&circumstances))
    }

    /// Whether a header shows that a program wrote the message, or that a list sends it.
    fn is_marked(&self) -> Result<bool, EximFault> {
        let headers = [
            ("Auto-Submitted", &self.auto_submitted),
            ("Precedence", &self.precedence),
            ("List-Id", &self.list_id),
        ];
        for (name, value) in headers {
            let value = decoded(name, value)?.filter(|value| !value.is_empty());
            if value.is_some_and(|value| marks(name.as_bytes(), &value)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether no mail is handled: an address is tested (`exim -bt`), or a string expanded, by
    /// another than root and Exim. That a session is a test (`-bh`) is proved by nothing.
    fn only_looks(&self, interactive: bool, has_id: bool, protocol: &[u8]) -> bool {
        let is = |value: &Option<Vec<u8>>| value.as_ref().is_some_and(|text| !text.is_empty());
        // Whatever the protocol is said to be (`-oMr`), a router with no message tests an address.
        let handles_no_mail = !has_id && (is(&self.router) || !interactive && protocol.is_empty());
        handles_no_mail && !self.is_system(&self.caller)
    }

    /// Who runs the Exim that asks, or has handed over the message that it delivers.
    fn caller(&self) -> Caller {
        let of = |value: &'_ Option<Vec<u8>>| value.as_deref().unwrap_or_default().to_owned();
        let [caller, originator] = [&self.caller, &self.originator].map(of);
        Caller::of(&caller, &originator, &of(&self.exim), &of(&self.serving))
    }

    /// The account that hands over what it says to be from a client of its own.
    fn claims_client(&self) -> Option<u32> {
        let has_client = self.address.as_ref().is_some_and(|address| !address.is_empty());
        self.caller().account().filter(|_| has_client)
    }

    /// Whether a user id is root's or that of Exim's own user.
    fn is_system(&self, user: &Option<Vec<u8>>) -> bool {
        user.as_ref().is_some_and(|user| {
            user == b"0" || !user.is_empty() && self.exim.as_ref() == Some(user)
        })
    }
}

/// The name of an account, or its number.
fn name_of(account: u32) -> String {
    let name = users::name_of(account).map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| account.to_string())
}

/// The bytes of a value in base64.
fn decoded(name: &'static str, value: &Option<Vec<u8>>) -> Result<Option<Vec<u8>>, EximFault> {
    let decode = |text: &Vec<u8>| STANDARD.decode(text).map_err(|_| EximFault::NotBase64(name));
    value.as_ref().map(decode).transpose()
}

fn text(bytes: Vec<u8>) -> String {
    written(bytes.into()).into_owned()
}

fn number<T: std::str::FromStr>(value: &Option<Vec<u8>>) -> Option<T> {
    str::from_utf8(value.as_deref()?).ok()?.parse().ok()
}

/// `$local_part@$domain`
fn recipient(local_part: &[u8], domain: &[u8]) -> Option<String> {
    let is_there = !local_part.is_empty() || !domain.is_empty();
    let [local_part, domain] = [local_part, domain].map(|bytes| written(bytes.into()));
    is_there.then(|| [local_part, Cow::Borrowed("@"), domain].concat())
}

/// The addresses of `$recipients`, between which there is `, `. A quoted local part may have that
/// too.
fn addresses(list: &[u8]) -> Vec<String> {
    let (mut all, mut start, mut at) = (Vec::new(), 0, 0);
    let mut quoted = false;
    while let Some(&byte) = list.get(at) {
        match byte {
            b'\\' if quoted => at += 1,
            b'"' => quoted = !quoted,
            b',' if !quoted && list.get(at + 1) == Some(&b' ') => {
                all.push(text(list.get(start..at).unwrap_or_default().to_owned()));
                start = at + 2;
                at += 1;
            }
            _ => {}
        }
        at += 1;
    }
    match list.get(start..) {
        Some(last) if !last.is_empty() => all.push(text(last.to_owned())),
        _ => {}
    }
    all
}

#[cfg(test)]
mod tests;
