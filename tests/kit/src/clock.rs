//! A clock that a test can set for all processes of one or more Exims.

use std::path::{Path, PathBuf};

/// What a process loads first to have this clock; `clock.c` says which time it has.
pub const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/clock.so"));

/// The time of this machine plus an offset, or a moment at which the clock stands still.
pub struct FakeClock {
    library: PathBuf,
    time: PathBuf,
    folder: tempfile::TempDir,
}

impl FakeClock {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        crate::exim::open_to_all(folder.path());
        let library = folder.path().join("clock.so");
        std::fs::write(&library, LIBRARY).unwrap();
        let clock = Self { library, time: folder.path().join("time"), folder };
        clock.set(0);
        clock
    }

    /// Sets the clock `offset` seconds ahead of real time.
    pub fn set(&self, offset: i64) {
        self.write(&format!("{offset:+}"));
    }

    /// Stops the clock at `moment`, such as `2026-11-20 10:50:37`, in UTC.
    pub fn freeze(&self, moment: &str) {
        self.write(&format!("@{}", seconds(moment)));
    }

    fn write(&self, time: &str) {
        // A rename, so that no reader sees an empty file.
        let new = self.folder.path().join("new");
        std::fs::write(&new, time).unwrap();
        std::fs::rename(&new, &self.time).unwrap();
    }

    /// The environment that makes a process use this clock.
    pub fn environment(&self) -> [(&'static str, &Path); 2] {
        [("LD_PRELOAD", &self.library), ("FAKE_CLOCK", &self.time)]
    }
}

/// The Unix time of a moment such as `2026-11-20 10:50:37`, in UTC.
fn seconds(moment: &str) -> i64 {
    let numbers: Vec<i64> =
        moment.split(['-', ' ', ':']).map(|number| number.parse().expect(moment)).collect();
    let [year, month, day, hour, minute, second] = numbers[..] else {
        panic!("{moment}: not a date and a time");
    };
    // As if a year began in March: then the leap day is its last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    // The days from 1 March of the year 0 to 1 January 1970.
    (((days - 719_468) * 24 + hour) * 60 + minute) * 60 + second
}
