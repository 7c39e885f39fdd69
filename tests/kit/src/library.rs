//! The library, built as Exim loads it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The environment variables that hold the paths of the libraries if they are
/// not built by Cargo: in the chroots of `scripts/chroots`.
const GIVEN: &str = "EXIRATE_TEST_LIBRARY";
const TRACE_GIVEN: &str = "EXIRATE_TEST_TRACE_LIBRARY";

/// exirate.so, the release library of the rates, built once for each test run.
///
/// It has its own target folder: Cargo uses the same file name for a `cdylib`
/// with any features, so in the common folder a build of the program would
/// overwrite it with a larger library.
pub fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| given(GIVEN).unwrap_or_else(|| build("exim-rates", "rates", "")))
}

/// exirate-trace.so, the release library of the trace store, built once for each
/// test run.
pub fn built_trace() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| given(TRACE_GIVEN).unwrap_or_else(|| build("exim-trace", "trace", "")))
}

fn given(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from)
}

/// Removes from the environment of `command` what is set for the tests only.
///
/// The build scripts of some crates (ring, proc-macro2) run again when these
/// variables change, and then Cargo compiles again everything that depends on them.
pub fn without_test_variables(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let of_cargo = text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_");
        if of_cargo || text == "RUSTC_BOOTSTRAP" {
            command.env_remove(&name);
        }
    }
}

/// The library of one feature, with additional compiler flags, in a target folder
/// of that name.
pub fn build(folder: &str, feature: &str, flags: &str) -> PathBuf {
    let target = crate::target().join(folder);
    let mut command = Command::new("bash");
    without_test_variables(&mut command);
    if !flags.is_empty() {
        command.env("RUSTFLAGS", flags);
        // This build is not measured.
        for (option, value) in [("LTO", "false"), ("CODEGEN_UNITS", "16"), ("OPT_LEVEL", "0")] {
            command.env(format!("CARGO_PROFILE_RELEASE_{option}"), value);
        }
    }
    let status = command
        .current_dir(crate::repository())
        .env("CARGO_TERM_QUIET", "true")
        .args([
            "-c",
            "source scripts/need.sh && need_rust && build_library \"$1\" \"$2\"",
            "kit",
            feature,
        ])
        .arg(&target)
        .status()
        .expect("bash can be run");
    assert!(status.success(), "the library could not be built: {status}");
    target.join("release/libexirate.so")
}
