//! Counts collected during a test run, which `scripts/test` prints at the end.

use std::io::Write;

/// The environment variable that holds the path of the file with the counts.
const FILE: &str = "EXIRATE_TEST_COUNTS";

/// Whether the long tests run, which take hours: `scripts/test --long`.
pub fn is_long() -> bool {
    std::env::var_os("EXIRATE_TEST_LONG").is_some()
}

/// Records how many of `what` there were. `scripts/test` prints the sum for
/// each `what`. Without a file to collect it, the count is printed at once.
pub fn record(what: &str, count: u64) {
    let line = format!("{what}: {count}\n");
    match std::env::var_os(FILE) {
        Some(path) => {
            let mut file = std::fs::File::options().append(true).create(true).open(path).unwrap();
            file.write_all(line.as_bytes()).unwrap();
        }
        // Not `print!`: the test harness captures that.
        None => std::io::stdout().write_all(line.as_bytes()).unwrap(),
    }
}
