//! Keeps the policies in use those of the policy file, where the configuration says so.

use std::cell::RefCell;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::policy::image::PolicyFile;
use crate::serve::config::Mail;
use crate::serve::log::{Level, Log};

/// Puts a policy file into use in a spool directory. Returns what has changed, in lines.
///
/// # Errors
/// Why nothing has, in words; standard error has the diagnostics.
pub type Apply = fn(file: &Path, spool: &Path) -> Result<Vec<String>, String>;

/// How often it looks whether the file has changed.
const POLL: Duration = Duration::from_secs(1);

/// The files beside the policy file, where those are that it names: their names, devices, inodes,
/// sizes and times.
type Seen = Vec<(OsString, [u64; 3], [i64; 2])>;

/// The policy file that is applied when it changes.
pub(super) struct KeptPolicies {
    apply: Apply,
    spool: PathBuf,
    file: RefCell<Option<PathBuf>>,
    /// What was there when it was applied; `None`: it is to be applied.
    applied: RefCell<Option<Seen>>,
    log: Rc<Log>,
}

impl KeptPolicies {
    /// Applies the file.
    ///
    /// # Errors
    /// It cannot be used, and no policies are in use.
    pub(super) fn begin(apply: Apply, mail: &Mail, log: Rc<Log>) -> Result<Self, String> {
        let (file, spool) = (mail.policy_file.clone(), mail.spool.clone());
        let applied = RefCell::new(file.as_deref().map(seen));
        let kept = Self { apply, spool, file: RefCell::new(file.clone()), applied, log };
        if let Some(file) = file {
            let done = apply(&file, &kept.spool);
            if let (Err(why), Err(_)) = (&done, PolicyFile::open(&kept.spool).image()) {
                return Err(format!("{why}; and no policies are in use"));
            }
            kept.report(&file, done);
        }
        Ok(kept)
    }

    /// Uses another configuration, and applies its file again.
    pub(super) fn set(&self, mail: &Mail) {
        self.file.borrow_mut().clone_from(&mail.policy_file);
        *self.applied.borrow_mut() = None;
    }

    /// Applies the file whenever it has changed.
    pub(super) async fn keep(&self) {
        let mut last = None;
        loop {
            sleep(POLL).await;
            let Some(file) = self.file.borrow().clone() else { continue };
            let now = Some(seen(&file));
            // Until it is the same for a while, somebody may be writing it.
            let is_written = last.replace(now.clone()) == Some(now.clone());
            if !is_written || *self.applied.borrow() == now {
                continue;
            }
            *self.applied.borrow_mut() = now;
            let (apply, spool, at) = (self.apply, self.spool.clone(), file.clone());
            let done = spawn_blocking(move || apply(&at, &spool)).await;
            self.report(
                &file,
                done.unwrap_or_else(|error| Err(format!("internal error: {error}"))),
            );
        }
    }

    fn report(&self, file: &Path, done: Result<Vec<String>, String>) {
        let file = file.display();
        match done {
            Ok(lines) => {
                for line in lines {
                    self.log.write(Level::Notice, format_args!("{file}: {line}"));
                }
            }
            Err(why) => {
                let text = format_args!("{why}; the policies that were in use still are");
                self.log.write(Level::Error, text);
            }
        }
    }
}

/// What is beside the file now.
fn seen(file: &Path) -> Seen {
    let entries = file.parent().and_then(|folder| folder.read_dir().ok()).into_iter().flatten();
    let mut seen: Seen = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            // What a link leads to, as the files of a ConfigMap of Kubernetes are links.
            let info = entry.path().metadata().ok()?;
            let times = [info.mtime(), info.mtime_nsec()];
            Some((entry.file_name(), [info.dev(), info.ino(), info.size()], times))
        })
        .collect();
    seen.sort();
    seen
}
