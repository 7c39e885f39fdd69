//! The digest of a message: what its blocks and its attachments are called.
//!
//! Numbers are little-endian: how many blocks there are (4 bytes), what each is
//! called (8), what each whole attachment is called (8).

use crate::trace::{Digester, Fragment};

use super::Hbf;

/// The most attachments that are remembered whole.
pub(super) const MOST_FILES: usize = u16::MAX as usize;

/// A message being digested.
pub(super) struct HbfDigester<'a> {
    hbf: &'a Hbf,
    blocks: Vec<u64>,
    files: Vec<u64>,
    /// What is there of the next block.
    begun: Vec<u8>,
}

impl<'a> HbfDigester<'a> {
    pub(super) fn new(hbf: &'a Hbf) -> Self {
        Self { hbf, blocks: Vec::new(), files: Vec::new(), begun: Vec::new() }
    }

    fn take_in(&mut self, mut bytes: &[u8]) {
        let Self { hbf, blocks, begun, .. } = self;
        let size = usize::from(hbf.settings.block);
        if !begun.is_empty() {
            let (head, rest) = bytes.split_at((size - begun.len()).min(bytes.len()));
            begun.extend_from_slice(head);
            bytes = rest;
            if begun.len() < size {
                return;
            }
            blocks.push(hbf.hashing.block(begun));
            begun.clear();
        }
        let chunks = bytes.chunks_exact(size);
        begun.extend_from_slice(chunks.remainder());
        blocks.extend(chunks.map(|block| hbf.hashing.block(block)));
    }
}

impl Digester for HbfDigester<'_> {
    fn add(&mut self, piece: Fragment<'_>) {
        match piece {
            Fragment::Text(text) => self.take_in(text.as_bytes()),
            Fragment::Bytes(bytes) => self.take_in(bytes),
            Fragment::File(content) if self.files.len() < MOST_FILES => {
                self.files.push(self.hbf.hashing.file(content));
            }
            Fragment::File(_) => {}
        }
    }

    fn finish(self: Box<Self>) -> Vec<u8> {
        let Self { blocks, files, .. } = *self;
        let mut digest = Vec::with_capacity(4 + 8 * (blocks.len() + files.len()));
        // A message of 2^32 blocks would be one of 16 GiB at least.
        digest.extend((blocks.len() as u32).to_le_bytes());
        blocks.iter().chain(&files).for_each(|name| digest.extend(name.to_le_bytes()));
        digest
    }
}

/// The blocks and the attachments of a digest; `None` where it is damaged.
pub(super) fn parse(digest: &[u8]) -> Option<(Vec<u64>, Vec<u64>)> {
    let (count, names) = digest.split_first_chunk()?;
    let (names, rest) = names.as_chunks::<8>();
    let names = names.iter().map(|name| u64::from_le_bytes(*name));
    let mut blocks: Vec<u64> = names.collect();
    let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
    let sound = rest.is_empty() && count <= blocks.len() && blocks.len() - count <= MOST_FILES;
    let files = sound.then(|| blocks.split_off(count))?;
    Some((blocks, files))
}
