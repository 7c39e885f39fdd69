//! The configuration of a private Exim.

use crate::clock::FakeClock;
use crate::entry_point::EntryPoint;
use crate::exim::{PROGRAM, PROXY, PrivateExim, USER, open_to_all, user};
use std::fmt::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// The configuration of a [`PrivateExim`], in parts.
///
/// The macros `EXIRATE` and `EXIRATE_TRACE` are the paths of the libraries in the
/// private folder, and `PRIVATE` is that folder.
#[derive(Clone, Default)]
pub struct Setup {
    main: String,
    acls: String,
    authenticators: String,
    routers: String,
    transports: String,
    library: bool,
    callers: bool,
    socket: Option<PathBuf>,
    program: Option<PathBuf>,
    environment: Vec<(&'static str, PathBuf)>,
}

impl Setup {
    /// Accepts everything and delivers nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds lines to the main section.
    #[must_use]
    pub fn main(mut self, lines: &str) -> Self {
        self.main.push_str(lines.trim_end());
        self.main.push('\n');
        self
    }

    /// Sets an ACL option such as `acl_smtp_rcpt` to an ACL with this text.
    #[must_use]
    pub fn acl(mut self, option: &str, text: &str) -> Self {
        let name = option.replace("acl_", "private_");
        let _ = writeln!(self.main, "{option} = {name}");
        let _ = writeln!(self.acls, "{name}:\n{}\n", text.trim_end());
        self
    }

    /// Adds named ACLs, literally.
    #[must_use]
    pub fn acls(mut self, text: &str) -> Self {
        self.acls.push_str(text.trim_end());
        self.acls.push('\n');
        self
    }

    /// AUTH PLAIN: any user, with the password `good`; `$authenticated_id` is
    /// the user.
    #[must_use]
    pub fn auth(self) -> Self {
        self.auth_if("${if eq{$auth3}{good}}")
    }

    /// AUTH PLAIN with a custom condition.
    #[must_use]
    pub fn auth_if(mut self, condition: &str) -> Self {
        let _ = writeln!(
            self.authenticators,
            "plain:\n  driver = plaintext\n  public_name = PLAIN\n  server_prompts = :\n  \
             server_condition = {condition}\n  server_set_id = $auth2"
        );
        self
    }

    /// Connections can come from clients with addresses that are not loopback: exirate takes all
    /// loopback addresses for one client.
    #[must_use]
    pub fn proxied(self) -> Self {
        self.main(&format!("hosts_proxy = {PROXY}"))
    }

    /// Adds a router before the one that discards.
    #[must_use]
    pub fn router(mut self, text: &str) -> Self {
        self.routers.push_str(text.trim_end());
        self.routers.push_str("\n\n");
        self
    }

    /// Adds a transport.
    #[must_use]
    pub fn transport(mut self, text: &str) -> Self {
        self.transports.push_str(text.trim_end());
        self.transports.push_str("\n\n");
        self
    }

    /// Copies the built libraries into the folder, to `EXIRATE` and `EXIRATE_TRACE`.
    #[must_use]
    pub fn library(mut self) -> Self {
        self.library = true;
        self
    }

    /// With the daemon that decides about the accounts that start this Exim themselves.
    #[must_use]
    pub fn callers(mut self) -> Self {
        self.callers = true;
        self
    }

    /// Without the macros of the libraries: policies are asked by this socket.
    #[must_use]
    pub fn socket(mut self, path: &Path) -> Self {
        self.socket = Some(path.to_owned());
        self
    }

    /// The Exim of another Debian release, in the chroot of this name, which runs here with the
    /// libraries of the chroot.
    #[must_use]
    pub fn of_chroot(mut self, name: &str) -> Self {
        let root = Path::new("/var/cache/exirate-chroots").join(name);
        assert!(root.join(".complete").exists(), "scripts/chroots make {name}");
        self.program = Some(root);
        self
    }

    /// Makes all processes use this clock.
    #[must_use]
    pub fn clock(mut self, clock: &FakeClock) -> Self {
        self.environment =
            clock.environment().into_iter().map(|(k, v)| (k, v.to_owned())).collect();
        self.main("keep_environment = LD_PRELOAD : FAKE_CLOCK")
    }

    /// Creates the folder and the configuration; starts nothing.
    ///
    /// # Panics
    /// If Exim is not installed, or the test does not run as root, which it
    /// needs to see Exim's use of privileges.
    pub fn build(self) -> PrivateExim {
        assert!(
            Path::new(PROGRAM).exists(),
            "{PROGRAM} is needed: apt-get install exim4-daemon-heavy"
        );
        let uid = std::fs::metadata("/proc/self").unwrap().uid();
        assert_eq!(uid, 0, "these tests start Exim as root does, so they must run as root");

        let folder = tempfile::Builder::new().prefix("private-exim-").tempdir().unwrap();
        open_to_all(folder.path());
        let owner = user(USER);
        for name in ["spool", "log"] {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).unwrap();
            chown(&path, Some(owner.0), Some(owner.1)).unwrap();
        }
        if self.library {
            let copy = folder.path().join("exirate.so");
            if EntryPoint::chosen() == EntryPoint::Lookup {
                std::os::unix::fs::symlink(EntryPoint::module(), &copy).unwrap();
            } else {
                install(crate::library::built(), &copy);
            }
            install(crate::library::built_trace(), &folder.path().join("exirate-trace.so"));
        }
        let config = folder.path().join("exim.conf");
        std::fs::write(&config, self.text(folder.path())).unwrap();
        std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o644)).unwrap();
        let program = self.program.map_or_else(
            || PROGRAM.into(),
            |root| {
                let script = folder.path().join("exim4");
                let root = root.display();
                // The link in lib64 may be absolute.
                let text = format!(
                    "#!/bin/sh\nfor loader in {root}/lib/*-linux-gnu*/ld-linux*.so.*; do :; done\n\
                 folder=${{loader%/*}}\nexec \"$loader\" --library-path \
                 \"$folder:{root}/usr${{folder#{root}}}\" {root}/usr/sbin/exim4 \"$@\"\n"
                );
                crate::write_script(&script, &text);
                script
            },
        );
        let exim = PrivateExim::new(folder, config, self.environment, program);
        if self.callers { exim.with_callers() } else { exim }
    }

    /// The whole configuration. Settings of a test replace the defaults: Exim
    /// refuses an option that is set twice.
    fn text(&self, folder: &Path) -> String {
        let folder = folder.display();
        let mut main = match &self.socket {
            Some(socket) => {
                format!("PRIVATE = {folder}\nRATELIMIT_SOCKET = {}\n", socket.display())
            }
            None => format!(
                "PRIVATE = {folder}\nEXIRATE_TRACE = {folder}/exirate-trace.so\n\
                 EXIRATE = {folder}/exirate.so\n"
            ),
        };
        for default in DEFAULTS {
            let name = default.split(" =").next().unwrap_or(default);
            let set = |l: &str| l.split('=').next().is_some_and(|n| n.trim() == name);
            if !self.main.lines().any(set) {
                let _ = writeln!(main, "{default}");
            }
        }
        main.push_str(&self.main);
        format!(
            "{main}\n\
             begin acl\n\n{}\n\
             begin routers\n\n{}discard:\n  driver = redirect\n  data = :blackhole:\n  address_data = $local_part\n\n\
             begin transports\n\n{}begin authenticators\n\n{}",
            self.acls, self.routers, self.transports, self.authenticators
        )
    }
}

/// Copies a library, so that Exim may load it.
pub fn install(library: &Path, path: &Path) {
    std::fs::copy(library, path).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
}

/// The defaults of the main section.
const DEFAULTS: &[&str] = &[
    "primary_hostname = private.test",
    "qualify_domain = private.test",
    "smtp_banner = private.test ESMTP",
    "exim_user = Debian-exim",
    "exim_group = Debian-exim",
    "spool_directory = PRIVATE/spool",
    "log_file_path = PRIVATE/log/%slog",
    "acl_smtp_rcpt = accept",
    // No delivery: messages stay in the private spool.
    "queue_only = true",
    // No network queries.
    "host_lookup =",
    "rfc1413_query_timeout = 0s",
    "dkim_verify_signers =",
    "tls_advertise_hosts =",
    "keep_environment =",
    // No limits except those of the tests.
    "smtp_accept_max = 100",
    "smtp_accept_max_nonmail = 100000",
    "smtp_max_synprot_errors = 100000",
    "smtp_max_unknown_commands = 100000",
    "smtp_enforce_sync = false",
];
