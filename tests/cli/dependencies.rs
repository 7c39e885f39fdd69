//! What the program and the libraries are linked with: that `deny.toml` permits it, that the
//! packages have the licences, and how few crates Exim loads.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use toml::de::{DeTable, DeValue};

use crate::prepared::ROOT;

/// The packages of this repository: the program with its libraries, and the kit of the tests.
const OWN: [&str; 2] = ["exirate", "exirate-test-kit"];

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
    "thiserror",
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

/// The parts of an SPDX expression that must all hold, each as its alternatives.
fn alternatives(expression: &str) -> Vec<Vec<String>> {
    // Older crates separate alternatives by a slash.
    let expression = expression.replace('/', " OR ").replace(['(', ')'], " ");
    let of = |part: &str| part.split(" OR ").map(|one| one.trim().to_owned()).collect();
    expression.split(" AND ").map(of).collect()
}

/// All packages of the program, of its tests and of what compiles it, on this machine: those
/// of others may not have been fetched.
fn packages() -> Vec<Value> {
    let host = Command::new("rustc").arg("-vV").output().unwrap().stdout;
    let host = String::from_utf8(host).unwrap();
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let metadata =
        cargo(&["metadata", "--format-version=1", "--all-features", "--filter-platform", host]);
    let metadata: Value = serde_json::from_slice(&metadata).unwrap();
    let packages = metadata["packages"].as_array().unwrap().clone();
    assert!(packages.len() > 50, "{}", packages.len());
    packages
}

/// What `deny.toml` says, in the words of cargo-deny.
#[derive(Clone, Debug, Default)]
struct Deny {
    licences: Vec<String>,
    registries: Vec<String>,
    /// `crate@version`, of which another version may be used as well.
    skipped: Vec<String>,
    denied: Vec<String>,
}

impl Deny {
    /// # Panics
    /// If an exception has no reason, or something is set as it is not checked here.
    fn read() -> Self {
        let text = std::fs::read_to_string(Path::new(ROOT).join("deny.toml")).unwrap();
        let (document, errors) = DeTable::parse_recoverable(&text);
        assert!(errors.is_empty(), "{errors:?}");
        let mut deny = Self::default();
        for (section, table) in document.get_ref() {
            let section = section.get_ref().as_ref();
            for (key, value) in table.get_ref().as_table().unwrap() {
                let value = value.get_ref();
                let strings = || -> Vec<String> {
                    let all = value.as_array().unwrap().iter();
                    all.map(|one| one.get_ref().as_str().unwrap().to_owned()).collect()
                };
                let exceptions = |what: &str| -> Vec<String> {
                    let all = value.as_array().unwrap().iter();
                    let named = all.map(|one| {
                        let of = |key: &str| {
                            let found = one.get_ref().as_table().and_then(|one| one.get(key));
                            found.and_then(|found| found.get_ref().as_str()).unwrap_or_default()
                        };
                        assert!(of("reason").len() > 10, "{section}.{}: {one:?}", key.get_ref());
                        of(what).to_owned()
                    });
                    named.collect()
                };
                match (section, key.get_ref().as_ref(), value) {
                    ("licenses", "allow", _) => deny.licences = strings(),
                    ("sources", "allow-registry", _) => deny.registries = strings(),
                    ("bans", "skip", _) => deny.skipped = exceptions("crate"),
                    ("bans", "deny", _) => deny.denied = exceptions("crate"),
                    ("advisories", "ignore", _) => drop(exceptions("id")),
                    ("graph", "all-features", DeValue::Boolean(true))
                    | ("bans", "allow-wildcard-paths", DeValue::Boolean(true)) => {}
                    (
                        "bans" | "sources",
                        "multiple-versions" | "wildcards" | "unknown-registry" | "unknown-git",
                        DeValue::String(what),
                    ) if what == "deny" => {}
                    (_, key, _) => unreachable!("{section}.{key} is not checked"),
                }
            }
        }
        deny
    }

    /// What it does not permit, and what it need not permit.
    fn faults(&self, packages: &[Value]) -> Vec<String> {
        let mut faults = Vec::new();
        let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let (mut used, mut skipped) = (BTreeSet::new(), BTreeSet::new());
        for package in packages {
            let of = |key: &str| package[key].as_str().unwrap_or_default();
            let (name, version) = (of("name"), of("version"));
            versions.entry(name).or_default().insert(version);
            for part in alternatives(of("license")) {
                if part.iter().all(|one| !self.licences.contains(one)) {
                    faults.push(format!("{name} has the licence {:?}", of("license")));
                }
                used.extend(part);
            }
            let registry = of("source").strip_prefix("registry+");
            if !OWN.contains(&name)
                && !registry.is_some_and(|r| self.registries.iter().any(|a| a == r))
            {
                faults.push(format!("{name} is from {:?}", of("source")));
            }
            if self.denied.iter().any(|denied| denied == name) {
                faults.push(format!("{name} is denied"));
            }
            let mut own = package["dependencies"].as_array().into_iter().flatten();
            let is_any = |one: &Value| one["req"] == "*" && one["path"].is_null();
            if OWN.contains(&name) && own.any(is_any) {
                faults.push("a version is *".to_owned());
            }
        }
        for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
            let left = versions.iter().filter(|version| {
                let one = format!("{name}@{version}");
                let is_skipped = self.skipped.contains(&one);
                skipped.extend(is_skipped.then_some(one));
                !is_skipped
            });
            if left.count() > 1 {
                faults.push(format!("{name} has the versions {versions:?}"));
            }
        }
        let unused = self.licences.iter().filter(|one| !used.contains(*one));
        let unused = unused.chain(self.skipped.iter().filter(|one| !skipped.contains(*one)));
        faults.extend(unused.map(|one| format!("{one} need not be permitted")));
        faults
    }
}

#[test]
fn no_dependency_is_denied() {
    let (deny, packages) = (Deny::read(), packages());
    assert_eq!(deny.faults(&packages), [""; 0]);
    // Each rule refuses something.
    let other = |key: &str, value: &str| {
        let mut packages = packages.clone();
        let libc = packages.iter_mut().find(|one| one["name"] == "libc").unwrap();
        libc[key] = value.into();
        deny.faults(&packages)
    };
    for licence in ["GPL-3.0", "MIT AND LGPL-2.1", "MPL-2.0", ""] {
        assert_eq!(other("license", licence).len(), 1, "{licence}");
    }
    for licence in ["MIT/Apache-2.0", "(MIT OR GPL-2.0) AND Unicode-3.0"] {
        assert_eq!(other("license", licence), [""; 0]);
    }
    assert_eq!(
        other("source", "git+https://example.org/libc"),
        ["libc is from \"git+https://example.org/libc\""]
    );
    assert_eq!(other("name", "openssl-sys"), ["openssl-sys is denied"]);
    assert_eq!(other("name", "memchr").len(), 1);
    let wider = |change: &dyn Fn(&mut Deny)| {
        let mut wider = deny.clone();
        change(&mut wider);
        wider.faults(&packages)
    };
    assert_eq!(wider(&|deny| deny.licences.push("WTFPL".into())), ["WTFPL need not be permitted"]);
    let skip = |deny: &mut Deny| deny.skipped.push("libc@0.1.0".into());
    assert_eq!(wider(&skip), ["libc@0.1.0 need not be permitted"]);
    // What only the fuzz targets use is in no package.
    let lock = std::fs::read_to_string(Path::new(ROOT).join("fuzz/Cargo.lock")).unwrap();
    let mut sources = lock.lines().filter_map(|line| line.strip_prefix("source = \"registry+"));
    assert!(
        sources.all(|source| deny.registries.iter().any(|r| source.trim_end_matches('"') == r))
    );
    assert!(!lock.contains("source = \"git+"));
}

/// The crates that are linked, by a feature.
fn linked(feature: &str) -> BTreeSet<String> {
    let tree = ["tree", "--no-default-features", "--features", feature, "--no-dedupe"];
    let tree = cargo(&[&tree[..], &["--edges=normal,no-proc-macro", "--prefix=none"]].concat());
    let of = |line: &str| {
        let mut words = line.split(' ');
        let (name, version) = (words.next().unwrap(), words.next().unwrap());
        format!("crates/{name}-{}/*", version.strip_prefix('v').unwrap())
    };
    String::from_utf8(tree).unwrap().lines().skip(1).map(of).collect()
}

#[test]
fn the_packages_have_the_licence_of_each_crate() {
    let licences = |features: &[&str]| {
        let output = Command::new(Path::new(ROOT).join("scripts/licences")).args(features).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let library: BTreeSet<String> = linked("rates").union(&linked("trace")).cloned().collect();
    for (features, crates) in [(&["cli"][..], linked("cli")), (&["rates", "trace"], library)] {
        let text = licences(features);
        assert!(crates.len() > 10, "{crates:?}");
        let mut paragraphs = text.split("\n\n");
        assert!(paragraphs.next().unwrap().starts_with("Format: https://www.debian.org/"));
        let mut named = BTreeSet::new();
        for paragraph in paragraphs {
            let mut lines = paragraph.lines();
            let mut field = |name: &str| {
                let line = lines.next().unwrap();
                let value = line.strip_prefix(name).unwrap_or_else(|| panic!("{name}{line}"));
                assert!(!value.trim().is_empty(), "{paragraph}");
                value.to_owned()
            };
            let files = field("Files: ");
            let (_, _) = (field("Copyright: "), field("License: "));
            let text: Vec<&str> = lines.collect();
            assert!(text.concat().len() > 70 && text.iter().all(|l| l.starts_with(' ')), "{files}");
            assert_ne!(text.last(), Some(&" ."), "{files}");
            if files.starts_with("crates/") {
                named.insert(files);
            }
        }
        assert_eq!(named, crates, "{features:?}");
    }
}

/// With a Cargo that knows one crate, whose licence is nowhere.
#[test]
fn a_crate_without_a_licence_stops_the_package() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str| folder.path().join(name);
    std::fs::create_dir(of("crate")).unwrap();
    let metadata = serde_json::json!({ "packages": [{
        "name": "lost", "version": "1.0.0", "license": "MIT", "authors": [],
        "manifest_path": of("crate").join("Cargo.toml").to_str().unwrap(),
    }] });
    std::fs::write(of("metadata"), metadata.to_string()).unwrap();
    let cargo =
        "#!/bin/sh\ncase $1 in metadata) cat \"${0%/*}/metadata\" ;; *) echo lost v1.0.0 ;; esac\n";
    kit::write_script(of("cargo"), cargo);
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let licences = || {
        let mut script = Command::new(Path::new(ROOT).join("scripts/licences"));
        script.arg("cli").env("PATH", &path).output().unwrap()
    };
    let output = licences();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "licences: no text of the licence of lost 1.0.0 (MIT), in the crate\n");
    std::fs::write(of("crate").join("LICENSE.md"), "Permission is granted.\n").unwrap();
    let output = licences();
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().ends_with("\n Permission is granted.\n"));
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
