//! What shells offer for arguments: keys, modes and periods. The scripts that
//! `exirate completions` prints call the program with [`VARIABLE`] set.
//!
//! Clients choose keys, and some shells put what is offered into the command
//! line as it is. So only keys of characters that no shell treats specially are
//! offered.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use clap_complete::{ArgValueCompleter, CompletionCandidate};

use super::spool_dir;
use crate::engine::{Kind, RecordKey};
use crate::spool::{Options, Spool};
use crate::standing::key_text::{self, MODES};
use crate::store::{Inspect, Sort, names};

/// The environment variable that asks for completions, and names the shell.
pub(in crate::cli) const VARIABLE: &str = "EXIRATE_COMPLETE";
/// Larger databases are not searched: nobody waits seconds for a completion.
const DISK_MAX: u64 = 64 << 20;
/// How many keys are offered.
const KEYS_MAX: usize = 200;

/// Completes `KEY`: by each name that the commands find a record by, so that `al` is completed to
/// alice@example.org, which a policy counts as auth:alice@example.org.
pub(in crate::cli) fn keys() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let current = current.as_bytes();
        let mut found = BTreeSet::new();
        let mut offer = |name: &[u8]| {
            if found.len() < KEYS_MAX && name.starts_with(current) && is_plain(name) {
                found.insert(String::from_utf8_lossy(name).into_owned());
            }
        };
        visit(|key| {
            offer(key_text::key_of(key));
            if !current.is_empty() && key.kind != Kind::Spec {
                let mine = names(key).filter(|(_, sort)| *sort != Sort::Other);
                mine.for_each(|(name, _)| offer(&name));
            }
        });
        found.into_iter().map(CompletionCandidate::new).collect()
    })
}

/// Completes `--period`.
pub(in crate::cli) fn periods() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let mut found = BTreeSet::new();
        visit(|key| {
            let Some(parts) = key_text::parts(key) else { return };
            let fits = parts.period.starts_with(current.as_bytes()) && is_plain(parts.period);
            if fits && parts.period_seconds().is_some() {
                found.insert(String::from_utf8_lossy(parts.period).into_owned());
            }
        });
        found.into_iter().map(CompletionCandidate::new).collect()
    })
}

/// Completes `--mode`.
pub(in crate::cli) fn modes() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let fits = |mode: &&str| mode.as_bytes().starts_with(current.as_bytes());
        let modes = MODES.into_iter().chain(["per_byte"]).filter(fits);
        modes.map(CompletionCandidate::new).collect()
    })
}

/// Whether a key needs no quotes in any shell, and means itself as an argument.
fn is_plain(key: &[u8]) -> bool {
    let plain = |&b: &u8| b.is_ascii_alphanumeric() || b"@._+-:/=,".contains(&b);
    key.first().is_some_and(|&b| b != b'-' && b != b'=')
        && key.iter().all(plain)
        && key_text::key(key).as_bytes() == key
}

/// Calls `visit` with the key of each record, and of each account with habits, of a database that is not
/// too large.
/// Whatever fails, nothing is printed: the user is typing.
fn visit(mut visit: impl FnMut(&RecordKey<'_>)) {
    let spool = spool_option(std::env::args_os());
    let Ok(directory) = spool_dir::find_silently(spool.as_deref()) else { return };
    let Ok(spool) = Spool::open_existing(&directory, Options::default()) else { return };
    let store: &mut dyn Inspect = &mut { spool };
    if store.statistics().is_ok_and(|statistics| statistics.bytes <= DISK_MAX) {
        let _ = store.for_each(&mut |entry| visit(&entry.record_key()));
        let _ = store.for_each_habits_key(&mut |key| visit(&key.key()));
    }
}

/// The value of --spool on the command line that is being completed.
fn spool_option(arguments: impl Iterator<Item = OsString>) -> Option<PathBuf> {
    let mut arguments = arguments.skip_while(|argument| argument != "--").skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--spool" {
            return arguments.next().map(PathBuf::from);
        }
        if let Some(value) = argument.as_bytes().strip_prefix(b"--spool=") {
            return Some(PathBuf::from(OsStr::from_bytes(value)));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_special_to_a_shell_are_not_offered() {
        for key in ["alice@example.org", "2001:db8::1", "bounce+a=b@example.org", "local:33"] {
            assert!(is_plain(key.as_bytes()), "{key}");
        }
        for key in [
            "",
            "-rf",
            "$(reboot)",
            "`x`",
            "a b",
            "a;b",
            "a'b",
            "a\"b",
            "a\nb",
            "*",
            "~root",
            "ä",
            "a\\b",
            "1h/per_mail/x",
            "local:root",
        ] {
            assert!(!is_plain(key.as_bytes()), "{key}");
        }
    }

    #[test]
    fn the_spool_directory_is_that_of_the_line() {
        let spool = |line: &str| spool_option(line.split(' ').map(OsString::from));
        assert_eq!(spool("exirate -- exirate show --spool /x al"), Some("/x".into()));
        assert_eq!(spool("exirate -- exirate show --spool=/x al"), Some("/x".into()));
        assert_eq!(spool("exirate -- exirate show al"), None);
    }
}
