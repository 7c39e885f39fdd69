//! Tokens: by one of them a program or a person asks the web service.
//!
//! A token is 32 random bytes. The file keeps its SHA-256, which is of no use to who reads it: so
//! random a text cannot be guessed from its hash, and the file may be readable by everyone. The
//! web service and the broker each look a token up for themselves.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::TryRng as _;
use rand::rngs::SysRng;
use sha2::{Digest as _, Sha256};

use super::role::{Role, is_name};
pub use crate::standing::scope::Scope;
use crate::store::FOREVER;
use crate::sys::lock::{LockKind, lock};
use crate::sys::small_file;
use crate::text;
use crate::toml_file::Word as _;
use crate::versions::{USE_THE_LATER, Versions};

/// Where the tokens are.
pub const FILE: &str = "/etc/exirate/web.tokens";
/// What a token begins with, so that programs that search for secrets find it.
const PREFIX: &str = "exirate_";
/// Random bytes of a token.
const SECRET_BYTES: usize = 32;
/// The most tokens, and the largest file.
const MOST: usize = 1000;
const FILE_BYTES: u64 = 256 << 10;
/// How long another process that changes the file is waited for.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// The first line of the file, before the version of the format.
const FIRST: &str = "# exirate web.tokens ";
/// The later one, with scopes, is written only where a token has one: an earlier program then knows
/// no token, and never takes one for a token without bounds.
const VERSION: u32 = 2;
const VERSIONS: Versions = Versions { oldest: 1, newest: VERSION };
/// The second.
const HEAD: &str = "# The tokens of exirate's web service, by `exirate web token`: NAME ROLE SINCE \
                    UNTIL SHA-256. The times are seconds since 1970; - is forever.\n";

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its name, which the audit log has.
    pub name: String,
    /// What its holder may do.
    pub role: Role,
    /// When it was made.
    pub since: i64,
    /// When it ends; [`FOREVER`] if never.
    pub until: i64,
    /// Whose identities it is for; all, if none.
    pub scope: Option<Scope>,
    hash: [u8; 32],
}

/// Why a token is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRefusal {
    /// There is none with this secret.
    Unknown,
    /// It has ended.
    Ended,
}

/// All tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens(Vec<Token>);

impl Tokens {
    /// Makes a token, and returns its secret, which is known to nobody else.
    ///
    /// # Errors
    /// The name is taken or none, or there are too many: in words.
    pub fn add(
        &mut self,
        name: &str,
        role: Role,
        since: i64,
        until: i64,
        scope: Option<Scope>,
    ) -> Result<String, String> {
        if !is_name(name) {
            return Err(format!(
                "{name:?} is not a name of a token; expected up to 64 letters, digits and ._-@+"
            ));
        }
        if self.0.iter().any(|one| one.name == name) {
            return Err(format!("there is a token {name}: remove it first, or use another name"));
        }
        if self.0.len() >= MOST {
            return Err(format!("there are {MOST} tokens, and may be no more"));
        }
        let mut bytes = [0; SECRET_BYTES];
        SysRng.try_fill_bytes(&mut bytes).map_err(|error| format!("no random bytes: {error}"))?;
        let secret = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
        let hash = Sha256::digest(&secret).into();
        self.0.push(Token { name: name.to_owned(), role, since, until, scope, hash });
        Ok(secret)
    }

    /// Removes the token of this name; whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|one| one.name != name);
        self.0.len() < before
    }

    /// All of them, in the order in which they were made.
    pub fn all(&self) -> impl Iterator<Item = &Token> {
        self.0.iter()
    }

    /// The token with this secret. It is found by its hash, so that the time this takes says
    /// nothing of any secret.
    ///
    /// # Errors
    /// There is none, or it has ended.
    pub fn find(&self, secret: &str, now: i64) -> Result<&Token, TokenRefusal> {
        let hash: [u8; 32] = Sha256::digest(secret).into();
        let found = self.0.iter().find(|one| one.hash == hash).ok_or(TokenRefusal::Unknown)?;
        if found.until <= now { Err(TokenRefusal::Ended) } else { Ok(found) }
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let version = text.lines().next().and_then(|line| Versions::read(FIRST, line));
        let known = VERSIONS.known().check(version.unwrap_or(VERSIONS.oldest));
        known.map_err(|other| format!("it {other}: {USE_THE_LATER}"))?;
        let mut all = Self::default();
        for (at, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let token = parse_line(line).ok_or_else(|| {
                format!("line {}: expected NAME ROLE SINCE UNTIL SHA-256 [SCOPE]", at + 1)
            })?;
            if all.0.iter().any(|one| one.name == token.name) {
                return Err(format!("line {}: the name {} is taken", at + 1, token.name));
            }
            all.0.push(token);
        }
        if all.0.len() > MOST {
            return Err(format!("it has more than {MOST} tokens"));
        }
        Ok(all)
    }

    /// As a file has them.
    #[must_use]
    pub fn text(&self) -> String {
        let is_later = self.0.iter().any(|one| one.scope.is_some());
        let version = if is_later { VERSIONS.newest } else { VERSIONS.oldest };
        let mut text = format!("{FIRST}{version}\n{HEAD}");
        for Token { name, role, since, until, scope, hash } in &self.0 {
            let until = if *until == FOREVER { "-".to_owned() } else { until.to_string() };
            let (role, hash) = (role.word(), text::hex(hash));
            let scope = scope.as_ref().map_or_else(String::new, |scope| format!(" {scope}"));
            text += &format!("{name} {role} {since} {until} {hash}{scope}\n");
        }
        text
    }
}

fn parse_line(line: &str) -> Option<Token> {
    let mut words = line.splitn(6, ' ');
    let [name, role, since, until, hash] = std::array::from_fn(|_| words.next());
    let (name, role, until, hash) = (name?, role?, until?, hash?);
    if !is_name(name) {
        return None;
    }
    let scope = match words.next() {
        Some(scope) => Some(Scope::parse(scope)?),
        None => None,
    };
    let until = if until == "-" { FOREVER } else { until.parse().ok()? };
    let hash = hash_of_hex(hash)?;
    Some(Token {
        name: name.to_owned(),
        role: Role::of(role)?,
        since: since?.parse().ok()?,
        until,
        scope,
        hash,
    })
}

fn hash_of_hex(digits: &str) -> Option<[u8; 32]> {
    if digits.len() != 64 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(hash)
}

/// Reads the tokens at `path`; none if there is no file.
///
/// # Errors
/// The file cannot be read or trusted: in words.
pub fn read(path: &Path) -> Result<Tokens, String> {
    let shown = path.display();
    let failed = |error: &dyn std::fmt::Display| format!("{shown}: {error}");
    let Some((mut file, _)) = open(path)? else { return Ok(Tokens::default()) };
    let mut text = String::new();
    (&mut file).take(FILE_BYTES + 1).read_to_string(&mut text).map_err(|error| failed(&error))?;
    if text.len() as u64 > FILE_BYTES {
        return Err(failed(&"too large for a file of tokens"));
    }
    Tokens::parse(&text).map_err(|why| failed(&why))
}

/// Opens the file, and says how it is told from a later one.
fn open(path: &Path) -> Result<Option<(File, Stamp)>, String> {
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let file = match small_file::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let info = file.metadata().map_err(failed)?;
    let own = rustix::process::geteuid().as_raw();
    if !info.is_file() || info.mode() & 0o022 != 0 || (info.uid() != 0 && info.uid() != own) {
        let fault = "must be a file of root that nobody else can write to";
        return Err(format!("{}: {fault}", path.display()));
    }
    let stamp = (info.dev(), info.ino(), info.modified().ok(), info.len());
    Ok(Some((file, stamp)))
}

/// Device, inode, time and size.
type Stamp = (u64, u64, Option<SystemTime>, u64);

/// The tokens of a file as it is now: what `exirate web token remove` removes is of no use from
/// then on.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    known: Option<Stamp>,
    tokens: Tokens,
}

impl TokenFile {
    /// That at `path`.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), known: None, tokens: Tokens::default() }
    }

    /// The tokens.
    ///
    /// # Errors
    /// The file cannot be read or trusted, in words: then nobody has a token.
    pub fn current(&mut self) -> Result<&Tokens, String> {
        let stamp = open(&self.path)?.map(|(_, stamp)| stamp);
        if stamp != self.known {
            self.tokens = read(&self.path)?;
            self.known = stamp;
        }
        Ok(&self.tokens)
    }
}

/// Changes the tokens at `path` in one step, and returns what `change` does. With an error of
/// `change`, they stay as they are.
///
/// # Errors
/// That of `change`, or the file cannot be read or written: in words.
pub fn change<T>(
    path: &Path,
    change: impl FnOnce(&mut Tokens) -> Result<T, String>,
) -> Result<T, String> {
    let failed = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    let lock_path = small_file::with_suffix(path, ".lock");
    let lock_file = small_file::open_lock(&lock_path).map_err(|error| failed(&lock_path, error))?;
    let guard = lock(&lock_file, LockKind::Exclusive, LOCK_TIMEOUT);
    let _guard = guard
        .map_err(|error| failed(&lock_path, error))?
        .ok_or_else(|| format!("{}: locked by another process", lock_path.display()))?;
    let mut tokens = read(path)?;
    let result = change(&mut tokens)?;
    // Readable by everyone: the two services have users of their own.
    let written = small_file::replace(path, 0o644, tokens.text().as_bytes(), true);
    written.map_err(|error| failed(path, error))?;
    Ok(result)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_is_found_until_it_ends_or_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.tokens");
        let mut file = TokenFile::new(&path);
        assert_eq!(file.current().unwrap().find("x", 0), Err(TokenRefusal::Unknown));
        let secret = change(&path, |all| all.add("desk", Role::Help, 100, 200, None)).unwrap();
        assert!(secret.starts_with(PREFIX) && secret.len() == PREFIX.len() + 43, "{secret}");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("desk help 100 200 ") && !text.contains(&secret[8..]), "{text}");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
        let tokens = file.current().unwrap();
        let found = tokens.find(&secret, 199).unwrap();
        assert_eq!((found.name.as_str(), found.role), ("desk", Role::Help));
        assert_eq!(tokens.find(&secret, 200), Err(TokenRefusal::Ended));
        assert_eq!(tokens.find(&secret[..secret.len() - 1], 199), Err(TokenRefusal::Unknown));
        let again = change(&path, |all| all.add("desk", Role::View, 1, 2, None)).unwrap_err();
        assert!(again.contains("there is a token desk"), "{again}");
        assert_eq!(change(&path, |all| Ok(all.remove("desk"))), Ok(true));
        assert_eq!(file.current().unwrap().find(&secret, 199), Err(TokenRefusal::Unknown));
        assert_eq!(change(&path, |all| Ok(all.remove("desk"))), Ok(false));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut all = Tokens::default();
        all.add("panel", Role::View, 1, FOREVER, None).unwrap();
        all.add("desk@example.org", Role::Help, 2, 3, None).unwrap();
        assert!(all.text().starts_with("# exirate web.tokens 1\n"), "0.1.0 reads it");
        assert_eq!(Tokens::parse(&all.text()).as_ref(), Ok(&all));
        for (name, scope) in [
            ("acme", Scope::customer("Acme & Sons, Ltd.")),
            ("two", Scope::domains(["Example.org.", "m\u{fc}nchen.example"])),
        ] {
            all.add(name, Role::Help, 2, 3, Some(scope.unwrap())).unwrap();
        }
        let text = all.text();
        assert!(text.starts_with("# exirate web.tokens 2\n"), "0.1.0 refuses it: {text}");
        assert!(text.ends_with(" domain example.org xn--mnchen-3ya.example\n"), "{text}");
        assert_eq!(Tokens::parse(&text).as_ref(), Ok(&all));
        let later = text.replacen(" 2\n", " 3\n", 1) + "what one had not\n";
        let why = Tokens::parse(&later).unwrap_err();
        assert!(why.starts_with("it is of format version 3, and this exirate knows"), "{why}");
    }

    #[test]
    fn a_file_that_is_not_right_gives_nobody_a_token() {
        let hash = "0".repeat(64);
        for line in [
            "desk".to_owned(),
            format!("desk help 1 2 {hash} more"),
            format!("desk help 1 2 {hash} "),
            format!("desk help 1 2 {hash} customer "),
            format!("desk help 1 2 {hash} customer  acme"),
            format!("desk help 1 2 {hash} domain a.test  b.test"),
            format!("desk help 1 2 {hash} domain b.test a.test"),
            format!("desk help 1 2 {hash} domain *.test"),
            format!("desk help 1 2 {hash} domain x@a.test"),
            format!("desk help 1 2 {hash} user a"),
            format!("desk root 1 2 {hash}"),
            format!("desk help 1 2 {}", "é".repeat(32)),
            format!("desk help 1 x {hash}"),
            format!("desk  help 1 2 {hash}"),
            format!("desk help 1 2 {hash}\ndesk view 1 2 {hash}"),
        ] {
            assert!(Tokens::parse(&line).is_err(), "{line}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.tokens");
        small_file::replace(&path, 0o644, Tokens::default().text().as_bytes(), false).unwrap();
        assert!(read(&path).is_ok());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(read(&path).unwrap_err().contains("nobody else can write"));
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(read(&path).is_err());
    }
}
