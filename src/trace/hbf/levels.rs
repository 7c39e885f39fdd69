//! The hierarchy of blocks.
//!
//! At level l, groups of 2^l blocks are numbered from 0; only whole groups
//! count. They are inserted in the order of their last blocks, lower levels
//! first.

use super::hashing::Hashing;

/// A group of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) level: u32,
    /// Its number at its level.
    pub(super) number: u64,
}

impl Group {
    /// The number of its last block.
    pub(super) fn last_block(self) -> u64 {
        ((self.number + 1) << self.level) - 1
    }

    /// The number of groups of the message that are inserted before it.
    pub(super) fn place(self) -> u64 {
        groups(self.last_block()) + u64::from(self.level)
    }
}

/// The number of groups of so many blocks: half as many at each higher level.
pub(super) fn groups(blocks: u64) -> u64 {
    2 * blocks - u64::from(blocks.count_ones())
}

/// Passes all groups of a message and their hashes to `group`, in the order of
/// insertion.
pub(super) fn each(hashing: &Hashing, blocks: &[u64], mut group: impl FnMut(Group, u64)) {
    // The group without a partner at each level, the lowest level last.
    let mut single: Vec<u64> = Vec::new();
    for (number, &block) in (0..).zip(blocks) {
        let (mut content, mut this) = (block, Group { level: 0, number });
        group(this, content);
        while let Some(left) = (this.number % 2 == 1).then(|| single.pop()).flatten() {
            content = hashing.pair(left, content);
            this = Group { level: this.level + 1, number: this.number / 2 };
            group(this, content);
        }
        single.push(content);
    }
}

/// The hashes of groups of consecutive blocks at each level, by their first
/// block, including groups that do not begin at a multiple of their size.
pub(super) fn all(hashing: &Hashing, blocks: Vec<u64>) -> Vec<Vec<u64>> {
    let mut levels = vec![blocks];
    let mut width = 1;
    while let Some(below) = levels.last() {
        let pairs = below.iter().zip(below.get(width..).unwrap_or_default());
        let level: Vec<u64> = pairs.map(|(left, right)| hashing.pair(*left, *right)).collect();
        if level.is_empty() {
            break;
        }
        levels.push(level);
        width *= 2;
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_example() {
        // "(S0 S1 S2 S3 0), (S0 S1 0), (S2 S3 1), (S0 0), (S1 1), (S2 2), (S3 3)"
        let mut found = Vec::new();
        each(&Hashing::new(&[0; 32]), &[10, 11, 12, 13], |group, _| {
            found.push((group.level, group.number));
        });
        assert_eq!(found, [(0, 0), (0, 1), (1, 0), (0, 2), (0, 3), (1, 1), (2, 0)]);
    }

    #[test]
    fn positions_and_hashes_are_those_of_insertion() {
        let hashing = Hashing::new(&[1; 32]);
        for count in 0..70_u64 {
            let blocks: Vec<u64> = (0..count).map(|n| n * n).collect();
            let named = all(&hashing, blocks.clone());
            let mut place = 0;
            each(&hashing, &blocks, |group, content| {
                assert_eq!(group.place(), place);
                assert!(group.last_block() < count);
                let first = (group.number << group.level) as usize;
                assert_eq!(named[group.level as usize][first], content);
                place += 1;
            });
            assert_eq!(place, groups(count));
        }
    }
}
