//! Whether the file system is fit for a database that many processes lock and
//! map, and has space for it.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{StatVfs, StatVfsMountFlags};

use super::finding::Findings;
use crate::spool::{MAX_BYTES_MIN, Stats};
use crate::sys::files::{self, Access};
use crate::sys::lock::{self, LockKind};
use crate::sys::mapping::Mapping;
use crate::text::bytes;

/// Bytes of the file that locking and mapping are tested with.
const TRIAL_BYTES: u64 = 4096;
/// Files that a database has: its shards, its key, and those being written.
const FILES: u64 = 256 + 1 + 8;

/// What is known of a kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fitness {
    /// On a disk of this machine.
    Fit,
    /// As that, but it writes each change to new blocks, so that reserved space may
    /// still run out.
    CopyOnWrite,
    /// In memory.
    Memory,
    /// It depends on what is below it.
    Uncertain,
    /// Over a network: other machines see neither locks nor mappings at once.
    Network,
}

/// What a file system is called, and what is known of its kind, by the number
/// that statfs(2) gives.
pub(super) fn known(magic: u64) -> Option<(&'static str, Fitness)> {
    // The kernel gives some of them with their sign extended.
    Some(match magic & 0xffff_ffff {
        0xef53 => ("ext4", Fitness::Fit),
        0x5846_5342 => ("XFS", Fitness::Fit),
        0x9123_683e => ("Btrfs", Fitness::CopyOnWrite),
        0x2fc1_2fc1 => ("ZFS", Fitness::CopyOnWrite),
        0xf2f5_2010 => ("F2FS", Fitness::Fit),
        0xca45_1a4e => ("bcachefs", Fitness::CopyOnWrite),
        0x0102_1994 => ("tmpfs", Fitness::Memory),
        0x8584_58f6 => ("ramfs", Fitness::Memory),
        0x794c_7630 => ("overlay", Fitness::Uncertain),
        0x6573_5546 => ("FUSE", Fitness::Uncertain),
        0xf15f => ("eCryptfs", Fitness::Uncertain),
        0x786f_4256 => ("VirtualBox's shared folders", Fitness::Network),
        0x6969 => ("NFS", Fitness::Network),
        0xff53_4d42 => ("CIFS", Fitness::Network),
        0xfe53_4d42 => ("SMB2", Fitness::Network),
        0x517b => ("SMB", Fitness::Network),
        0x0102_1997 => ("9p", Fitness::Network),
        0x00c3_6400 => ("Ceph", Fitness::Network),
        0x5346_414f => ("AFS", Fitness::Network),
        0x0bd0_0bd0 => ("Lustre", Fitness::Network),
        0x0116_1970 => ("GFS2", Fitness::Network),
        0x7461_636f => ("OCFS2", Fitness::Network),
        _ => return None,
    })
}

/// Checks the file system of the database, or of the spool directory if there is
/// no database yet.
pub(super) fn look(spool: &Path, stats: Option<&Stats>, findings: &mut Findings) {
    let database = spool.join("exirate");
    let path = if database.is_dir() { &database } else { spool };
    let Ok(directory) = files::open_directory(path) else { return };
    let (Ok(kind), Ok(about)) = (rustix::fs::fstatfs(&directory), rustix::fs::fstatvfs(&directory))
    else {
        findings.note(format!(
            "the kind of the file system of {} cannot be determined",
            path.display()
        ));
        return;
    };
    // Its type differs from machine to machine.
    #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast)]
    let name = advise(kind.f_type as u64, path, findings);
    if about.f_flag.contains(StatVfsMountFlags::RDONLY) {
        findings.problem(format!(
            "{} is on a file system that is mounted read-only: Exim cannot count anything",
            path.display()
        ));
        return;
    }
    space(path, &about, stats, findings);
    match try_out(&directory) {
        Ok(()) => findings.ok(format!(
            "locks and shared mappings work in {}{}",
            path.display(),
            name.map_or(String::new(), |name| format!(" ({name})"))
        )),
        Err(Trial::Refused(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
            findings.hidden(format!(
                "whether locks and mappings work in {} was not tested: {error}",
                path.display()
            ));
        }
        Err(Trial::Refused(error)) => {
            let right = match error.kind() {
                io::ErrorKind::StorageFull => "; free some space on its file system",
                io::ErrorKind::QuotaExceeded => "; raise the quota",
                _ => "",
            };
            findings.problem(format!("cannot write in {}: {error}{right}", path.display()));
        }
        Err(Trial::Unfit(what)) => {
            findings.problem(format!(
                "the file system of {} is not suitable: {what}; the spool directory must be on a disk \
                 of this machine",
                path.display()
            ));
        }
    }
}

/// Reports problems of this kind of file system; returns its name.
fn advise(magic: u64, path: &Path, findings: &mut Findings) -> Option<&'static str> {
    let (name, fitness) = known(magic)?;
    let path = path.display();
    match fitness {
        Fitness::Fit => {}
        Fitness::CopyOnWrite => {
            findings.warning(format!(
                "{path} is on {name}, which writes each change to new blocks, so that reserved \
                 space can still run out: on a full disk a check may then end its SMTP \
                 process; keep space free there, or put the spool directory on ext4 or XFS"
            ));
        }
        Fitness::Memory => {
            findings.note(format!(
                "{path} is on {name}, in memory: all rates are lost when this machine restarts"
            ));
        }
        Fitness::Uncertain => {
            findings.warning(format!(
                "{path} is on {name}: what is below it must be a disk of this machine, and must \
                 persist when a container is replaced"
            ));
        }
        Fitness::Network => {
            findings.problem(format!(
                "{path} is on {name}: machines that share it do not see each other's locks and \
                 mappings in time, and counts are lost or files damaged; each Exim's spool \
                 directory must be on a disk of its own machine"
            ));
        }
    }
    Some(name)
}

/// Free space and free inodes, against what the database may take.
fn space(path: &Path, about: &StatVfs, stats: Option<&Stats>, findings: &mut Findings) {
    let free = about.f_bavail.saturating_mul(about.f_frsize);
    let (disk, max_bytes) =
        stats.map_or((0, crate::spool::MAX_BYTES_DEFAULT), |stats| (stats.disk, stats.max_bytes));
    let grows = max_bytes.saturating_sub(disk);
    let path = path.display();
    if free < MAX_BYTES_MIN {
        findings.problem(format!(
            "{} free on the file system of {path}: there will soon be no space for new keys, and their \
             checks will fail; free some space there",
            bytes(free)
        ));
    } else if free < grows {
        findings.warning(format!(
            "{} free on the file system of {path}, and the database may grow by {}: free some \
             space there, or lower the size limit (`exirate config set rates.max_size=SIZE`)",
            bytes(free),
            bytes(grows)
        ));
    } else {
        findings.ok(format!("{} free, and the database may grow by {}", bytes(free), bytes(grows)));
    }
    // File systems without a fixed number of inodes report 0.
    let needed = FILES.saturating_sub(stats.map_or(0, |stats| stats.shards as u64));
    if about.f_files > 0 && about.f_favail < needed {
        findings.problem(format!(
            "{} free inodes on the file system of {path}, and the database may need {needed}: \
             remove some files there",
            about.f_favail
        ));
    }
}

/// Why a test failed.
#[derive(Debug)]
enum Trial {
    /// A file could not be written there.
    Refused(io::Error),
    /// What the file system does wrong.
    Unfit(String),
}

/// A file that is removed when this is dropped.
struct Scrap<'a> {
    directory: &'a File,
    name: CString,
}

impl Drop for Scrap<'_> {
    fn drop(&mut self) {
        // It was created by this process.
        let _ = files::remove_at(self.directory, &self.name);
    }
}

/// Locks a file through two openings of it, as two processes would, and maps it
/// through both.
fn try_out(directory: &File) -> Result<(), Trial> {
    let name = CString::new(format!("doctor.{}", std::process::id())).unwrap_or_default();
    let one = files::open_at(directory, &name, Access::Create).map_err(Trial::Refused)?;
    let scrap = Scrap { directory, name };
    files::reserve(&one, 0, TRIAL_BYTES).map_err(Trial::Refused)?;
    let two = files::open_at(directory, &scrap.name, Access::Write).map_err(Trial::Refused)?;
    locks(&one, &two)?;
    maps(&one, &two)?;
    links(directory, &scrap.name)
}

fn locks(one: &File, two: &File) -> Result<(), Trial> {
    let unfit = |error: io::Error| Trial::Unfit(format!("it cannot lock files ({error})"));
    let held = lock::try_lock(one, LockKind::Exclusive).map_err(unfit)?;
    if held.is_none() {
        return Err(Trial::Unfit("it reports that a new file is locked".to_owned()));
    }
    if lock::try_lock(two, LockKind::Shared).map_err(unfit)?.is_some() {
        return Err(Trial::Unfit("its locks do not exclude others".to_owned()));
    }
    drop(held);
    match lock::try_lock(two, LockKind::Exclusive).map_err(unfit)? {
        Some(_) => Ok(()),
        None => Err(Trial::Unfit("a released lock stays".to_owned())),
    }
}

fn maps(one: &File, two: &File) -> Result<(), Trial> {
    const WORD: u64 = 0x6578_6972_6174_6501;
    let unfit = |error: io::Error| Trial::Unfit(format!("it cannot map files ({error})"));
    let mut writer = Mapping::of(one, true).map_err(unfit)?;
    let reader = Mapping::of(two, false).map_err(unfit)?;
    let mut read = [0; 8];
    let seen = writer.set_u64(8, WORD).and_then(|()| reader.u64(8));
    two.read_exact_at(&mut read, 8).map_err(unfit)?;
    if seen == Some(WORD) && u64::from_le_bytes(read) == WORD {
        Ok(())
    } else {
        Err(Trial::Unfit("others do not see what one process writes to a mapping".to_owned()))
    }
}

/// A damaged file is quarantined by giving it a second name.
fn links(directory: &File, name: &CStr) -> Result<(), Trial> {
    let second = CString::new([name.to_bytes(), b".second"].concat()).unwrap_or_default();
    let _scrap = Scrap { directory, name: second.clone() };
    files::link_at(directory, name, &second)
        .map_err(|error| Trial::Unfit(format!("it cannot give a file a second name ({error})")))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn advised(magic: u64) -> Vec<(Level, String)> {
        let mut findings = Findings::default();
        advise(magic, Path::new("/spool"), &mut findings);
        findings.list.into_iter().map(|finding| (finding.level, finding.text)).collect()
    }

    #[test]
    fn network_file_systems_are_problems() {
        for (magic, name) in [
            (0x6969, "NFS"),
            (0xff53_4d42, "CIFS"),
            (0xffff_ffff_ff53_4d42, "CIFS"),
            (0xfe53_4d42, "SMB2"),
            (0x0102_1997, "9p"),
        ] {
            let found = advised(magic);
            assert_eq!((found.len(), found[0].0), (1, Level::Problem), "{name}");
            assert!(found[0].1.starts_with(&format!("/spool is on {name}: ")), "{found:?}");
        }
        for magic in [0x6573_5546, 0x794c_7630, 0x9123_683e, 0x2fc1_2fc1, 0xca45_1a4e] {
            assert_eq!(advised(magic)[0].0, Level::Warning, "{magic:x}");
        }
        assert_eq!(advised(0x0102_1994)[0].0, Level::Note);
        for magic in [0xef53, 0x5846_5342, 0x1234] {
            assert_eq!(advised(magic), []);
        }
    }

    #[test]
    fn a_trial_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let directory = files::open_directory(folder.path()).unwrap();
        try_out(&directory).unwrap();
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn locks_that_exclude_no_process_are_found() {
        let file = tempfile::tempfile().unwrap();
        // One opening, as if it were two.
        let same = file.try_clone().unwrap();
        assert!(matches!(locks(&file, &same), Err(Trial::Unfit(what)) if what.contains("exclude")));
        let other = tempfile::tempfile().unwrap();
        file.set_len(TRIAL_BYTES).unwrap();
        other.set_len(TRIAL_BYTES).unwrap();
        assert!(matches!(maps(&file, &other), Err(Trial::Unfit(what)) if what.contains("see")));
        maps(&file, &same).unwrap();
    }
}
