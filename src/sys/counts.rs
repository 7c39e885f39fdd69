//! What a run has counted, for `scripts/test` to print at its end.

use std::io::Write;

/// Names the environment variable that holds the path of the file for it.
const FILE: &str = "EXIRATE_TEST_COUNTS";

/// Whether the tests are to take hours: `scripts/test --long`.
#[allow(dead_code)] // not all test binaries have such tests
pub(crate) fn is_long() -> bool {
    std::env::var_os("EXIRATE_TEST_LONG").is_some()
}

/// Tells how many of `what` there were; of what is told more than once,
/// `scripts/test` prints the sum. Where nobody collects it, it is printed at
/// once.
pub(crate) fn tell(what: &str, count: u64) {
    let line = format!("{what}: {count}\n");
    match std::env::var_os(FILE) {
        Some(path) => {
            let mut file = std::fs::File::options().append(true).create(true).open(path).unwrap();
            file.write_all(line.as_bytes()).unwrap();
        }
        // Not by `print!`, which the test harness keeps for itself.
        None => std::io::stdout().write_all(line.as_bytes()).unwrap(),
    }
}
