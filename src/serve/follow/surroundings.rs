//! What the follower needs on a machine before it starts: the log, the directory of the database,
//! and its own.

use std::fs::File;
use std::path::Path;

use rustix::fs::{Access, access};

use super::state::FollowerState;
use crate::logs::follow;
use crate::serve::config::{Follow, FollowedLog, STATE};
use crate::serve::mail::surroundings::directory_at;
use crate::text::time::now;

/// What the user of this process could not read or write with this configuration.
#[must_use]
pub fn faults(config: &Follow) -> Vec<String> {
    let log = log(&config.log).err().map(|why| format!("follow.log: {why}"));
    let spool = writable(&config.spool).err().map(|why| format!("mail.spool: {why}"));
    let state = state(&config.state).err().map(|why| format!("follow.state: {why}"));
    [log, spool, state].into_iter().flatten().collect()
}

fn log(log: &FollowedLog) -> Result<(), String> {
    match log {
        FollowedLog::File(path) => {
            let shown = path.display();
            let cannot = |error| format!("cannot read {shown}: {error}");
            // What is no file is not opened: that may wait for a writer.
            if !path.metadata().map_err(cannot)?.is_file() {
                return Err(format!("{shown} is no file"));
            }
            File::open(path).map(drop).map_err(cannot)
        }
        FollowedLog::Journal(directory) => {
            if let Some(directory) = directory {
                directory_at(directory)?;
            }
            let mut journal = follow::Follow::journal(directory.clone(), now());
            journal.poll(&mut |_| false).map(drop).map_err(|error| error.to_string())
        }
    }
}

fn state(directory: &Path) -> Result<(), String> {
    // exirate-follow@.service makes it when it starts.
    if directory.starts_with(STATE) && !directory.exists() {
        return Ok(());
    }
    writable(directory)?;
    let read = FollowerState::read(directory);
    read.map(drop).map_err(|error| format!("cannot use {}: {error}", directory.display()))
}

fn writable(directory: &Path) -> Result<(), String> {
    directory_at(directory)?;
    let may = access(directory, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK);
    may.map_err(|error| format!("cannot write in {}: {error}", directory.display()))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn what_the_follower_cannot_use_is_found_before_it_starts() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let found = |log: FollowedLog| -> Vec<String> {
            let config = Follow { log, state: at("state"), spool: at("spool") };
            let dir = folder.path().to_string_lossy().into_owned();
            faults(&config).iter().map(|text| text.replace(&dir, "DIR")).collect()
        };
        let file = |name: &str| FollowedLog::File(at(name));
        assert_eq!(
            found(file("mainlog")),
            [
                "follow.log: cannot read DIR/mainlog: No such file or directory (os error 2)",
                "mail.spool: the directory DIR/spool does not exist",
                "follow.state: the directory DIR/state does not exist",
            ]
        );
        for name in ["spool", "state"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        std::fs::write(at("mainlog"), "").unwrap();
        assert_eq!(found(file("mainlog")), [""; 0]);
        assert_eq!(found(file("spool")), ["follow.log: DIR/spool is no file"]);
        let journal = |name: &str| FollowedLog::Journal(Some(at(name)));
        assert_eq!(
            found(journal("journal")),
            ["follow.log: the directory DIR/journal does not exist"]
        );
        assert_eq!(found(journal("spool")), [""; 0]);
        // What it would have replaced is not a file.
        std::fs::create_dir(at("state/state.json")).unwrap();
        let found = found(file("mainlog"));
        assert!(found[0].starts_with("follow.state: cannot use DIR/state: "), "{found:?}");
        // The unit makes it.
        let unit = PathBuf::from(STATE).join("nobody-runs-it");
        assert_eq!(state(&unit), Ok(()));
    }
}
