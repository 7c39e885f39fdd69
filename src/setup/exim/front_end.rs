//! How Exim asks the policies: by the library, or by the socket of `exirate serve mail`.

use std::path::{Path, PathBuf};

/// The library, and the files that the package `exirate-exim` puts beside it.
const LIBRARIES: [&str; 2] = ["/usr/lib/exim4/exirate.so", "/usr/lib/exim4/exirate-libraries.conf"];
const LIBRARY_FILES: &str = "/etc/exim4/exirate";
/// The files for the socket, of the package `exirate`.
const SOCKET_FILES: &str = "/usr/share/exirate/exim";

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrontEnd {
    Library,
    Socket,
}

impl FrontEnd {
    /// Which of them this Exim can use: `dlfunc` says whether it loads libraries.
    pub(super) fn choose(dlfunc: bool, socket: bool) -> Result<Self, String> {
        let is_installed = LIBRARIES.iter().all(|path| Path::new(path).exists());
        let chosen = if dlfunc && !socket { Self::Library } else { Self::Socket };
        if chosen == Self::Library && !is_installed {
            return Err("this Exim loads libraries, and the package that has exirate's is not \
                        installed: run `apt-get install ./exirate-exim_*.deb`, then `exirate \
                        setup` again; or let Exim ask a daemon, which takes more time a check: \
                        `exirate setup --socket`"
                .to_owned());
        }
        if !chosen.file("acl_policy").exists() {
            return Err(format!(
                "{} does not exist: install the package that has it again",
                chosen.file("acl_policy").display()
            ));
        }
        Ok(chosen)
    }

    /// Its name, for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Library => "by the library",
            Self::Socket => "by the socket",
        }
    }

    /// The path of a file that Exim is to include.
    pub(super) fn file(self, name: &str) -> PathBuf {
        match self {
            Self::Library => Path::new(LIBRARY_FILES).join(format!("{name}.conf")),
            Self::Socket => Path::new(SOCKET_FILES).join(format!("{name}.conf")),
        }
    }

    /// The line that includes it. Exim goes on where the file is gone.
    pub(super) fn include(self, name: &str) -> String {
        format!(".include_if_exists {}\n", self.file(name).display())
    }
}
