//! The messages of a maildir, and of the folders in it.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// How deep folders may lie in folders.
const DEPTH_MAX: u32 = 32;

/// The directories `cur` and `new` of a maildir and of the folders in it, both
/// those of Maildir++ (`.Sent`) and those that are plain directories.
#[derive(Debug, Default)]
pub(crate) struct Maildir {
    /// In the order of their names.
    pub(crate) places: Vec<PathBuf>,
    /// Directories that could not be read.
    pub(crate) unread: Vec<(PathBuf, io::Error)>,
}

impl Maildir {
    /// Looks for the folders of the maildir at `path`. Symbolic links to
    /// directories are not followed, except `path` itself.
    pub(crate) fn find(path: &Path) -> Self {
        let mut maildir = Self::default();
        maildir.look(path, 0);
        maildir.places.sort();
        maildir
    }

    fn look(&mut self, folder: &Path, depth: u32) {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => return self.unread.push((folder.to_owned(), error)),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return self.unread.push((folder.to_owned(), error)),
            };
            // The type of the entry itself, not of what a link leads to.
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let name = entry.file_name();
            if name == "cur" || name == "new" {
                self.places.push(entry.path());
            } else if name == "tmp" {
                // What lies there is not delivered yet.
            } else if depth < DEPTH_MAX {
                self.look(&entry.path(), depth + 1);
            } else {
                let deep = io::Error::other("folders lie too deep in one another");
                self.unread.push((entry.path(), deep));
            }
        }
    }
}

/// The messages in a place, in the order of their names, which is that of their
/// arrival.
///
/// # Errors
/// Those of reading a directory.
pub(crate) fn messages(place: &Path) -> io::Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(place)? {
        let entry = entry?;
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !hidden && entry.file_type().is_ok_and(|kind| !kind.is_dir()) {
            names.push(entry.file_name());
        }
    }
    names.sort_unstable();
    Ok(names.into_iter().map(|name| place.join(name)).collect())
}

/// How many messages there are in a place.
pub(crate) fn count(place: &Path) -> u64 {
    fs::read_dir(place).map_or(0, |entries| entries.count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_folders_are_found_and_only_messages_in_them() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for place in ["cur", "new", "tmp", ".Sent/cur", ".Sent/new", "plain/deep/cur", "tmp/cur"] {
            fs::create_dir_all(root.join(place)).unwrap();
        }
        for file in
            ["cur/2.b:2,S", "cur/1.a", "cur/.hidden", "new/3.c", "tmp/4.d", ".Sent/cur/5.e", "x"]
        {
            fs::write(root.join(file), "").unwrap();
        }
        fs::create_dir(root.join("cur/directory")).unwrap();
        // No way round and round.
        std::os::unix::fs::symlink(root, root.join("plain/round")).unwrap();
        let maildir = Maildir::find(root);
        assert!(maildir.unread.is_empty());
        let places = maildir.places.iter().map(|p| p.strip_prefix(root).unwrap().to_str().unwrap());
        assert_eq!(
            places.collect::<Vec<_>>(),
            [".Sent/cur", ".Sent/new", "cur", "new", "plain/deep/cur"]
        );
        let names = messages(&root.join("cur")).unwrap();
        assert_eq!(names, [root.join("cur/1.a"), root.join("cur/2.b:2,S")]);
        assert_eq!(count(&root.join("new")), 1);
        let missing = Maildir::find(&root.join("missing"));
        assert_eq!((missing.places.len(), missing.unread.len()), (0, 1));
    }
}
