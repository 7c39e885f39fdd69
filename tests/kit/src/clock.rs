//! A clock that a test can set for all processes of one or more Exims.

use std::path::{Path, PathBuf};

/// Real time plus an offset, through libfaketime.
pub struct FakeClock {
    library: PathBuf,
    offset_file: PathBuf,
    folder: tempfile::TempDir,
}

impl FakeClock {
    /// # Panics
    /// If libfaketime is not installed (Debian's package `libfaketime`).
    pub fn new() -> Self {
        let library = std::fs::read_dir("/usr/lib")
            .unwrap()
            .filter_map(Result::ok)
            .map(|e| e.path().join("faketime/libfaketime.so.1"))
            .find(|p| p.exists())
            .expect("libfaketime is needed: apt-get install faketime");
        let folder = tempfile::tempdir().unwrap();
        crate::exim::open_to_all(folder.path());
        let offset_file = folder.path().join("offset");
        let clock = Self { library, offset_file, folder };
        clock.set(0);
        clock
    }

    /// Sets the clock `offset` seconds ahead of real time.
    pub fn set(&self, offset: i64) {
        self.write(&format!("{offset:+}"));
    }

    /// Stops the clock at `moment`, such as `2026-11-20 10:50:37` in the time
    /// zone of the process.
    pub fn freeze(&self, moment: &str) {
        self.write(moment);
    }

    fn write(&self, time: &str) {
        // A rename, so that no reader sees an empty file.
        let new = self.folder.path().join("new");
        std::fs::write(&new, format!("{time}\n")).unwrap();
        std::fs::rename(&new, &self.offset_file).unwrap();
    }

    /// The environment that makes a process use this clock.
    pub fn environment(&self) -> Vec<(&'static str, &Path)> {
        vec![
            ("LD_PRELOAD", &self.library),
            ("FAKETIME_TIMESTAMP_FILE", &self.offset_file),
            ("FAKETIME_NO_CACHE", Path::new("1")),
            ("FAKETIME_DONT_FAKE_MONOTONIC", Path::new("1")),
            ("NO_FAKE_STAT", Path::new("1")),
        ]
    }
}
