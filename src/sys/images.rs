//! A disk in memory, made from a directory and from what was written there
//! since: what a process that is killed, or a machine that loses its power,
//! leaves behind.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::write_trace::{self, Id, Write};

/// What a disk writes in one piece.
pub(crate) const SECTOR: usize = 512;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    File(Vec<u8>),
    Directory(BTreeMap<CString, Id>),
}

/// All that is under one directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    root: Id,
    nodes: HashMap<Id, Node>,
}

impl Disk {
    /// What is there now.
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
            other => panic!("no directory: {other:?}"),
        }
    }

    fn content(&mut self, file: Id) -> &mut Vec<u8> {
        match self.nodes.get_mut(&file) {
            Some(Node::File(bytes)) => bytes,
            other => panic!("no file: {other:?}"),
        }
    }

    /// Makes a write.
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

    /// What can be reached from the root, for comparing.
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

    /// Makes all of it in an empty directory.
    pub(crate) fn lay_out(&self, folder: &Path) {
        self.lay_out_directory(self.root, folder);
    }

    fn lay_out_directory(&self, id: Id, folder: &Path) {
        let Node::Directory(names) = &self.nodes[&id] else { panic!("no directory") };
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
                    self.lay_out_directory(*child, &path);
                }
            }
        }
    }
}

/// Where the last of `writes` can be torn: in how many bytes of it are made.
/// At the sectors' boundaries, and in its midst, as a process is killed
/// between any two of its instructions.
pub(crate) fn tears(write: &Write) -> Vec<usize> {
    let Write::Bytes { offset, bytes, .. } = write else { return Vec::new() };
    // A word is written in one step.
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

/// Random numbers, the same in each run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((self.0 >> 33) % end as u64) as usize
    }
}

/// What may be left of `disk` when the power fails after `writes`: of what was
/// written to each file since it was synced, any sectors may be missing, and
/// so may its new length; of what happened to names, the latest.
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
    // Mostly all of them: what is under the new names is what matters.
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
    // Few are missing, half, or nearly all.
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

/// Sectors of `new`, ten of which `kept` are there, and those of `old`
/// otherwise.
fn mixed(new: &[u8], old: &[u8], kept: usize, random: &mut Random) -> Vec<u8> {
    let mut mixed = old.to_vec();
    if random.below(10) < kept {
        mixed.resize(new.len().max(old.len()), 0);
    }
    for (sector, place) in new.chunks(SECTOR).zip(mixed.chunks_mut(SECTOR)) {
        if sector.len() == place.len() && sector != place && random.below(10) < kept {
            place.copy_from_slice(sector);
        }
    }
    mixed
}

/// An empty directory, in memory where that is possible: it is done thousands
/// of times.
pub(crate) fn memory_folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}
