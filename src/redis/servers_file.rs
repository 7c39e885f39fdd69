//! The file in which an agent shows the servers that share the limits, beside its socket: for
//! users who cannot read its configuration, and programs without a network.

use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::servers::{KnownServers, agent_field, is_server_name, pairs, policy_field, whole};
use crate::sys::small_file;

/// The first word of the file. Another version is not read.
const VERSION: &str = "v=1";
/// The largest file that is read: 10,000 servers.
const BYTES_MAX: u64 = 8 << 20;
/// Its permissions: every user may read it.
const MODE: u32 = 0o644;

/// The file of the agent with this socket.
#[must_use]
pub fn servers_file(socket: &Path) -> PathBuf {
    socket.with_extension("servers")
}

/// Replaces the file. `own` is the name of this server, `local` the time of its clock.
///
/// # Errors
/// It is not written; the old one is unchanged.
pub fn write_servers(path: &Path, known: &KnownServers, own: &str, local: u64) -> io::Result<()> {
    let mut text = format!("{VERSION} now={} local={local} name={own}\n", known.now);
    for (name, server) in &known.servers {
        if let Some(agent) = &server.agent {
            text += &format!("{}\t{agent}\n", agent_field(name));
        }
        if let Some(policy) = &server.policy {
            text += &format!("{}\t{policy}\n", policy_field(name));
        }
    }
    small_file::replace(path, MODE, text.as_bytes(), false)
}

/// Reads the file, which must belong to root or to the user `owner`; the second is the name of
/// this server. `local` is the time of its clock.
///
/// # Errors
/// Why it cannot be used.
pub fn read_servers(path: &Path, owner: u32, local: u64) -> io::Result<(KnownServers, String)> {
    let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let file = small_file::open(path)?;
    let info = file.metadata()?;
    if !info.is_file() || !(info.uid() == 0 || info.uid() == owner) {
        return Err(wrong("it is not a file of the agent"));
    }
    let mut text = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut text)?;
    parse(&text, local).ok_or_else(|| wrong("it is damaged, or another release has written it"))
}

fn parse(text: &[u8], local: u64) -> Option<(KnownServers, String)> {
    let mut lines = text.strip_suffix(b"\n")?.split(|byte| *byte == b'\n');
    let head = pairs(lines.next()?)?;
    let number = |name| whole(head.get(name)?);
    let own = head.get("name").filter(|name| is_server_name(name))?;
    let now = number("now")?.saturating_add(local.saturating_sub(number("local")?));
    let fields = lines.map(|line| {
        let tab = line.iter().position(|byte| *byte == b'\t').unwrap_or(line.len());
        let (field, value) = line.split_at(tab);
        (field, value.get(1..).unwrap_or_default())
    });
    let (known, _) = KnownServers::read(now, fields);
    Some((known, (*own).to_owned()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use quickcheck::Arbitrary as _;

    use super::super::servers::{AgentState, KnownServer, PolicyState};
    use super::*;

    fn known() -> KnownServers {
        let agent = AgentState {
            release: "0.1.0".into(),
            id: 1,
            started: 5,
            seen: 990,
            decisions: 7,
            clock: -0.5,
            servers: 2,
            secret: None,
            conflict: false,
            primary: None,
            config: Some(7),
        };
        let policy = PolicyState { digest: "0123456789abcdef".repeat(2), written: 900 };
        let both = KnownServer { agent: Some(agent), policy: Some(policy.clone()) };
        let one = KnownServer { agent: None, policy: Some(policy) };
        let servers = [("mx1".to_owned(), both), ("mx2".to_owned(), one)].into();
        KnownServers { now: 1000, servers, unreadable: 0 }
    }

    #[test]
    fn what_is_written_is_read_and_grows_older() {
        let folder = tempfile::tempdir().unwrap();
        let path = servers_file(&folder.path().join("agent.sock"));
        assert!(path.ends_with("agent.servers"));
        for _ in 0..2 {
            write_servers(&path, &known(), "mx1", 500).unwrap();
        }
        let me = rustix::process::geteuid().as_raw();
        assert_eq!(read_servers(&path, me, 500).unwrap(), (known(), "mx1".to_owned()));
        let (later, _) = read_servers(&path, me, 560).unwrap();
        assert_eq!((later.now, later.servers.len()), (1060, 2));
        // The clock of this server was set back.
        assert_eq!(read_servers(&path, me, 100).unwrap().0.now, 1000);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, MODE);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// Whatever is in the file, only what is harmless to a terminal is returned.
    #[test]
    fn changed_bytes_are_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.servers");
        write_servers(&path, &known(), "mx1", 500).unwrap();
        let sound = fs::read(&path).unwrap();
        let is_plain = |text: &String| text.bytes().all(|byte| byte.is_ascii_graphic());
        let plain = |server: &KnownServer| {
            let release = server.agent.as_ref().map(|agent| &agent.release);
            let digest = server.policy.as_ref().map(|policy| &policy.digest);
            release.is_none_or(is_plain) && digest.is_none_or(is_plain)
        };
        let mut random = kit::generator(6);
        let mut read = 0;
        for _ in 0..20_000 {
            let mut text = sound.clone();
            for (at, byte) in Vec::<(usize, u8)>::arbitrary(&mut random) {
                text[at % sound.len()] = byte;
            }
            text.truncate(usize::arbitrary(&mut random) % (2 * sound.len()));
            let Some((known, own)) = parse(&text, 500) else { continue };
            let mut servers = known.servers.iter();
            assert!(is_plain(&own) && servers.all(|(name, one)| is_plain(name) && plain(one)));
            read += usize::from(known.unreadable > 0 && !known.servers.is_empty());
        }
        assert!(read > 100, "{read}");
    }

    #[test]
    fn another_file_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.servers");
        let me = rustix::process::geteuid().as_raw();
        let read = || read_servers(&path, me, 500);
        assert_eq!(read().unwrap_err().kind(), io::ErrorKind::NotFound);
        for text in ["", "\n", "v=2 now=1 local=1 name=mx1\n", "v=1 now=1 local=1 name=\u{1b}\n"] {
            fs::write(&path, text).unwrap();
            assert_eq!(read().unwrap_err().kind(), io::ErrorKind::InvalidData, "{text:?}");
        }
        fs::write(&path, "v=1 now=1 local=1 name=mx1\nagent \u{1b}\tv=1\nx\n\n").unwrap();
        assert_eq!(read().unwrap().0.unreadable, 3);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(read_servers(&link, me, 500).is_err());
        assert!(read_servers(folder.path(), me, 500).is_err());
        if me == 0 {
            std::os::unix::fs::chown(&path, Some(7), None).unwrap();
            assert!(read_servers(&path, 8, 500).is_err() && read_servers(&path, 7, 500).is_ok());
        }
    }
}
