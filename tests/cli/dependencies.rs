//! What the program and the libraries are linked with: licences, and how few crates
//! Exim loads.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::prepared::ROOT;

/// Licences that the project's own (MIT or Apache-2.0) may be combined with.
const PERMISSIVE: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// The crates that exirate.so depends on. One more adds to the time that every SMTP
/// connection takes to load it.
const RATES: &[&str] = &[
    "bincode",
    "crc32fast",
    "fs2",
    "libc",
    "libloading",
    "memmap2",
    "rand",
    "rustix",
    "siphasher",
];

/// Those that exirate-trace.so depends on as well.
const TRACE: &[&str] =
    &["chacha20", "encoding_rs", "libm", "mail-parser", "memchr", "sha2", "unicode-normalization"];

fn cargo(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(env!("CARGO"))
        .current_dir(ROOT)
        .args(arguments)
        .args(["--locked", "--offline"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Whether an SPDX expression lets everybody choose permissive licences.
fn is_permissive(expression: &str) -> bool {
    // Older crates separate alternatives by a slash.
    let expression = expression.replace('/', " OR ").replace(['(', ')'], " ");
    let mut all = expression.split(" AND ").map(str::trim);
    all.all(|part| part.split(" OR ").any(|licence| PERMISSIVE.contains(&licence.trim())))
}

#[test]
fn every_dependency_has_a_permissive_licence() {
    assert!(is_permissive("MIT/Apache-2.0") && is_permissive("(MIT OR GPL-2.0) AND Unicode-3.0"));
    for refused in ["GPL-3.0", "MIT AND LGPL-2.1", "MPL-2.0", ""] {
        assert!(!is_permissive(refused), "{refused}");
    }
    // Those of this machine: others may not have been fetched.
    let host = Command::new("rustc").arg("-vV").output().unwrap().stdout;
    let host = String::from_utf8(host).unwrap();
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let metadata =
        cargo(&["metadata", "--format-version=1", "--all-features", "--filter-platform", host]);
    let metadata: Value = serde_json::from_slice(&metadata).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 50, "{}", packages.len());
    for package in packages {
        let licence = package["license"].as_str().unwrap_or_default();
        assert!(is_permissive(licence), "{} has the licence {licence:?}", package["name"]);
    }
}

#[test]
fn exim_loads_few_crates() {
    for (feature, more) in [("rates", &[][..]), ("trace", TRACE)] {
        let tree = ["tree", "--no-default-features", "--features", feature, "--edges=normal"];
        let tree = cargo(&[&tree[..], &["--depth=1", "--prefix=none"]].concat());
        let tree = String::from_utf8(tree).unwrap();
        let names: BTreeSet<_> = tree.lines().skip(1).filter_map(|l| l.split(' ').next()).collect();
        let expected: BTreeSet<_> = RATES.iter().chain(more).copied().collect();
        assert_eq!(names, expected, "{feature}");
    }
}
