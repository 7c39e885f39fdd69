//! The digest of a message: the hashes of its blocks and its attachments.
//!
//! Numbers are little-endian: the number of blocks (4 bytes), the hash of each
//! block (8), the hash of each whole attachment (8).

use crate::trace::{Digester, Fragment, file_hash};

use super::Hbf;

/// The maximum number of attachments that are recorded as a whole.
pub(super) const FILES_MAX: usize = u16::MAX as usize;

/// A message being digested.
pub(super) struct HbfDigester<'a> {
    hbf: &'a Hbf,
    blocks: Vec<u64>,
    files: Vec<u64>,
    /// The beginning of the next block.
    partial: Vec<u8>,
}

impl<'a> HbfDigester<'a> {
    pub(super) fn new(hbf: &'a Hbf) -> Self {
        Self { hbf, blocks: Vec::new(), files: Vec::new(), partial: Vec::new() }
    }

    fn add_bytes(&mut self, mut bytes: &[u8]) {
        let Self { hbf, blocks, partial, .. } = self;
        let size = usize::from(hbf.settings.block);
        if !partial.is_empty() {
            let (head, rest) = bytes.split_at((size - partial.len()).min(bytes.len()));
            partial.extend_from_slice(head);
            bytes = rest;
            if partial.len() < size {
                return;
            }
            blocks.push(hbf.hashing.block(partial));
            partial.clear();
        }
        let chunks = bytes.chunks_exact(size);
        partial.extend_from_slice(chunks.remainder());
        blocks.extend(chunks.map(|block| hbf.hashing.block(block)));
    }
}

impl Digester for HbfDigester<'_> {
    fn add(&mut self, piece: Fragment<'_>) {
        match piece {
            Fragment::Text(text) => self.add_bytes(text.as_bytes()),
            Fragment::Bytes(bytes) => self.add_bytes(bytes),
            Fragment::File(content) if self.files.len() < FILES_MAX => {
                self.files.push(self.hbf.hashing.file(&file_hash(content)));
            }
            Fragment::File(_) => {}
        }
    }

    fn finish(self: Box<Self>) -> Vec<u8> {
        let Self { blocks, files, .. } = *self;
        let mut digest = Vec::with_capacity(4 + 8 * (blocks.len() + files.len()));
        // A message of 2^32 blocks would have at least 16 GiB.
        digest.extend((blocks.len() as u32).to_le_bytes());
        blocks.iter().chain(&files).for_each(|name| digest.extend(name.to_le_bytes()));
        digest
    }
}

/// The blocks and the attachments of a digest; `None` if it is damaged.
pub(super) fn parse(digest: &[u8]) -> Option<(Vec<u64>, Vec<u64>)> {
    let (count, names) = digest.split_first_chunk()?;
    let (names, rest) = names.as_chunks::<8>();
    let names = names.iter().map(|name| u64::from_le_bytes(*name));
    let mut blocks: Vec<u64> = names.collect();
    let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
    let sound = rest.is_empty() && count <= blocks.len() && blocks.len() - count <= FILES_MAX;
    let files = sound.then(|| blocks.split_off(count))?;
    Some((blocks, files))
}
