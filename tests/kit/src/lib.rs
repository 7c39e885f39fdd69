//! What the tests and benchmarks of exirate share: servers and clients of their own, generated
//! mail, random numbers, and readers of our files that follow only the documents.
//!
//! It does not depend on exirate, so that the unit tests of `src` use it too, and nothing here
//! has one of exirate's types.

pub mod addresses;
pub mod agreement;
pub mod browser;
pub mod clock;
pub mod counts;
pub mod demonstration;
pub mod entry_point;
pub mod exim;
pub mod fields;
pub mod formats;
pub mod front_ends;
pub mod habits;
pub mod innocents;
pub mod library;
pub mod machine;
pub mod mail;
pub mod mounts;
pub mod network;
pub mod office;
pub mod process;
pub mod program;
pub mod property;
pub mod random;
pub mod redis;
pub mod setup;
pub mod sink;
pub mod smtp;
pub mod spool_image;
pub mod table;
pub mod trace_format;
pub mod worker;

use std::path::{Path, PathBuf};

pub use clock::FakeClock;
pub use entry_point::EntryPoint;
pub use exim::PrivateExim;
pub use process::{Process, TIMEOUT, until, until_another_second};
pub use program::{copy_program, write_script};
pub use property::{generator, quick_check};
pub use random::Random;
pub use setup::Setup;
pub use smtp::{Client, Reply};

/// The folder of the repository.
pub fn repository() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("it is tests/kit")
}

/// The program `exirate`, which Cargo built for this test.
///
/// Unit tests and this package do not have Cargo's variable with its path.
pub fn exirate() -> PathBuf {
    profile().join("exirate")
}

/// The target folder with what Cargo builds.
pub fn target() -> PathBuf {
    let profile = profile();
    profile.parent().expect("target/PROFILE").to_owned()
}

/// A path as one word of a shell's line.
pub fn shell_quoted(path: impl AsRef<Path>) -> String {
    let path = path.as_ref().to_str().expect("a path in UTF-8");
    format!("'{}'", path.replace('\'', r"'\''"))
}

/// The folder in which Cargo puts what it builds in this profile: this test is in its `deps`.
fn profile() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    test.ancestors().nth(2).expect("target/PROFILE/deps/TEST").to_owned()
}
