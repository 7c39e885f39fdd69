//! `scripts/install` with a temporary DESTDIR.
//!
//! `scripts/try-package` tries what the script and the packages install with real
//! Exims.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use kit::library::without_test_variables;
use kit::write_script;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Runs `scripts/install ARGUMENTS` with `root` as DESTDIR.
fn run(root: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(Path::new(ROOT).join("scripts/install"));
    without_test_variables(&mut command);
    command.args(arguments).env("DESTDIR", root).output().unwrap()
}

/// The same, which must succeed; returns its output.
fn install(root: &Path, arguments: &[&str]) -> String {
    let output = run(root, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The same, which must fail; returns the error.
fn refused(root: &Path, arguments: &[&str]) -> String {
    let output = run(root, arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Every file and link below `root`: its mode, and its bytes or where it points.
fn everything(root: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if meta.is_dir() {
                folders.push(path);
            } else if meta.is_symlink() {
                let target = fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes();
                all.insert(name, (0, target));
            } else {
                all.insert(name, (meta.permissions().mode() & 0o7777, fs::read(&path).unwrap()));
            }
        }
    }
    all
}

/// A program that answers like an Exim, for `--exim`.
fn pretended_exim(folder: &Path, support: &str, config: &str, more: &str) -> PathBuf {
    let path = folder.join("exim");
    let text = format!(
        "#!/bin/sh\n# {more}\ncase $1 in\n-bV) echo 'Exim version 4.99'; echo 'Support for: \
         {support}' ;;\n-bP) case $2 in\nconfigure_file) echo {config} ;;\nexim_user) echo \
         'exim_user = mailer' ;;\nspool_directory) echo 'spool_directory = /opt/spool' ;;\nesac \
         ;;\nesac\n"
    );
    write_script(&path, &text);
    path
}

#[test]
fn everything_is_installed_once() {
    let root = TempDir::new().unwrap();
    let printed = install(root.path(), &["--exim", "none"]);
    let first = everything(root.path());
    for (path, mode) in [
        ("usr/lib/exim4/exirate.so", 0o644),
        ("usr/lib/exim4/exirate-trace.so", 0o644),
        ("usr/lib/exim4/exirate-libraries.conf", 0o644),
        ("usr/local/bin/exirate", 0o755),
        ("usr/local/share/man/man8/exirate.8", 0o644),
        ("usr/local/share/man/man8/exirate-list.8", 0o644),
        ("usr/local/share/bash-completion/completions/exirate", 0o644),
        ("usr/local/share/zsh/site-functions/_exirate", 0o644),
        ("usr/local/share/fish/vendor_completions.d/exirate.fish", 0o644),
        ("usr/local/lib/systemd/system/exirate-agent.service", 0o644),
        ("usr/local/lib/systemd/system/exirate-alerts.service", 0o644),
        ("usr/local/lib/systemd/system/exirate-broker@.service", 0o644),
        ("usr/local/lib/systemd/system/exirate-follow@.service", 0o644),
        ("usr/local/lib/systemd/system/exirate-held.service", 0o644),
        ("usr/local/lib/systemd/system/exirate-mail.service", 0o644),
        ("usr/local/lib/systemd/system/exirate-mail@.service", 0o644),
        ("usr/local/lib/systemd/system/exirate-stats.service", 0o644),
        ("usr/local/lib/systemd/system/exirate-stats.timer", 0o644),
        ("usr/local/lib/systemd/system/exirate-undecided.service", 0o644),
        ("usr/local/lib/systemd/system/exirate-undecided.timer", 0o644),
        ("usr/local/lib/systemd/system/exirate-verify.service", 0o644),
        ("usr/local/lib/systemd/system/exirate-verify.timer", 0o644),
        ("usr/local/lib/systemd/system/exirate-waiting.service", 0o644),
        ("usr/local/lib/systemd/system/exirate-waiting.timer", 0o644),
        ("usr/local/lib/systemd/system/exirate-web@.service", 0o644),
        ("usr/local/lib/sysusers.d/exirate.conf", 0o644),
        ("usr/local/lib/tmpfiles.d/exirate.conf", 0o644),
        ("etc/init.d/exirate-alerts", 0o755),
        ("etc/init.d/exirate-mail", 0o755),
        ("usr/local/share/exirate/exirate.cron", 0o644),
        ("usr/local/share/exirate/exirate.toml", 0o644),
        ("usr/local/share/exirate/exirate.rules.yml", 0o644),
        ("usr/local/share/exirate/exirate.filter.conf", 0o644),
        ("usr/local/share/exirate/exirate.jail.conf", 0o644),
        ("etc/exim4/conf.d/main/00_exirate", 0o644),
        ("etc/exim4/conf.d/acl/25_exirate", 0o644),
    ] {
        assert_eq!(
            first.get(path).unwrap_or_else(|| panic!("{path}: {printed}")).0,
            mode,
            "{path}"
        );
    }
    for entry in fs::read_dir(Path::new(ROOT).join("exim")).unwrap() {
        let entry = entry.unwrap();
        let path = format!("etc/exim4/exirate/{}", entry.file_name().to_str().unwrap());
        assert_eq!(first[&path].1, fs::read(entry.path()).unwrap(), "{path}");
    }
    let program = Command::new(root.path().join("usr/local/bin/exirate")).arg("--version").output();
    assert!(program.unwrap().status.success());
    let next = "exirate limits nothing yet. The next command: /usr/local/bin/exirate setup\n";
    assert!(printed.ends_with(next), "{printed}");

    let again = install(root.path(), &["--exim", "none"]);
    assert!(!again.contains("writes ") && again.contains("leaves "), "{again}");
    assert_eq!(everything(root.path()), first);
}

#[test]
fn edited_files_are_kept() {
    let root = TempDir::new().unwrap();
    let conf = root.path().join("etc/exim4/exirate");
    fs::create_dir_all(&conf).unwrap();
    fs::write(conf.join("limits"), "here before us: 1 / 1h\n").unwrap();
    install(root.path(), &["--exim", "none"]);
    fs::write(conf.join("exirate.conf"), "# mine\n").unwrap();
    fs::remove_file(conf.join("acl_not_smtp.conf")).unwrap();
    // As if an older version had installed another text, which nobody edited.
    fs::write(conf.join("acl_check_data.conf"), "# old\n").unwrap();
    let list = root.path().join("usr/local/share/exirate/installed");
    let sum = Command::new("sha256sum").arg(conf.join("acl_check_data.conf")).output().unwrap();
    let sum = String::from_utf8(sum.stdout).unwrap()[..64].to_owned();
    let text = fs::read_to_string(&list).unwrap();
    let old =
        text.lines().find(|l| l.starts_with("conf ") && l.contains("acl_check_data")).unwrap();
    let old_sum = old.split(' ').nth(1).unwrap();
    fs::write(&list, text.replace(old, &old.replace(old_sum, &sum))).unwrap();

    let printed = install(root.path(), &["--exim", "none"]);
    assert_eq!(fs::read_to_string(conf.join("limits")).unwrap(), "here before us: 1 / 1h\n");
    assert_eq!(fs::read_to_string(conf.join("exirate.conf")).unwrap(), "# mine\n");
    assert!(!conf.join("acl_not_smtp.conf").exists());
    let shipped = fs::read(Path::new(ROOT).join("exim/acl_check_data.conf")).unwrap();
    assert_eq!(fs::read(conf.join("acl_check_data.conf")).unwrap(), shipped);
    for said in ["exirate.conf with your changes", "acl_not_smtp.conf, which you removed"] {
        assert!(printed.contains(said), "{printed}");
    }
    // An edited file is kept again by the next installation.
    install(root.path(), &["--exim", "none"]);
    assert_eq!(fs::read_to_string(conf.join("exirate.conf")).unwrap(), "# mine\n");

    install(root.path(), &["--uninstall", "--purge"]);
    let left: Vec<String> = everything(root.path()).into_keys().collect();
    assert_eq!(left, ["etc/exim4/exirate/limits"], "it was never ours");
}

#[test]
fn uninstalling_removes_everything() {
    let root = TempDir::new().unwrap();
    fs::create_dir_all(root.path().join("usr/local/bin")).unwrap();
    install(root.path(), &["--exim", "none", "--dry-run"]);
    assert!(everything(root.path()).is_empty(), "--dry-run did something");
    install(root.path(), &["--exim", "none"]);
    let all = everything(root.path());
    install(root.path(), &["--uninstall", "--purge", "--dry-run"]);
    assert_eq!(everything(root.path()), all);

    install(root.path(), &["--uninstall"]);
    let left: Vec<String> = everything(root.path()).into_keys().collect();
    let list = "usr/local/share/exirate/installed";
    assert!(left.iter().any(|path| path == "etc/exim4/exirate/exirate.conf"), "{left:?}");
    assert!(left.iter().all(|path| path.starts_with("etc/exim4/") || path == list), "{left:?}");
    install(root.path(), &["--uninstall", "--purge"]);
    assert!(everything(root.path()).is_empty());
    let folders: Vec<PathBuf> =
        fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(folders, [root.path().join("usr")]);
    assert!(root.path().join("usr/local/bin").exists(), "a folder that was there before");
    assert!(!root.path().join("usr/lib").exists(), "a folder that was not");
    let complaint = refused(root.path(), &["--uninstall"]);
    assert!(complaint.contains("nothing is installed under /usr/local"), "{complaint}");
}

#[test]
fn another_exim_has_other_paths() {
    let root = TempDir::new().unwrap();
    let other = TempDir::new().unwrap();
    let modules = other.path().join("lookups");
    fs::create_dir(&modules).unwrap();
    let exim = pretended_exim(
        other.path(),
        "Expand_dlfunc",
        "/opt/exim/configure",
        modules.to_str().unwrap(),
    );
    let printed =
        install(root.path(), &["--exim", exim.to_str().unwrap(), "--prefix", "/opt/exirate/"]);
    let all = everything(root.path());
    let library = "opt/exirate/lib/exim/exirate.so";
    assert!(all.contains_key(library) && all.contains_key("opt/exirate/bin/exirate"), "{printed}");
    let conf = String::from_utf8(all["opt/exim/exirate/exirate.conf"].1.clone()).unwrap();
    let named = "opt/exirate/lib/exim/exirate-libraries.conf";
    assert!(conf.contains(&format!("\n.include_if_exists /{named}\n")), "{conf}");
    let named = String::from_utf8(all[named].1.clone()).unwrap();
    let trace = "opt/exirate/lib/exim/exirate-trace.so";
    assert!(all.contains_key(trace), "{printed}");
    // Exim refuses a macro whose name contains that of an earlier one.
    let (first, second) = named.split_once(&format!("\nEXIRATE = /{library}\n")).unwrap();
    assert!(first.contains(&format!("\nEXIRATE_TRACE = /{trace}\n")), "{named}");
    assert!(!second.contains("EXIRATE"), "{named}");
    assert!(conf.contains("\nRATELIMIT_FILE = /opt/exim/exirate/limits\n"), "{conf}");
    assert!(printed.ends_with("The next command: /opt/exirate/bin/exirate setup\n"), "{printed}");
    assert!(!all.keys().any(|path| path.contains("conf.d")), "{:?}", all.keys());
    let unit = |name: &str| {
        String::from_utf8(all[&format!("etc/systemd/system/{name}")].1.clone()).unwrap()
    };
    let verify = unit("exirate-verify.service");
    assert!(verify.contains("\nExecStart=/opt/exirate/bin/exirate verify\n"), "{verify}");
    let follow = unit("exirate-follow@.service");
    let may_write = " -/var/lib/exirate -/opt/spool/exirate\n";
    assert!(follow.contains("\nReadWritePaths=-/var/spool/exim4/exirate "), "{follow}");
    assert!(
        follow.contains(may_write)
            && !["@SPOOLS@", "@DATABASES@", "@TRACES@"].iter().any(|name| follow.contains(name)),
        "{follow}"
    );
    let links = ["ratelimit_lookup.so", "policy_lookup.so"].map(|name| {
        let link = modules.join(name);
        link.strip_prefix("/").unwrap().to_str().unwrap().to_owned()
    });
    for link in &links {
        assert_eq!(all[link].1, format!("/{library}").into_bytes());
    }

    // The next Exim has no lookups: the old link is removed.
    pretended_exim(other.path(), "Expand_dlfunc", "/opt/exim/configure", "");
    install(root.path(), &["--exim", exim.to_str().unwrap(), "--prefix", "/opt/exirate"]);
    let left = everything(root.path());
    assert!(links.iter().all(|link| !left.contains_key(link)), "{:?}", left.keys());
    install(root.path(), &["--uninstall", "--purge", "--prefix=/opt/exirate"]);
    assert!(everything(root.path()).is_empty());
}

#[test]
fn impossible_options_are_refused() {
    let root = TempDir::new().unwrap();
    let other = TempDir::new().unwrap();
    let exim = pretended_exim(other.path(), "IPv6", "/etc/exim4/exim4.conf", "");
    let exim = exim.to_str().unwrap();
    for (arguments, said) in [
        (&["--exim", exim][..], "cannot load libraries: it was built without dlfunc"),
        (&["--exim", "/nowhere/exim"], "there is no program /nowhere/exim"),
        (&["--exim", "true"], "is not an Exim"),
        (&["--prefix", "here"], "--prefix needs a full path"),
        (&["--prefix"], "--prefix needs a value"),
        (&["--purge"], "--purge needs --uninstall"),
        (&["--force"], "--force needs --uninstall"),
        (&["--uninstall", "--purge", "--force"], "--force keeps the configuration"),
        (&["--frobnicate"], "there is no option --frobnicate"),
    ] {
        let complaint = refused(root.path(), arguments);
        assert!(complaint.contains(said), "{arguments:?}: {complaint}");
    }
    assert!(everything(root.path()).is_empty());
}

/// Of the machine itself, whose program says which mail is held.
#[test]
fn what_would_leave_mail_held_is_not_removed() {
    let folder = TempDir::new().unwrap();
    let prefix = folder.path().to_str().unwrap();
    fs::create_dir_all(folder.path().join("share/exirate")).unwrap();
    fs::create_dir(folder.path().join("bin")).unwrap();
    let installed = format!("{prefix}/bin/link");
    let list = folder.path().join("share/exirate/installed");
    let says = |text: &str, status: i32| {
        fs::write(&list, format!("link /nonexistent {installed}\n")).unwrap();
        let _ = std::os::unix::fs::symlink("/nonexistent", &installed);
        let script = format!("#!/bin/sh\n[ \"$*\" = held ] && echo '{text}'\nexit {status}\n");
        write_script(folder.path().join("bin/exirate"), &script);
    };
    let is_there = || fs::symlink_metadata(&installed).is_ok();
    let (none, uninstall) = (Path::new(""), ["--uninstall", "--prefix", prefix]);
    says("2 messages of auth:carol", 1);
    let complaint = refused(none, &uninstall);
    for said in ["\n2 messages of auth:carol\n", "/bin/exirate held release KEY\n", "--force"] {
        assert!(complaint.contains(said), "{said}: {complaint}");
    }
    install(none, &[&uninstall[..], &["--dry-run"]].concat());
    assert!(is_there(), "something was removed");
    install(none, &[&uninstall[..], &["--force"]].concat());
    assert!(!is_there());
    // No mail is held, or no mail server can be asked.
    for status in [0, 2] {
        says("", status);
        install(none, &uninstall);
        assert!(!is_there(), "{status}");
    }
}

/// One number, in four files.
#[test]
fn one_version_is_released() {
    let version = env!("CARGO_PKG_VERSION");
    let text = |path: &str| fs::read_to_string(Path::new(ROOT).join(path)).unwrap();
    let changes = text("CHANGELOG.md");
    let released = |line: &&str| line.starts_with("## [") && *line != "## [Unreleased]";
    let top = changes.lines().find(released).unwrap();
    let date = top.strip_prefix(&format!("## [{version}] - ")).expect(top);
    let debian = text("debian/changelog");
    assert!(debian.starts_with(&format!("exirate ({version}-1) ")), "{debian}");
    let entry = debian.lines().find_map(|line| line.split_once(">  ")).unwrap().1;
    let made = Command::new("date").args(["--utc", "+%F", "--date", entry]).output().unwrap();
    assert_eq!(String::from_utf8(made.stdout).unwrap().trim(), date);
    let page = Command::new(env!("CARGO_BIN_EXE_exirate")).args(["man", "list"]).output().unwrap();
    let page = String::from_utf8(page.stdout).unwrap();
    assert!(page.contains(&format!("\"exirate {version}\"")), "{page}");
}
