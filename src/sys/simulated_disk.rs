//! An in-memory disk, built from a directory and the writes made to it since.
//! It shows what is left after a process is killed or the machine loses power.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use kit::Random;

use super::write_trace::{self, Id, Write};

/// The unit that a disk writes atomically.
pub(crate) const SECTOR: usize = 512;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    File(Vec<u8>),
    Directory(BTreeMap<CString, Id>),
}

/// Everything under one directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    root: Id,
    nodes: HashMap<Id, Node>,
}

impl Disk {
    /// The current contents of `folder`.
    pub(crate) fn of(folder: &Path) -> Self {
        let root = write_trace::id(&File::open(folder).unwrap());
        let mut disk = Self { root, nodes: HashMap::new() };
        disk.add(root, folder);
        disk
    }

    fn add(&mut self, id: Id, folder: &Path) {
        let mut names = BTreeMap::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let child = write_trace::id(&File::open(&path).unwrap());
            names.insert(CString::new(path.file_name().unwrap().as_bytes()).unwrap(), child);
            if path.is_dir() {
                self.add(child, &path);
            } else {
                self.nodes.insert(child, Node::File(std::fs::read(&path).unwrap()));
            }
        }
        self.nodes.insert(id, Node::Directory(names));
    }

    fn names(&mut self, directory: Id) -> &mut BTreeMap<CString, Id> {
        match self.nodes.get_mut(&directory) {
            Some(Node::Directory(names)) => names,
            other => panic!("not a directory: {other:?}"),
        }
    }

    fn content(&mut self, file: Id) -> &mut Vec<u8> {
        match self.nodes.get_mut(&file) {
            Some(Node::File(bytes)) => bytes,
            other => panic!("not a file: {other:?}"),
        }
    }

    /// Applies a write.
    pub(crate) fn apply(&mut self, write: &Write) {
        match write {
            Write::Bytes { file, offset, bytes } => {
                let content = self.content(*file);
                let end = offset + bytes.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[*offset..end].copy_from_slice(bytes);
            }
            Write::Length { file, bytes } => {
                let content = self.content(*file);
                content.resize(content.len().max(*bytes), 0);
            }
            Write::Emptied { file } => self.content(*file).clear(),
            Write::Synced { .. } => {}
            Write::File { directory, name, file } => {
                self.nodes.insert(*file, Node::File(Vec::new()));
                self.names(*directory).insert(name.clone(), *file);
            }
            Write::Directory { directory, name, made } => {
                self.nodes.insert(*made, Node::Directory(BTreeMap::new()));
                self.names(*directory).insert(name.clone(), *made);
            }
            Write::Renamed { directory, from, to } => {
                let names = self.names(*directory);
                let id = names.remove(from).unwrap();
                names.insert(to.clone(), id);
            }
            Write::Linked { directory, from, to } => {
                let names = self.names(*directory);
                let id = names[from];
                names.insert(to.clone(), id);
            }
            Write::Removed { directory, name } => {
                self.names(*directory).remove(name);
            }
        }
    }

    /// Everything reachable from the root, for comparisons.
    pub(crate) fn reachable(&self) -> BTreeMap<Vec<CString>, &[u8]> {
        let mut found = BTreeMap::new();
        self.walk(self.root, &mut Vec::new(), &mut found);
        found
    }

    fn walk<'a>(
        &'a self,
        id: Id,
        path: &mut Vec<CString>,
        found: &mut BTreeMap<Vec<CString>, &'a [u8]>,
    ) {
        match &self.nodes[&id] {
            Node::File(bytes) => {
                found.insert(path.clone(), bytes);
            }
            Node::Directory(names) => {
                for (name, &child) in names {
                    path.push(name.clone());
                    self.walk(child, path, found);
                    path.pop();
                }
            }
        }
    }

    /// Writes everything to an empty directory.
    pub(crate) fn write_to(&self, folder: &Path) {
        self.write_directory(self.root, folder);
    }

    fn write_directory(&self, id: Id, folder: &Path) {
        let Node::Directory(names) = &self.nodes[&id] else { panic!("not a directory") };
        for (name, child) in names {
            let path = folder.join(OsStr::from_bytes(name.to_bytes()));
            match &self.nodes[child] {
                Node::File(bytes) => {
                    std::fs::write(&path, bytes).unwrap();
                    let mode = std::fs::Permissions::from_mode(0o600);
                    std::fs::set_permissions(&path, mode).unwrap();
                }
                Node::Directory(_) => {
                    std::fs::create_dir(&path).unwrap();
                    let mode = std::fs::Permissions::from_mode(0o750);
                    std::fs::set_permissions(&path, mode).unwrap();
                    self.write_directory(*child, &path);
                }
            }
        }
    }
}

/// Where `write` can be torn, as numbers of bytes that are written: at the
/// sector boundaries, and in the middle, as a process can be killed between any
/// two instructions.
pub(crate) fn tears(write: &Write) -> Vec<usize> {
    let Write::Bytes { offset, bytes, .. } = write else { return Vec::new() };
    // An aligned word is written atomically.
    if bytes.len() <= 8 {
        return Vec::new();
    }
    let first = SECTOR - offset % SECTOR;
    let mut tears: Vec<_> = (first..bytes.len()).step_by(SECTOR).collect();
    tears.push(bytes.len() / 2);
    tears
}

/// The first `length` bytes of a write.
pub(crate) fn torn(write: &Write, length: usize) -> Write {
    match write {
        Write::Bytes { file, offset, bytes } => {
            Write::Bytes { file: *file, offset: *offset, bytes: bytes[..length].to_vec() }
        }
        other => other.clone(),
    }
}

/// A possible state of `disk` after a power failure that follows `writes`. Of
/// the data written to each file since its last sync, any sectors may be
/// missing, and so may the new length; of the changes to names, the latest may
/// be missing.
pub(crate) fn power_cut(disk: &Disk, writes: &[Write], random: &mut Random) -> Disk {
    let mut written = disk.clone();
    let mut durable = disk.clone();
    let is_name = |write: &Write| {
        !matches!(
            write,
            Write::Bytes { .. }
                | Write::Length { .. }
                | Write::Emptied { .. }
                | Write::Synced { .. }
        )
    };
    let names = writes.iter().filter(|write| is_name(write)).count();
    // Mostly all of them: the files under the new names are the interesting
    // ones.
    let mut names = if random.below(4) == 0 { random.below(names + 1) } else { names };
    let mut left = disk.clone();
    for write in writes {
        written.apply(write);
        match write {
            Write::Synced { file } => {
                let content = written.content(*file).clone();
                *durable.content(*file) = content;
            }
            Write::File { file, .. } => {
                durable.nodes.insert(*file, Node::File(Vec::new()));
                left.nodes.insert(*file, Node::File(Vec::new()));
            }
            Write::Directory { made, .. } => {
                left.nodes.insert(*made, Node::Directory(BTreeMap::new()));
            }
            _ => {}
        }
        if is_name(write) && names > 0 {
            names -= 1;
            left.apply(write);
        }
    }
    // A few sectors are missing, half of them, or nearly all.
    let kept = [9, 5, 1][random.below(3)];
    let files: Vec<_> = left.nodes.keys().copied().collect();
    for id in files {
        if let Some(Node::File(new)) = written.nodes.get(&id)
            && let Some(Node::File(old)) = durable.nodes.get(&id)
        {
            *left.content(id) = mixed(new, old, kept, random);
        }
    }
    left
}

/// The sectors of `new` with a probability of `kept` in ten, else those of
/// `old`.
fn mixed(new: &[u8], old: &[u8], kept: usize, random: &mut Random) -> Vec<u8> {
    let mut mixed = old.to_vec();
    if random.below(10) < kept {
        mixed.resize(new.len().max(old.len()), 0);
    }
    for (sector, target) in new.chunks(SECTOR).zip(mixed.chunks_mut(SECTOR)) {
        if sector.len() == target.len() && sector != target && random.below(10) < kept {
            target.copy_from_slice(sector);
        }
    }
    mixed
}

/// An empty directory, in memory if possible: thousands are made.
pub(crate) fn memory_folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}
