//! `exirate rules --references`: which lines of a configuration use exirate, and that no line of
//! ours stops Exim when its file is gone.

use std::fs;
use std::path::Path;

use crate::{exirate, stderr, stdout};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// A statement that uses the library.
const LIMIT: &str =
    "defer condition = ${dlfunc{/usr/lib/exim4/exirate.so}{ratelimit}{1 / 1h / strict}}";

/// What it prints of the files, of which the first is the configuration; `HERE` is their folder,
/// here and in what it prints.
fn references(files: &[(&str, &str)]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().to_str().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text.replace("HERE", here).replace("  LIMIT\n", &format!("  {LIMIT}\n")))
            .unwrap();
    }
    let mut command = exirate();
    command.args(["rules", "--references", "--config"]).arg(folder.path().join(files[0].0));
    // Not the folder of the configuration.
    let output = command.current_dir("/").output().unwrap();
    let lines = stdout(&output);
    let status = i32::from(!lines.is_empty());
    assert_eq!((output.status.code(), &*stderr(&output)), (Some(status), ""));
    lines.lines().map(|line| line.replace(here, "HERE").replace(LIMIT, "LIMIT")).collect()
}

#[test]
fn included_files_are_found_as_exim_finds_them() {
    let acl = "begin acl\ncheck:\n  LIMIT\n  accept\n";
    for (main, name) in [
        // From the directory of the including file.
        (".include sub/acl.conf\n", "sub/acl.conf"),
        (".include \"HERE/acl.conf\"\n", "acl.conf"),
        ("PART = HERE/sub\n.include PART/acl.conf\n", "sub/acl.conf"),
        ("PART = HERE\nFILE = PART/sub/acl.conf\n.include_if_exists FILE\n", "sub/acl.conf"),
        // A macro within a longer word, and one that is given another value.
        ("UB = nothing\nUB == ub\n.include HERE/sUB/acl.conf\n", "sub/acl.conf"),
        // As Debian includes an own file.
        (
            "CHECK_DATA_LOCAL_ACL_FILE = HERE/acl.conf\n.ifdef CHECK_DATA_LOCAL_ACL_FILE\n\
             .include CHECK_DATA_LOCAL_ACL_FILE\n.endif\n",
            "acl.conf",
        ),
        // An ACL that is a file.
        ("acl_smtp_rcpt = HERE/acl.conf\n", "acl.conf"),
    ] {
        let found = references(&[("exim.conf", main), (name, acl)]);
        assert_eq!(found, [format!("HERE/{name}:3: LIMIT")], "{main}");
    }
    // Through two files, relative to each.
    let files = [
        ("exim.conf", ".include a/one.conf\n"),
        ("a/one.conf", ".include b/two.conf\n"),
        ("a/b/two.conf", acl),
    ];
    assert_eq!(references(&files), ["HERE/a/b/two.conf:3: LIMIT"]);
}

#[test]
fn every_way_to_use_it_is_found() {
    for line in [
        "acl_smtp_rcpt = acl_exirate_check_rcpt",
        "RATELIMIT_POLICIES = yes",
        "RATELIMIT_CHECK_RCPT = yes",
        "TRACE_CHECK_DATA = yes",
        ".include_if_exists /etc/exim4/exirate/exirate.conf",
        "CHECK_DATA_LOCAL_ACL_FILE = /etc/exim4/exirate/acl_check_data_trace.conf",
        "EXIRATE = /opt/limits.so",
    ] {
        let file = format!("primary_hostname = x\n{line}\n");
        assert_eq!(references(&[("exim.conf", &file)]), [format!("HERE/exim.conf:2: {line}")]);
    }
    for condition in [
        "${lookup policy {outbound}}",
        "${lookup ratelimit{1 / 1h}}",
        "${dlfunc{EXIRATE}{policy}{*}}",
    ] {
        let file = format!("begin acl\nx:\n  warn\n    set acl_m_x = {condition}\n  accept\n");
        let expected = [
            "HERE/exim.conf:3: warn".to_owned(),
            format!("HERE/exim.conf:4: set acl_m_x = {condition}"),
        ];
        assert_eq!(references(&[("exim.conf", &file)]), expected);
    }
    // Macros of ours, and a folder of the files in one of their own.
    let file = "DIR = /etc/exim4/exirate\nOVER = ${dlfunc{EXIRATE}{ratelimit}\n\
                begin acl\nx:\n.include DIR/acl_policy.conf\n  deny condition = OVER{1 / 1h}}\n";
    let numbers: Vec<usize> = references(&[("exim.conf", file)])
        .iter()
        .map(|line| line.split(':').nth(1).unwrap().parse().unwrap())
        .collect();
    assert_eq!(numbers, [2, 5, 6]);
    let other =
        "RATELIMIT_USER = 5 / 1h\nbegin acl\nx:\n  warn ratelimit = 1 / 1h / strict\n  accept\n";
    assert_eq!(references(&[("exim.conf", other)]), [""; 0]);
}

/// A plain `.include` of a file that is gone stops Exim.
#[test]
fn no_line_of_ours_is_a_plain_include() {
    let mut folders = ["exim", "docs", "debian", "scripts", "src", "README.md", "CHANGELOG.md"]
        .map(|name| Path::new(ROOT).join(name))
        .to_vec();
    let (mut files, mut lines) = (0, 0);
    while let Some(path) = folders.pop() {
        if path.is_dir() {
            folders.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
        files += 1;
        lines += text.matches(".include_if_exists /").count();
        // What is included: a path of ours, or one that a script or the program fills in.
        let plain = text.lines().find(|line| {
            line.split(".include ").skip(1).any(|rest| {
                let rest = rest.trim_start_matches('"');
                rest.starts_with("/etc/exim")
                    || rest.starts_with("$folder")
                    || rest.starts_with("$etc")
            })
        });
        assert_eq!(plain, None, "{}", path.display());
        let local = text.lines().find(|line| line.contains("_LOCAL_ACL_FILE = /etc/exim4/exirate"));
        assert_eq!(local, None, "Debian includes it plainly: {}", path.display());
    }
    assert!(files > 100 && lines > 15, "{files} files, {lines} lines");
}
