//! How Exim asks the policies: by the library, or by the socket of `exirate serve mail`.

use std::path::{Path, PathBuf};

use crate::serve::config::Address;
use crate::setup::daemon::Daemon;

/// The library, and the files that the package `exirate-exim` puts beside it.
const LIBRARIES: [&str; 2] = ["/usr/lib/exim4/exirate.so", "/usr/lib/exim4/exirate-libraries.conf"];
const LIBRARY_FILES: &str = "/etc/exim4/exirate";
/// The files for the socket, of the package `exirate`.
const SOCKET_FILES: &str = "/usr/share/exirate/exim";

/// The socket, which `exirate.toml` names as well.
pub(super) const SOCKET: &str = "/var/lib/exirate/exim/policy";

/// One of the two, and where its files are.
#[derive(Clone, Debug)]
pub(super) struct FrontEnd {
    /// By the socket, else by the library.
    pub(super) socket: bool,
    /// The directory of the files that Exim is to include.
    pub(super) files: PathBuf,
}

impl FrontEnd {
    /// Which of them this Exim can use: `dlfunc` says whether it loads libraries.
    ///
    /// An Exim that asks by the socket goes on with it: `setup --enforce` needs no `--socket`.
    pub(super) fn choose(dlfunc: bool, socket: bool) -> Self {
        let socket = socket || !dlfunc || Self::is_asked_by_socket();
        let files = if socket { SOCKET_FILES } else { LIBRARY_FILES };
        Self { socket, files: files.into() }
    }

    /// Whether the daemon's configuration names the socket of Exim's lines.
    fn is_asked_by_socket() -> bool {
        let mail = Daemon::configured().ok().flatten();
        mail.is_some_and(|mail| mail.policy == Some(Address::Unix(SOCKET.into())))
    }

    /// Whether what it needs is installed.
    ///
    /// # Errors
    /// What to install.
    pub(super) fn is_installed(&self) -> Result<(), String> {
        if !self.socket && !LIBRARIES.iter().all(|path| Path::new(path).exists()) {
            return Err("this Exim loads libraries, and the package that has exirate's is not \
                        installed: run `apt-get install ./exirate-exim_*.deb`, then `exirate \
                        setup` again; or let Exim ask a daemon, which takes more time a check: \
                        `exirate setup --socket`"
                .to_owned());
        }
        let one = self.file("acl_policy");
        if !one.exists() {
            return Err(format!(
                "{} does not exist: install the package that has it again",
                one.display()
            ));
        }
        Ok(())
    }

    /// Its name, for people.
    pub(super) fn name(&self) -> &'static str {
        if self.socket { "by the socket" } else { "by the library" }
    }

    /// The path of a file that Exim is to include.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.files.join(format!("{name}.conf"))
    }

    /// The line that includes it. Exim goes on where the file is gone.
    pub(super) fn include(&self, name: &str) -> String {
        format!(".include_if_exists {}\n", self.file(name).display())
    }

    /// The daemon that is asked, if one is; `group` is Exim's.
    pub(super) fn daemon(&self, group: String) -> Option<Daemon> {
        let (asker, key, socket) = ("Exim", "policy", PathBuf::from(SOCKET));
        self.socket.then_some(Daemon { asker, key, socket, group: Some(group) })
    }
}
