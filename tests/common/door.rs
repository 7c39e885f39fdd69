//! Through which of its doors the library is asked.

use std::path::PathBuf;
use std::sync::OnceLock;

/// Names the environment variable that chooses: `dlfunc`, where it is not set,
/// or `lookup`, which wants an Exim that loads lookups.
const CHOICE: &str = "EXIRATE_TEST_DOOR";

/// One of the two ways into the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// `${dlfunc{EXIRATE}{ratelimit}{SPEC}}`.
    Dlfunc,
    /// `${lookup ratelimit {SPEC}…}`: the module that Exim itself finds.
    Lookup,
}

impl Door {
    /// The one that this run is about.
    ///
    /// # Panics
    /// Where the environment names a door that there is not.
    pub fn chosen() -> Self {
        static CHOSEN: OnceLock<Door> = OnceLock::new();
        *CHOSEN.get_or_init(|| match std::env::var(CHOICE).as_deref() {
            Err(_) | Ok("dlfunc") => Self::Dlfunc,
            Ok("lookup") => Self::Lookup,
            Ok(other) => panic!("{CHOICE}={other}: there are the doors dlfunc and lookup"),
        })
    }

    /// Where Exim has the library that it uses for this door: one file for
    /// both doors is one library, with one memory of what was answered last.
    ///
    /// # Panics
    /// Where Exim has no directory for lookups, or not with ours in it.
    pub fn module() -> PathBuf {
        std::fs::read_dir("/usr/lib/exim4")
            .unwrap()
            .map(|entry| entry.unwrap().path().join("ratelimit_lookup.so"))
            .find(|path| path.exists())
            .expect("ratelimit_lookup.so among the lookups of an exim4-daemon-mod")
    }

    /// What expands to `yes` where a spec is over its limit, else to `no`.
    pub fn ask(self, spec: &str) -> String {
        match self {
            Self::Dlfunc => format!("${{dlfunc{{EXIRATE}}{{ratelimit}}{{{spec}}}}}"),
            Self::Lookup => format!("${{lookup ratelimit {{{spec}}}{{yes}}{{no}}}}"),
        }
    }

    /// The same, with the key apart from the spec, where it is taken as it is.
    pub fn ask_key(self, spec: &str, key: &str) -> String {
        match self {
            Self::Dlfunc => format!("${{dlfunc{{EXIRATE}}{{ratelimit}}{{{spec}}}{{{key}}}}}"),
            Self::Lookup => format!("${{lookup ratelimit {{{spec} / key={key}}}{{yes}}{{no}}}}"),
        }
    }
}
