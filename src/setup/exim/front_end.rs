//! How Exim asks the policies: by the library, or by the socket of `exirate serve mail`.

use std::path::{Path, PathBuf};

use crate::mta::exim::debian::{LIBRARY_FILES, SOCKET_FILES};
use crate::serve::config::{Address, CALLERS};
use crate::serve::mail::surroundings::USER as UNIT;
use crate::setup::change::Change;
use crate::setup::daemon::DaemonNeeds;
use crate::setup::plan::Plan;
use crate::setup::service::{Service, has_systemd};

/// The library, and the file that names it.
const LIBRARIES: [&str; 2] = ["exirate.so", "exirate-libraries.conf"];
/// Where the package `exirate-exim` puts them.
const LIBRARY_FOLDER: &str = "/usr/lib/exim4";

/// The socket, which `exirate.toml` names as well.
pub(super) const SOCKET: &str = "/var/lib/exirate/exim/policy";

/// What the init script of the daemon for callers reads.
const DEFAULT: &str = "/etc/default/exirate-mail";

/// One of the two, and where its files are.
#[derive(Clone, Debug)]
pub(super) struct FrontEnd {
    /// By the socket, else by the library.
    pub(super) socket: bool,
    /// The directory of the libraries.
    pub(super) libraries: PathBuf,
    /// The directory of the files that Exim is to include.
    pub(super) files: PathBuf,
}

impl FrontEnd {
    /// Which of them this Exim can use: `dlfunc` says whether it loads libraries, `config` is what it
    /// reads.
    ///
    /// An Exim that asks by the socket goes on with it: `setup --enforce` needs no `--socket`.
    pub(super) fn choose(dlfunc: bool, socket: bool, config: &Path) -> Self {
        let socket = socket || !dlfunc || Self::is_asked_by_socket();
        let exe = std::env::current_exe().unwrap_or_default();
        let prefix = exe.parent().and_then(Path::parent).unwrap_or(Path::new("/usr/local"));
        Self::below(prefix, socket, config)
    }

    /// With the files of the packages, else with those that `scripts/install` put there with this
    /// program, below the same `prefix`.
    fn below(prefix: &Path, socket: bool, config: &Path) -> Self {
        let ours = prefix.join("lib/exim");
        let (packaged, files) = if socket {
            (Path::new(SOCKET_FILES).exists(), prefix.join("share/exirate/exim"))
        } else {
            let config = config.parent().unwrap_or(Path::new("/"));
            (!ours.join(LIBRARIES[0]).exists(), config.join("exirate"))
        };
        if packaged || !files.exists() {
            let files = if socket { SOCKET_FILES } else { LIBRARY_FILES };
            return Self { socket, libraries: LIBRARY_FOLDER.into(), files: files.into() };
        }
        Self { socket, libraries: ours, files }
    }

    /// Whether the daemon's configuration names the socket of Exim's lines.
    fn is_asked_by_socket() -> bool {
        let mail = DaemonNeeds::configured().ok().flatten();
        mail.is_some_and(|mail| mail.policy == Some(Address::Unix(SOCKET.into())))
    }

    /// Whether what it needs is installed.
    ///
    /// # Errors
    /// What to install.
    pub(super) fn is_installed(&self) -> Result<(), String> {
        if !self.socket && !LIBRARIES.iter().all(|name| self.libraries.join(name).exists()) {
            return Err("this Exim loads libraries, and the package that has exirate's is not \
                        installed: run `apt-get install ./exirate-exim_*.deb` (without Debian's \
                        packages, the archive's `install`), then `exirate setup` again; or let \
                        Exim ask a daemon, which takes more time per check: \
                        `exirate setup --socket`"
                .to_owned());
        }
        let one = self.file("acl_policy");
        if !one.exists() {
            return Err(format!(
                "{} does not exist: reinstall the package that contains it",
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
    pub(super) fn daemon(&self, group: String) -> Option<DaemonNeeds> {
        let (asker, key, socket) = ("Exim", "policy", PathBuf::from(SOCKET));
        self.socket.then_some(DaemonNeeds { asker, key, socket, group: Some(group) })
    }
}

/// Has the daemon run that decides about the accounts which start an Exim with the library and this
/// spool directory themselves, as its `user`.
pub(super) fn decide_for_callers(plan: &mut Plan, spool: &Path, user: &str) {
    let name = match has_systemd() {
        true => format!("{UNIT}@{user}"),
        false => {
            if !Path::new(DEFAULT).exists() {
                let text = format!(
                    "# Written by `exirate setup`: the daemon decides about accounts that start Exim \
                     themselves.\nuser={user}\ncallers={}\n",
                    spool.display()
                );
                let file = DEFAULT.into();
                plan.prepare.push(Change::Create { file, text, mode: 0o644 });
            }
            UNIT.to_owned()
        }
    };
    let service = Service::look(&name, &spool.join(CALLERS));
    if !service.is_up() {
        plan.prepare.push(Change::Start(service));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_the_archive_installed_is_found_beside_the_program() {
        let root = tempfile::tempdir().unwrap();
        let (prefix, config) = (root.path().join("local"), root.path().join("exim/exim.conf"));
        let of = |socket| FrontEnd::below(&prefix, socket, &config);
        assert_eq!(of(false).files, Path::new(LIBRARY_FILES));
        for folder in ["local/lib/exim", "local/share/exirate/exim", "exim/exirate"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        assert_eq!(of(false).files, Path::new(LIBRARY_FILES));
        for name in LIBRARIES {
            fs::write(prefix.join("lib/exim").join(name), "").unwrap();
        }
        assert_eq!(of(false).files, root.path().join("exim/exirate"));
        assert!(of(false).is_installed().unwrap_err().contains("acl_policy.conf does not exist"));
        fs::write(root.path().join("exim/exirate/acl_policy.conf"), "").unwrap();
        assert!(of(false).is_installed().is_ok());
        if !Path::new(SOCKET_FILES).exists() {
            assert_eq!(of(true).files, prefix.join("share/exirate/exim"));
        }
    }
}
