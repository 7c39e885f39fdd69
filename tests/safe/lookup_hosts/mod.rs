//! The lookup in hosts that no Debian package provides: Exims before 4.100 that
//! load modules, simulated by a small program; and a program that is not Exim.
//! `tests/exim_lookup.rs` tests a real one.

use std::path::{Path, PathBuf};
use std::process::Command;

use kit::library;

/// The host that simulates this version, in `folder`.
fn host(folder: &Path, version: u32) -> PathBuf {
    let program = folder.join(format!("host-{version}"));
    let status = Command::new("cc")
        // It exports everything that the library may call.
        .args(["-rdynamic", "-Wall", "-Wno-unused-parameter", &format!("-DHOST={version}")])
        .arg("-o")
        .arg(&program)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/safe/lookup_hosts/host.c"))
        .arg("-ldl")
        .status()
        .expect("a C compiler is needed: apt-get install gcc libc6-dev");
    assert!(status.success());
    program
}

/// The output of the host of this version for these queries.
fn output(version: u32, queries: &[&str]) -> (String, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    std::fs::create_dir(&spool).unwrap();
    let mut command = Command::new(host(folder.path(), version));
    command.arg(library::built()).arg(&spool).args(queries);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    (String::from_utf8(output.stdout).unwrap(), folder)
}

#[test]
fn each_version_of_exim_gets_its_own_module() {
    let spec = "2.5 / 1h / per_cmd / strict / k";
    for version in [496, 499, 4100] {
        let (said, folder) = output(version, &[spec, spec, spec, "many / 1h", ""]);
        let lines: Vec<&str> = said.lines().collect();
        let report = concat!("Library version: ratelimit: exirate ", env!("CARGO_PKG_VERSION"));
        // Query style; found is 0, deferred 1, not found 2; nothing is kept in
        // Exim's cache.
        let known = ["lookup ratelimit type 1", report, "2|||cached for 0", "2|||cached for 0"];
        assert_eq!(lines[..4], known, "{version}: {said}");
        assert_eq!(lines[4], "0|3.0||cached for 0", "{version}: {said}");
        let fault = "1||error in arguments to \"ratelimit\" condition: \"many\" is not a positive";
        assert!(lines[5].starts_with(fault), "{version}: {said}");
        // A query that Exim itself never makes.
        let fault = "1||error in arguments to \"ratelimit\" condition: ";
        assert!(lines[6].starts_with(fault), "{version}: {said}");
        // The same queries: attributes that do not exist, and an empty name.
        assert_eq!(lines[7], "lookup policy type 1", "{version}: {said}");
        let fault = "1||policy: \"1h / per_cmd / strict / k\" is not an attribute";
        assert!(lines[8].starts_with(fault), "{version}: {said}");
        assert_eq!(lines[12], "0|accept||cached for 0", "{version}: {said}");
        assert_eq!(lines.len(), 13, "{version}: {said}");
        assert!(folder.path().join("spool/exirate").is_dir());
    }
}

#[test]
fn another_program_gets_an_incompatible_module() {
    let (said, folder) = output(0, &["2.5 / 1h / per_cmd / strict / k"]);
    assert_eq!(said, "Lookup module is not compatible with this version of Exim\n");
    assert!(!folder.path().join("spool/exirate").exists());
}
