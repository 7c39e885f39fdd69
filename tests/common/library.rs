//! The library, built as Exim loads it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

static BUILT: OnceLock<PathBuf> = OnceLock::new();

/// Names the environment variable that holds the path of the library, where
/// there is no Cargo to build it: in the chroots of `scripts/chroots`.
const GIVEN: &str = "EXIRATE_TEST_LIBRARY";

/// The release library without the program's crates, built once a test run.
///
/// It has a target folder of its own: Cargo gives a `cdylib` the same file
/// name whatever its features, so in the common folder a build of the program
/// would put its larger library in this one's place.
pub fn built() -> &'static Path {
    let given = || std::env::var_os(GIVEN).map(PathBuf::from);
    BUILT.get_or_init(|| given().unwrap_or_else(|| build("exim-library", "")))
}

/// The same with `flags` for the compiler, in a target folder of that name.
pub fn build(folder: &str, flags: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name(folder);
    let mut command = Command::new(env!("CARGO"));
    // Set for this test and its timing only; a build must not depend on it.
    command.env_remove("RUSTC_BOOTSTRAP");
    if !flags.is_empty() {
        command.env("RUSTFLAGS", flags);
        // Nobody measures this one.
        for option in ["lto=false", "codegen-units=16", "opt-level=1"] {
            command.arg("--config").arg(format!("profile.release.{option}"));
        }
    }
    let status = command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--quiet", "--release", "--no-default-features", "--lib"])
        .arg("--target-dir")
        .arg(&target)
        .status()
        .expect("cargo can be run");
    assert!(status.success(), "the library could not be built: {status}");
    target.join("release/libexirate.so")
}
