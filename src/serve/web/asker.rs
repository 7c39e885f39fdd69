//! Who asks: by a token, or as a user of this machine who has connected, or as a person named by
//! the proxy.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{self, HeaderName};
use hyper::http::request::Parts;
use rand::TryRng as _;
use rand::rngs::SysRng;
use sha2::{Digest as _, Sha256};
use tokio::time::sleep;

use super::broker::wire::Who;
use super::http::connection::Call;
use super::http::problem::{Problem, ProblemKind};
use super::role::{Role, is_name};
use super::token::{TokenFile, TokenRefusal};
use crate::serve::config::Web;
use crate::serve::log::{Level, Log};
use crate::standing::scope::Scope;
use crate::sys::users;
use crate::text::time::now;

/// The cookie that has a token, where the browser knows the service by a name of this machine alone;
/// and by another name: of a name of this form, browsers keep only cookies that the host itself has
/// set, by TLS, so that no other host of its domain can put its own token in place.
const COOKIE: &str = "exirate";
const HOST_COOKIE: &str = "__Host-exirate";

/// The name of the cookie that has a token.
pub(super) fn cookie_name(is_local: bool) -> &'static str {
    if is_local { COOKIE } else { HOST_COOKIE }
}

/// The header in which the proxy names a person.
const PERSON: HeaderName = HeaderName::from_static("x-remote-user");
/// The header with the token against forged requests.
const FORGED: HeaderName = HeaderName::from_static("x-csrf-token");
/// What browsers say of where a request comes from.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// How long the reply to a token that is of no use is kept back, and how many may wait so.
const PENALTY: Duration = Duration::from_secs(1);
const PENALTIES_MAX: usize = 64;

/// Somebody who asks.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    /// `token:desk` or `person:alice`.
    pub(super) name: String,
    pub(super) role: Role,
    /// When his token ends.
    pub(super) until: Option<i64>,
    /// Whose identities he may see.
    pub(super) scope: Option<Scope>,
    /// As the broker takes it.
    pub(super) who: Who,
    /// A browser sends by itself what he is known by, so that a page of another site could ask in
    /// his name.
    is_automatic: bool,
}

/// Finds out who asks.
pub(super) struct Askers {
    tokens: RefCell<TokenFile>,
    /// Of the tokens against forged requests: of this process alone.
    key: [u8; 32],
    penalties: Cell<usize>,
    /// How many tokens were of no use.
    pub(super) failures: Cell<u64>,
    log: Rc<Log>,
}

impl Askers {
    pub(super) fn new(web: &Web, log: Rc<Log>) -> Result<Self, String> {
        let mut key = [0; 32];
        SysRng.try_fill_bytes(&mut key).map_err(|error| format!("no random bytes: {error}"))?;
        Ok(Self {
            tokens: RefCell::new(TokenFile::new(&web.tokens)),
            key,
            penalties: Cell::new(0),
            failures: Cell::new(0),
            log,
        })
    }

    /// Another configuration is in use.
    pub(super) fn set(&self, web: &Web) {
        self.tokens.replace(TokenFile::new(&web.tokens));
    }

    /// Who asks; a token that is of no use is replied to late.
    pub(super) async fn find(
        &self,
        web: &Web,
        call: &Call,
        is_local: bool,
    ) -> Result<Asker, Problem> {
        self.slowed(self.look_up(web, call, is_local)).await
    }

    /// Who has this token; as [`Askers::find`].
    pub(super) async fn of_secret(&self, secret: &str) -> Result<Asker, Problem> {
        self.slowed(self.of_token(secret, true)).await
    }

    async fn slowed(&self, found: Result<Asker, Problem>) -> Result<Asker, Problem> {
        match found {
            Err(problem) if problem.kind == ProblemKind::Unknown => {
                self.failures.set(self.failures.get() + 1);
                let text = format_args!("somebody unknown has asked: {}", problem.detail);
                self.log.write_seldom("requests of somebody unknown", Level::Notice, text);
                if self.penalties.get() >= PENALTIES_MAX {
                    let detail = "too many requests without a token: try again in a second";
                    return Err(Problem::new(ProblemKind::Busy, detail));
                }
                self.penalties.set(self.penalties.get() + 1);
                let _guard = Penalty(&self.penalties);
                sleep(PENALTY).await;
                Err(problem)
            }
            found => found,
        }
    }

    fn look_up(&self, web: &Web, call: &Call, is_local: bool) -> Result<Asker, Problem> {
        let headers = &call.head.headers;
        if let Some(value) = headers.get(header::AUTHORIZATION) {
            let bearer = value.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
            let detail = "expected Authorization: Bearer TOKEN";
            let secret = bearer.ok_or_else(|| Problem::new(ProblemKind::Unknown, detail))?;
            return self.of_token(secret, false);
        }
        if let Some(secret) = cookie(headers, cookie_name(is_local)) {
            return self.of_token(&secret, true);
        }
        let unknown = |detail: &str| Problem::new(ProblemKind::Unknown, detail);
        let (name, is_user) = match call.peer {
            None => return Err(unknown("expected a token")),
            Some((uid, _)) if Some(uid) == web.proxy => {
                // Of two, one may be from who asks the proxy.
                let mut all = headers.get_all(PERSON).iter();
                let named = all.next().filter(|_| all.next().is_none());
                let named = named.and_then(|name| name.to_str().ok());
                let detail = "expected a token, or one person named by the proxy in X-Remote-User";
                (named.ok_or_else(|| unknown(detail))?.to_owned(), false)
            }
            Some((uid, _)) => {
                let name = users::name_of(uid).and_then(|name| name.into_string().ok());
                (name.ok_or_else(|| unknown("expected a token: the user has no name"))?, true)
            }
        };
        // A name of other signs may be in a group; the audit log cannot have it.
        let role = web.role_of(&name, is_user).filter(|_| is_name(&name)).ok_or_else(|| {
            let shown = if is_name(&name) { &name } else { "this person" };
            let detail =
                format!("{shown} is neither in view nor in help of [web]; expected a token");
            unknown(&detail)
        })?;
        let who = if is_user { Who::User } else { Who::Person }(name.clone());
        Ok(Asker {
            name: format!("person:{name}"),
            role,
            until: None,
            scope: None,
            who,
            is_automatic: true,
        })
    }

    /// Who has a token.
    fn of_token(&self, secret: &str, is_automatic: bool) -> Result<Asker, Problem> {
        let mut file = self.tokens.borrow_mut();
        let tokens = file.current().map_err(|why| Problem::new(ProblemKind::Unavailable, why))?;
        match tokens.find(secret, now().seconds) {
            Ok(token) => Ok(Asker {
                name: format!("token:{}", token.name),
                role: token.role,
                until: Some(token.until),
                scope: token.scope.clone(),
                who: Who::Token(secret.to_owned()),
                is_automatic,
            }),
            Err(TokenRefusal::Unknown) => {
                Err(Problem::new(ProblemKind::Unknown, "there is no such token"))
            }
            Err(TokenRefusal::Ended) => {
                Err(Problem::new(ProblemKind::Unknown, "the token has ended"))
            }
        }
    }

    /// Whether he still is who he was when he asked: a stream lasts longer than a request.
    pub(super) fn is_still(&self, web: &Web, asker: &Asker) -> bool {
        match &asker.who {
            Who::Token(secret) => {
                let found = self.of_token(secret, asker.is_automatic);
                found.is_ok_and(|found| found.scope == asker.scope)
            }
            Who::User(name) => web.role_of(name, true).is_some(),
            Who::Person(name) => web.role_of(name, false).is_some(),
        }
    }

    /// The token that a page has to send with each change by `asker`.
    pub(super) fn against_forgery(&self, asker: &Asker) -> String {
        let hash = Sha256::new().chain_update(self.key).chain_update(&asker.name).finalize();
        hash.iter().take(16).fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Makes sure that the change is asked for by a page of this service, or by a program.
    pub(super) fn check_forgery(&self, asker: &Asker, headers: &HeaderMap) -> Result<(), Problem> {
        if !asker.is_automatic {
            return Ok(());
        }
        let sent = headers.get(FORGED).map(|value| value.as_bytes()).unwrap_or_default();
        let expected = self.against_forgery(asker);
        // By their hashes, so that the time says nothing of how much is right.
        if Sha256::digest(sent) == Sha256::digest(expected) {
            return Ok(());
        }
        let detail = "expected X-CSRF-Token with what /api/v1/me has in csrf";
        Err(Problem::new(ProblemKind::Forged, detail))
    }
}

struct Penalty<'c>(&'c Cell<usize>);

impl Drop for Penalty<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// The cookie of this name.
fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut each = all.flat_map(|all| all.split(';'));
    each.find_map(|one| one.trim().strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
}

/// The name of the host without its port, of `name:port` or `[::1]:port`; `None` if it is neither.
fn host_of(authority: &str) -> Option<&str> {
    let end = match authority.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, rest) = authority.split_at_checked(end)?;
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let is_whole = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
    is_whole.then_some(host)
}

/// Whether a request by this name of the host reaches this machine alone, whatever other names
/// lead here.
fn is_local(host: &str) -> bool {
    ["localhost", "127.0.0.1", "[::1]"].contains(&host)
}

/// Makes sure that the browser knows this service by a name that it has: else a page of another
/// site, whose name suddenly leads here, could read it (DNS rebinding). Returns whether the name is
/// of this machine alone.
pub(super) fn check_host(web: &Web, head: &Parts) -> Result<bool, Problem> {
    let mut all = head.headers.get_all(header::HOST).iter();
    let (first, more) = (all.next(), all.next());
    let authority = first.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let host = host_of(authority).unwrap_or_default().to_ascii_lowercase();
    let known = is_local(&host) || web.hosts.contains(&host);
    if !known || more.is_some() {
        let detail = "expected a Host header with localhost, or a name of hosts in [web]";
        return Err(Problem::new(ProblemKind::Host, detail));
    }
    Ok(is_local(&host))
}

/// Makes sure that it is not a page of another site that asks.
pub(super) fn check_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name| headers.get(name).and_then(|value: &header::HeaderValue| value.to_str().ok());
    let forged =
        || Problem::new(ProblemKind::Forged, "the request comes from a page of another site");
    if text(SITE).is_some_and(|site| !["same-origin", "none"].contains(&site)) {
        return Err(forged());
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    let host = text(header::HOST).unwrap_or_default();
    match origin {
        Some((_, from)) if from.eq_ignore_ascii_case(host) => Ok(()),
        _ => Err(forged()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_a_name_and_perhaps_a_port() {
        for (authority, host) in [
            ("localhost", Some("localhost")),
            ("localhost:8080", Some("localhost")),
            ("localhost:", Some("localhost")),
            ("[::1]:80", Some("[::1]")),
            ("[::1]", Some("[::1]")),
            ("[::1", None),
            ("[::1].evil", None),
            ("[::1]evil:80", None),
            ("[::1]:80.evil", None),
            ("localhost:80.evil", None),
            ("localhost:evil", None),
            ("localhost:80:80", None),
            ("", Some("")),
            (":80", Some("")),
            ("desk.example.org:443", Some("desk.example.org")),
        ] {
            assert_eq!(host_of(authority), host, "{authority}");
        }
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        assert_eq!(cookie(&headers, COOKIE), None);
        headers.append(header::COOKIE, "exirate2=a; xexirate=b".parse().unwrap());
        assert_eq!(cookie(&headers, COOKIE), None);
        headers.append(header::COOKIE, "a=b; exirate=x=y".parse().unwrap());
        assert_eq!(cookie(&headers, COOKIE).as_deref(), Some("x=y"));
        assert_eq!(cookie(&headers, HOST_COOKIE), None);
    }

    #[test]
    fn a_page_of_another_site_is_known() {
        let with = |all: &[(&str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in all {
                let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
                headers.insert(name, value.parse().unwrap());
            }
            check_origin(&headers).is_ok()
        };
        assert!(with(&[("host", "a.test")]));
        assert!(with(&[("host", "a.test"), ("origin", "https://a.test")]));
        assert!(with(&[("host", "a.test"), ("sec-fetch-site", "same-origin")]));
        for (name, value) in [
            ("origin", "https://b.test"),
            ("origin", "null"),
            ("origin", "https://a.test:444"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert!(!with(&[("host", "a.test"), (name, value)]), "{name}: {value}");
        }
    }
}
