//! `[redis]`: where the rates are kept.

use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::de::DeTable;

use super::keys::{self, Key, keys};
use super::kinds;
use super::server::{REDIS_PORT, SENTINEL_PORT, in_clear_text, parse};
use crate::redis::{Secret, Server, Servers, Settings, Transport};
use crate::sys::files::{self, FileInfo, REGULAR};
use crate::toml_file::reader::{Reader, Value};

/// The variable in which systemd names the directory of a unit's credentials.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";
/// The longest password.
const PASSWORD_MAX: usize = 4096;
/// How long Redis may take, if the file does not say.
const DEADLINE: Duration = Duration::from_millis(100);
/// How long it may take at most.
const DEADLINE_MAX: Duration = Duration::from_secs(10);

/// The ways to name the servers, of which one is chosen.
const FORMS: [&str; 3] = ["server", "sentinel", "cluster"];

/// What is read of `[redis]`, without what files contain.
pub(super) struct Draft {
    servers: Option<Servers>,
    deadline: Duration,
}

/// The keys of `[redis]`.
pub(super) const KEYS: &[Key<Draft>] = keys! {
    /// One server: `redis://HOST:PORT`, `rediss://HOST:PORT` for TLS, `unix:///PATH`; `/NUMBER` at
    /// the end names a database
    server => servers = (), one;
    /// `{ master = "mymaster", servers = ["redis://192.0.2.1:26379", …] }`
    sentinel => servers = (), sentinel;
    /// Some of the nodes of a Redis Cluster: `["redis://192.0.2.1", …]`
    cluster => servers = (), cluster;
    /// The ACL user
    user = ("the default user"), kinds::elsewhere;
    /// A file whose first line is the password
    password_file = ("no password"), kinds::elsewhere;
    /// The certificates for `rediss://`, in PEM
    ca_file = ("those that browsers know"), kinds::elsewhere;
    /// How long the agent waits for a reply of Redis; a request may set less
    deadline => deadline = "100ms", kinds::duration("100ms", DEADLINE_MAX);
};

fn user(reader: &mut Reader<'_>, value: Value<'_>) -> Option<String> {
    let name = reader.string(value, "\"exirate\"")?;
    if name.is_empty() || name.contains(char::is_whitespace) {
        reader.error(value, "not the name of a user; expected such as exirate");
    }
    Some(name.to_owned())
}

/// Reads `[redis]`, for the web service with what `web` says of it.
pub(super) fn read(
    reader: &mut Reader<'_>,
    value: Value<'_>,
    path: &Path,
    web: Option<&DeTable<'_>>,
) -> Option<Settings> {
    let mut draft = Draft { servers: None, deadline: DEADLINE };
    let table = keys::read(reader, value, "[redis]", KEYS, &mut draft)?;
    one_form(reader, value, table);
    let (of, user_key, key) = match web.filter(|web| web.contains_key("redis_user")) {
        Some(web) => (web, "redis_user", "redis_password_file"),
        None => (table, "user", "password_file"),
    };
    let file = |name: &str| beside(path, name);
    let user = of.get(user_key).and_then(|value| user(reader, value));
    let password =
        kinds::text("/etc/exirate/redis.password", |name| secret(credential(&file(name))));
    let password = of.get(key).and_then(|value| password(reader, value));
    let ca = kinds::text("/etc/ssl/certs/ca-certificates.crt", |name| certificates(&file(name)));
    let ca = table.get("ca_file").and_then(|value| ca(reader, value));
    if user.is_some() && !of.contains_key(key) {
        reader.error(value, format!("the user has no password; add {key} = \"…\""));
    }
    let servers = draft.servers?;
    warn(reader, value, &servers, password.is_some(), ca.is_some());
    Some(Settings { servers, user, password, ca, deadline: draft.deadline })
}

/// Reports that no form, or more than one, is chosen.
fn one_form(reader: &mut Reader<'_>, at: Value<'_>, table: &DeTable<'_>) {
    let mut chosen: Vec<_> =
        table.iter().filter(|(key, _)| FORMS.contains(&key.get_ref().as_ref())).collect();
    chosen.sort_by_key(|(key, _)| key.span().start);
    match chosen[..] {
        [] => reader.error(
            at,
            "the servers are missing; write server = \"redis://192.0.2.1:6379\", \
             sentinel = { master = \"…\", servers = […] } or cluster = […]",
        ),
        [_] => {}
        [(one, _), .., (key, _)] => {
            let (one, other) = (one.get_ref(), key.get_ref());
            let message = format!("{other} and {one} exclude each other; remove one of them");
            reader.error(key, message);
        }
    }
}

/// What works, but is probably not meant.
fn warn(reader: &mut Reader<'_>, at: Value<'_>, servers: &Servers, password: bool, ca: bool) {
    let at = reader.at(at);
    let clear: Vec<String> = servers
        .all()
        .iter()
        .filter(|server| in_clear_text(server))
        .map(ToString::to_string)
        .collect();
    if password && !clear.is_empty() {
        let message = format!(
            "the password and all keys go to {} in clear text; use rediss:// unless the network \
             is safe",
            clear.join(" and ")
        );
        reader.diagnostics.warning(at, message);
    }
    if ca && !servers.all().iter().any(Server::is_tls) {
        reader.diagnostics.warning(at, "ca_file has no effect without rediss:// addresses");
    }
}

/// `cluster = […]`
fn cluster(reader: &mut Reader<'_>, value: Value<'_>) -> Option<Option<Servers>> {
    let nodes = several(reader, value, REDIS_PORT);
    Some((!nodes.is_empty()).then_some(Servers::Cluster(nodes)))
}

/// `sentinel = { master = "…", servers = […] }`
fn sentinel(reader: &mut Reader<'_>, value: Value<'_>) -> Option<Option<Servers>> {
    const KEYS: &[&str] = &["master", "servers"];
    let example = "{ master = \"mymaster\", servers = [\"redis://192.0.2.1:26379\"] }";
    let (mut master, mut sentinels) = (None, Vec::new());
    let table = reader.table(value, example)?;
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "master" => master = reader.string(value, "\"mymaster\"").map(str::to_owned),
            "servers" => sentinels = several(reader, value, SENTINEL_PORT),
            _ => reader.unknown_key(key, "in sentinel", KEYS),
        }
    }
    for key in KEYS {
        if !table.contains_key(*key) {
            reader.error(value, format!("{key} is missing; expected such as {example}"));
        }
    }
    Some(Some(Servers::Sentinel { master: master?, sentinels }))
}

/// `server = "…"`
fn one(reader: &mut Reader<'_>, value: Value<'_>) -> Option<Option<Servers>> {
    if let Some(array) = value.get_ref().as_array() {
        let hint =
            if array.len() > 1 { "; for a Redis Cluster, write cluster = […]" } else { "" };
        reader.error(value, format!("expected one address, found an array{hint}"));
        return None;
    }
    let server = kinds::text("redis://192.0.2.1:6379", |text| parse(text, REDIS_PORT));
    Some(Some(Servers::Single(server(reader, value)?)))
}

/// Several addresses: all encrypted or none, each with the default database.
fn several(reader: &mut Reader<'_>, value: Value<'_>, port: u16) -> Vec<Server> {
    let mut servers: Vec<Server> = Vec::new();
    for (text, at) in reader.strings(value, "[\"redis://192.0.2.1\"]").unwrap_or_default() {
        match parse(text, port) {
            Ok(server) => {
                if let Some(fault) = odd(&server, &servers) {
                    reader.error(at, fault);
                }
                servers.push(server);
            }
            Err(message) => reader.error(at, message),
        }
    }
    servers
}

/// Why `server` cannot stand beside `others`.
fn odd(server: &Server, others: &[Server]) -> Option<&'static str> {
    if matches!(server.transport, Transport::Unix(_)) {
        return Some("a unix socket is for a single server: server = \"unix:///…\"");
    }
    if server.database != 0 {
        return Some("only a single server has numbered databases; remove the number");
    }
    let mixed = others.first().is_some_and(|first| first.is_tls() != server.is_tls());
    mixed.then_some("some addresses have rediss:// and some redis://; use one of them for all")
}

/// A file that is named in the one at `path`.
fn beside(path: &Path, name: &str) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).join(name)
}

/// The file at `path`; or its copy for this process, if systemd has made one: the unit has
/// `LoadCredential=` with the name of the file. Whether it is a copy.
fn credential(path: &Path) -> (PathBuf, bool) {
    let folder = std::env::var_os(CREDENTIALS).filter(|folder| !folder.is_empty());
    let copy = folder.zip(path.file_name()).map(|(folder, name)| Path::new(&folder).join(name));
    match copy.filter(|copy| copy.exists()) {
        Some(copy) => (copy, true),
        None => (path.to_owned(), false),
    }
}

/// The password in the first line of a file that only its owner can read.
fn secret((path, is_copy): (PathBuf, bool)) -> Result<Secret, String> {
    let path = &*path;
    let shown = path.display();
    let info = regular(path)?;
    // The copy is readable by this process's user only, by an access list.
    if info.mode & 0o077 != 0 && !is_copy {
        let mode = info.mode;
        return Err(format!(
            "other users can read {shown}, which has mode {mode:03o}: chmod 600 {shown}, and change \
             the password"
        ));
    }
    let text = limited(path, PASSWORD_MAX)?;
    let line = text.lines().next().unwrap_or_default();
    match line {
        "" => Err(format!("{shown} is empty; its first line is the password")),
        line => Ok(Secret(line.to_owned())),
    }
}

fn certificates(path: &Path) -> Result<Vec<u8>, String> {
    let text = limited(path, 4 << 20)?;
    if !text.contains("-----BEGIN CERTIFICATE-----") {
        return Err(format!("{} has no certificate in PEM form", path.display()));
    }
    Ok(text.into_bytes())
}

/// What is known of a regular file.
fn regular(path: &Path) -> Result<FileInfo, String> {
    let info = files::info_of(path).map_err(|error| cannot_read(path, &error))?;
    if info.kind != REGULAR {
        return Err(format!("{} is a {}, not a file", path.display(), info.kind));
    }
    Ok(info)
}

/// The text of a file of at most `most` bytes.
fn limited(path: &Path, most: usize) -> Result<String, String> {
    use std::io::Read as _;
    let shown = path.display();
    regular(path)?;
    let file = std::fs::File::open(path).map_err(|error| cannot_read(path, &error))?;
    let mut bytes = Vec::new();
    let read = file.take(most as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| cannot_read(path, &error))?;
    if bytes.len() > most {
        return Err(format!("{shown} is larger than {most} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| format!("{shown} is not UTF-8"))
}

fn cannot_read(path: &Path, error: &std::io::Error) -> String {
    let advice = match error.kind() {
        std::io::ErrorKind::PermissionDenied => "; it should belong to the user of this process",
        _ => "",
    };
    format!("cannot read {}: {error}{advice}", path.display())
}
