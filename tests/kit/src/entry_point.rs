//! The entry point of the library that is tested: dlfunc or lookup.

use std::path::PathBuf;
use std::sync::OnceLock;

/// The environment variable that selects it: `dlfunc`, the default, or
/// `lookup`, which requires an Exim that loads lookups.
const CHOICE: &str = "EXIRATE_TEST_ENTRY";

/// One of the two entry points of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryPoint {
    /// `${dlfunc{EXIRATE}{ratelimit}{SPEC}}`.
    Dlfunc,
    /// `${lookup ratelimit {SPEC}…}`: the module that Exim itself finds.
    Lookup,
}

impl EntryPoint {
    /// The entry point for this test run.
    ///
    /// # Panics
    /// If the environment names an unknown one.
    pub fn chosen() -> Self {
        static CHOSEN: OnceLock<EntryPoint> = OnceLock::new();
        *CHOSEN.get_or_init(|| match std::env::var(CHOICE).as_deref() {
            Err(_) | Ok("dlfunc") => Self::Dlfunc,
            Ok("lookup") => Self::Lookup,
            Ok(other) => panic!("{CHOICE}={other}: expected dlfunc or lookup"),
        })
    }

    /// The file that Exim loads for this entry point: one file for both is one
    /// library, with one latest decision.
    ///
    /// # Panics
    /// If Exim has no directory for lookups that contains ours.
    /// Where Exim has no directory for lookups, or not with ours in it.
    pub fn module() -> PathBuf {
        std::fs::read_dir("/usr/lib/exim4")
            .unwrap()
            .map(|entry| entry.unwrap().path().join("ratelimit_lookup.so"))
            .find(|path| path.exists())
            .expect("ratelimit_lookup.so among the lookups of an exim4-daemon-mod")
    }

    /// An expansion that is `yes` if a spec is over its limit, else `no`.
    pub fn ask(self, spec: &str) -> String {
        match self {
            Self::Dlfunc => format!("${{dlfunc{{EXIRATE}}{{ratelimit}}{{{spec}}}}}"),
            Self::Lookup => format!("${{lookup ratelimit {{{spec}}}{{yes}}{{no}}}}"),
        }
    }

    /// The same, with a literal key as a separate argument.
    pub fn ask_key(self, spec: &str, key: &str) -> String {
        match self {
            Self::Dlfunc => format!("${{dlfunc{{EXIRATE}}{{ratelimit}}{{{spec}}}{{{key}}}}}"),
            Self::Lookup => format!("${{lookup ratelimit {{{spec} / key={key}}}{{yes}}{{no}}}}"),
        }
    }
}
