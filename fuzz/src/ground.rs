//! One database in memory, created again for each input.

use std::cell::{OnceCell, RefCell};
use std::path::PathBuf;

use exirate::engine::AlgorithmKind;

use crate::image;

/// The shard of the keys of [`key`].
pub const SHARD: u8 = 0x3f;
/// The number of these keys.
const KEYS: usize = 64;
/// The number of further keys, for growth.
const MORE: u16 = 1024;

thread_local! {
    static KEYS_OF_SHARD: OnceCell<Vec<Vec<u8>>> = const { OnceCell::new() };
    static BEYOND: RefCell<Vec<(u64, Vec<u8>)>> = const { RefCell::new(Vec::new()) };
    static FOLDER: OnceCell<PathBuf> = const { OnceCell::new() };
}

/// A key of the shard; the last quarter of the keys have a [`period`] that is long
/// over.
pub fn key(number: u8) -> Vec<u8> {
    KEYS_OF_SHARD.with(|keys| {
        let keys = keys.get_or_init(|| {
            let plain = image::keys_of(SHARD).take(KEYS * 3 / 4);
            let timed = (0_u64..)
                .map(|n| format!("1s/per_mail/{n}").into_bytes())
                .filter(|key| image::Position::of(key).shard == SHARD);
            plain.chain(timed.take(KEYS / 4)).collect()
        });
        keys[usize::from(number) % KEYS].clone()
    })
}

/// One of the algorithms.
pub fn algorithm(number: u8) -> AlgorithmKind {
    match number % 4 {
        0 => AlgorithmKind::Bucket,
        1 => AlgorithmKind::Calendar,
        _ => AlgorithmKind::MovingAverage,
    }
}

/// The period of a key in seconds; 0 for those that are never forgotten.
pub fn period(key: &[u8]) -> u32 {
    u32::from(key.starts_with(b"1s/"))
}

/// A key of the shard that is not one of [`key`]'s.
pub fn key_beyond(number: u16) -> Vec<u8> {
    BEYOND.with_borrow_mut(|keys| {
        while keys.len() <= usize::from(number % MORE) {
            let found = (keys.last().map_or(0, |&(n, _)| n + 1)..)
                .map(|n: u64| (n, format!("beyond {n}").into_bytes()))
                .find(|(_, key)| image::Position::of(key).shard == SHARD);
            keys.extend(found);
        }
        keys[usize::from(number % MORE)].1.clone()
    })
}

/// The spool directory of this process; `scripts/fuzz` puts it in memory.
pub fn folder() -> PathBuf {
    FOLDER.with(|folder| {
        folder
            .get_or_init(|| {
                let name = format!("exirate-fuzz-{}", std::process::id());
                let folder = std::env::temp_dir().join(name);
                std::fs::create_dir_all(folder.join("exirate")).unwrap();
                folder
            })
            .clone()
    })
}

/// Creates the database again, with `shard` as its only one.
pub fn lay(shard: &[u8]) {
    let directory = folder().join("exirate");
    for entry in std::fs::read_dir(&directory).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    std::fs::write(directory.join("database"), image::database()).unwrap();
    std::fs::write(directory.join(format!("{SHARD:02x}.shard")), shard).unwrap();
}
