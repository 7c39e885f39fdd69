//! The emergency stop: a small file that lifts all limits for a while, whatever policies,
//! specs and databases say.
//!
//! It is in the spool directory, beside the database and not in it, so that it works
//! whatever state that is in. Events are counted and measured all the same: see
//! [`ClusterStore::set_bypassed`](crate::cluster::ClusterStore::set_bypassed). A process looks
//! for it once a second at most.

use std::ffi::{CStr, CString};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::sys::files::{self, Access};
use crate::sys::secure_dir::{DirError, SecureDir};
use crate::sys::{clock, fork};
use crate::text;
use crate::versions::{OtherVersion, Versions};

/// The file, in the spool directory.
const FILE: &CStr = c"exirate.bypass";
/// Its permissions: who may see the spool directory may read it.
const MODE: u32 = 0o644;
/// Its first line, before the version of the format.
const FIRST: &str = "exirate bypass ";
const VERSION: u32 = 1;
/// No file is larger.
const BYTES_MAX: u64 = 8192;
/// The longest bypass, in seconds.
pub const LONGEST: i64 = 86_400;

/// A bypass: nothing is refused while it lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bypass {
    /// When it begins, in seconds since 1970.
    pub since: i64,
    /// When it ends: at most [`LONGEST`] later.
    pub until: i64,
    /// Who began it.
    pub who: String,
    /// Why; may be empty.
    pub reason: String,
}

impl Bypass {
    /// Whether it lasts at `now`. A clock that is set back prolongs it by no more than it
    /// lasts by itself.
    #[must_use]
    pub fn is_active(&self, now: i64) -> bool {
        let earliest = self.since.saturating_sub(self.until.saturating_sub(self.since));
        (earliest..self.until).contains(&now)
    }

    /// The bypass of a spool directory, also one that has ended.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or could be somebody else's: it is none then.
    pub fn read(spool: &Path) -> Result<Option<Self>, DirError> {
        // Mostly there is none, and nothing else is opened then.
        match std::fs::symlink_metadata(path(spool)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            _ => {}
        }
        let directory = SecureDir::of_spool(spool)?;
        let Some((file, info)) = directory.open_file(Access::Read, FILE)? else { return Ok(None) };
        let unsafe_file = |fault: &str| DirError::Unsafe {
            path: path(spool),
            fault: format!("{fault}: remove it, or run `exirate bypass` again"),
        };
        if info.mode & 0o022 != 0 {
            return Err(unsafe_file("others than its owner may write to it"));
        }
        let mut bytes = vec![0; info.size.min(BYTES_MAX) as usize];
        let read = files::read_at(&file, 0, &mut bytes);
        let read = read.map_err(directory.failed("read", FILE))?;
        bytes.truncate(read);
        let text = std::str::from_utf8(&bytes).ok();
        if let Some(version) = text.and_then(|text| Versions::read(FIRST, text.lines().next()?)) {
            let known = Versions::only(VERSION).check(version);
            let other = |version: OtherVersion| version.error("run `exirate bypass` again");
            known.map_err(other).map_err(directory.failed("read", FILE))?;
        }
        text.and_then(Self::parse).map(Some).ok_or_else(|| unsafe_file("it is damaged"))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        Versions::read(FIRST, lines.next()?)?;
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let (since, until) = (value("since")?.parse().ok()?, value("until")?.parse().ok()?);
        let (who, reason) = (value("who")?.to_owned(), value("reason")?.to_owned());
        let long = i64::checked_sub(until, since)?;
        let is_whole = lines.next().is_none() && (1..=LONGEST).contains(&long);
        is_whole.then_some(Self { since, until, who, reason })
    }

    /// Begins it, in place of another one. Neither `who` nor `reason` may have line ends.
    ///
    /// # Errors
    /// It could not be written; another one lasts on.
    pub fn begin(&self, spool: &Path) -> Result<(), DirError> {
        let Self { since, until, who, reason } = self;
        let text =
            format!("{FIRST}{VERSION}\nsince {since}\nuntil {until}\nwho {who}\nreason {reason}\n");
        let directory = SecureDir::of_spool(spool)?;
        // Two commands at the same time do not write one file.
        let new = format!("exirate.bypass.{}", std::process::id());
        let new = CString::new(new).unwrap_or_default();
        let file = directory.create_file(&new, MODE)?;
        let written = files::write_start(&file, text.as_bytes())
            .and_then(|()| files::sync(&file))
            .and_then(|()| files::rename_at(directory.directory(), &new, FILE));
        if written.is_err() {
            let _ = files::remove_at(directory.directory(), &new);
        }
        written.map_err(directory.failed("write", FILE))
    }

    /// Ends the bypass of a spool directory, and removes a damaged file. Whether there was one.
    ///
    /// # Errors
    /// The file could not be removed.
    pub fn end(spool: &Path) -> Result<bool, DirError> {
        let directory = SecureDir::of_spool(spool)?;
        let was = files::info_at(directory.directory(), FILE).is_ok();
        files::remove_at(directory.directory(), FILE).map_err(directory.failed("remove", FILE))?;
        Ok(was)
    }
}

fn path(spool: &Path) -> PathBuf {
    spool.join(FILE.to_str().unwrap_or_default())
}

/// What a process knows of the bypass of a spool directory.
#[derive(Debug)]
pub struct Watch {
    spool: PathBuf,
    /// The second of the coarse clock in which it was looked for.
    looked: i64,
    active: Option<Bypass>,
    fault: Option<String>,
    /// The process that has logged it, and which: by its beginning, a fault by 0.
    logged: Option<(u32, i64)>,
}

impl Watch {
    /// Looks at nothing yet.
    #[must_use]
    pub fn new(spool: &Path) -> Self {
        let (active, fault, logged) = (None, None, None);
        Self { spool: spool.to_owned(), looked: i64::MIN, active, fault, logged }
    }

    /// Whether nothing may be refused now. One that begins is noticed within a second.
    #[inline]
    pub fn is_active(&mut self) -> bool {
        let second = clock::coarse_seconds();
        if second != self.looked {
            self.looked = second;
            self.look();
        }
        self.active.is_some()
    }

    #[cold]
    fn look(&mut self) {
        let now = clock::now().0;
        match Bypass::read(&self.spool) {
            Ok(found) => (self.active, self.fault) = (found.filter(|one| one.is_active(now)), None),
            Err(error) => (self.active, self.fault) = (None, Some(error.to_string())),
        }
    }

    /// A line for the log, once a process: that nothing is refused although `what`, or that
    /// there is a file which is no bypass.
    #[cold]
    pub fn line(&mut self, what: &dyn fmt::Display) -> Option<String> {
        let since = match (&self.active, &self.fault) {
            (Some(Bypass { since, .. }), _) => *since,
            (None, Some(_)) => 0,
            (None, None) => return None,
        };
        let this = Some((fork::process(), since));
        if std::mem::replace(&mut self.logged, this) == this {
            return None;
        }
        Some(match (&self.active, &self.fault) {
            (Some(Bypass { until, who, reason, .. }), _) => {
                let left = text::rough((until - clock::now().0) as f64);
                let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                format!(
                    "bypass for another {left} ({who}{why}): nothing is refused, although {what}"
                )
            }
            (None, fault) => format!("no bypass: {}", fault.as_deref().unwrap_or_default()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use kit::quickcheck;

    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn hour() -> Bypass {
        let (who, reason) = ("uid=0 sudo=ann".to_owned(), "a wrong limit".to_owned());
        Bypass { since: NOW, until: NOW + 3600, who, reason }
    }

    #[test]
    fn it_lasts_as_long_as_it_says_whatever_the_clock_does() {
        let one = hour();
        for (now, active) in [
            (NOW, true),
            (NOW + 3599, true),
            (NOW + 3600, false),
            // Set back, by less and by more than it lasts.
            (NOW - 3600, true),
            (NOW - 3601, false),
            (0, false),
            (i64::MAX, false),
            (i64::MIN, false),
        ] {
            assert_eq!(one.is_active(now), active, "{now}");
        }
    }

    #[test]
    fn it_is_begun_replaced_and_ended() {
        let folder = tempfile::tempdir().unwrap();
        let spool = folder.path();
        assert_eq!(Bypass::read(spool).unwrap(), None);
        assert!(!Bypass::end(spool).unwrap());
        let empty = Bypass { reason: String::new(), ..hour() };
        for one in [hour(), empty] {
            one.begin(spool).unwrap();
            assert_eq!(Bypass::read(spool).unwrap(), Some(one));
        }
        let names: Vec<_> =
            std::fs::read_dir(spool).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["exirate.bypass"]);
        assert!(Bypass::end(spool).unwrap());
        assert_eq!(Bypass::read(spool).unwrap(), None);
    }

    #[test]
    fn one_of_a_later_version_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("exirate.bypass");
        std::fs::write(&file, "exirate bypass 2\nwhatever\n").unwrap();
        let error = Bypass::read(folder.path()).unwrap_err().to_string();
        let said = "is of format version 2, and this exirate knows no version above 1: run `exirate \
                    bypass` again";
        assert!(error.ends_with(said), "{error}");
        hour().begin(folder.path()).unwrap();
        assert_eq!(Bypass::read(folder.path()).unwrap(), Some(hour()));
    }

    #[test]
    fn a_file_that_somebody_else_could_have_made_is_no_bypass() {
        let folder = tempfile::tempdir().unwrap();
        let spool = folder.path().join("spool");
        std::fs::create_dir(&spool).unwrap();
        let file = spool.join("exirate.bypass");
        let fault = || Bypass::read(&spool).unwrap_err().to_string();
        hour().begin(&spool).unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(&file, 0o664);
        assert!(fault().contains("others than its owner may write to it"), "{}", fault());
        mode(&file, 0o644);
        mode(&spool, 0o777);
        assert!(fault().contains("everyone may write to it"), "{}", fault());
        mode(&spool, 0o755);
        let elsewhere = folder.path().join("elsewhere");
        std::fs::rename(&file, &elsewhere).unwrap();
        symlink(&elsewhere, &file).unwrap();
        assert!(fault().contains("symbolic link"), "{}", fault());
        // It is replaced, and what it led to is not written to.
        let before = std::fs::read(&elsewhere).unwrap();
        Bypass { until: NOW + 1, ..hour() }.begin(&spool).unwrap();
        assert_eq!(std::fs::read(&elsewhere).unwrap(), before);
        assert_eq!(Bypass::read(&spool).unwrap().unwrap().until, NOW + 1);
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        assert!(fault().contains("directory"), "{}", fault());
        if rustix::process::geteuid().is_root() {
            std::fs::remove_dir(&file).unwrap();
            std::os::unix::fs::chown(&spool, Some(1000), None).unwrap();
            hour().begin(&spool).unwrap();
            assert_eq!(Bypass::read(&spool).unwrap(), Some(hour()));
            for (uid, is_one) in [(1000, true), (0, true), (1001, false)] {
                std::os::unix::fs::chown(&file, Some(uid), None).unwrap();
                assert_eq!(Bypass::read(&spool).is_ok(), is_one, "{uid}");
            }
        }
    }

    #[test]
    fn a_damaged_file_is_no_bypass() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("exirate.bypass");
        hour().begin(folder.path()).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        let damaged = |text: &[u8]| {
            std::fs::write(&file, text).unwrap();
            let error = Bypass::read(folder.path()).unwrap_err().to_string();
            assert!(error.contains("it is damaged"), "{error}");
        };
        (0..text.len()).for_each(|end| damaged(&text.as_bytes()[..end]));
        damaged(text.replace("bypass 1", "bypass 0").as_bytes());
        damaged(text.replace("until 17", "until 27").as_bytes());
        damaged(text.replace("until 17", "until 16").as_bytes());
        damaged(format!("{text}more\n").as_bytes());
        damaged(&[0; 200]);
        damaged(&[b'x'; 100_000]);
        let mut watch = Watch::new(folder.path());
        assert!(!watch.is_active());
        assert!(watch.line(&"").is_some_and(|line| line.starts_with("no bypass: ")));
        assert_eq!(watch.line(&""), None, "once");
    }

    quickcheck! {
        fn no_bytes_are_a_longer_bypass(bytes: Vec<u8>, since: i64, until: i64) -> bool {
            let text = format!("{FIRST}1\nsince {since}\nuntil {until}\nwho \nreason \n");
            let found = Bypass::parse(&text);
            found.is_some() == until.checked_sub(since).is_some_and(|long| (1..=LONGEST).contains(&long))
                && std::str::from_utf8(&bytes).ok().and_then(Bypass::parse).is_none()
        }
    }

    /// Whether it is active, as a call finds it in another second.
    fn is_active_later(watch: &mut Watch) -> bool {
        watch.looked = i64::MIN;
        watch.is_active()
    }

    #[test]
    fn a_watch_notices_what_begins_and_ends() {
        let folder = tempfile::tempdir().unwrap();
        let mut watch = Watch::new(folder.path());
        assert!(!watch.is_active());
        assert_eq!(watch.line(&"deferred"), None);
        let (since, who) = (clock::now().0, "uid=0".to_owned());
        Bypass { since, until: since + 60, who, ..hour() }.begin(folder.path()).unwrap();
        assert!(is_active_later(&mut watch));
        let line = watch.line(&"a check is over").unwrap();
        assert!(line.starts_with("bypass for another "), "{line}");
        assert!(
            line.ends_with(" (uid=0: a wrong limit): nothing is refused, although a check is over")
        );
        assert_eq!(watch.line(&"deferred"), None, "once");
        clock::shifted::by(61);
        assert!(!is_active_later(&mut watch));
        clock::shifted::by(0);
        assert!(is_active_later(&mut watch));
        Bypass::end(folder.path()).unwrap();
        assert!(!is_active_later(&mut watch));
    }
}
