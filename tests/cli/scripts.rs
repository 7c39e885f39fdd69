//! `scripts/test`, with other programs in place of those that it runs.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::prepared::ROOT;
use crate::stdout;
use kit::write_script;

/// What is in place of Cargo and of the other scripts: it records how it was called, and fails
/// if the call contains `$FAILS`.
const PRETENDER: &str = r#"#!/bin/bash
call="${0##*/} $*"
echo "$call" >>"$CALLS"
echo "output of $call"
status=0 outcome=ok
[[ $call != *"$FAILS"* ]] || status=1 outcome=FAILED
if [[ $call == "cargo test"* && $call != *--no-run* ]]; then
  echo "     Running unittests of ${call##* }" >&2
  ((status == 0)) || printf 'failures:\n\n---- one_that_fails stdout ----\n\nfailures:\n    one_that_fails\n\n'
  echo "test result: $outcome. 3 passed; $status failed"
fi
exit $status
"#;

struct World(tempfile::TempDir);

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("scripts")).unwrap();
        fs::create_dir(folder.path().join("bin")).unwrap();
        for name in ["test", "need.sh"] {
            let script = Path::new("scripts").join(name);
            fs::copy(Path::new(ROOT).join(&script), folder.path().join(script)).unwrap();
        }
        for name in
            ["fuzz", "chroots", "try-archive", "try-image", "try-package", "try-setup", "exims"]
        {
            write_script(folder.path().join("scripts").join(name), PRETENDER);
        }
        for test in ["cli/main.rs", "exim_lookup.rs", "one/main.rs", "other.rs"] {
            let file = folder.path().join("tests").join(test);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        let bin = folder.path().join("bin");
        write_script(bin.join("cargo"), PRETENDER);
        write_script(bin.join("rustc"), "#!/bin/sh\necho host: x86_64-unknown-linux-gnu\n");
        write_script(bin.join("dpkg-query"), "#!/bin/sh\nprintf installed\n");
        Self(folder)
    }

    /// Runs `scripts/test` with programs that fail if their calls contain `fails`; returns the
    /// calls as well, sorted.
    fn run(&self, fails: &str) -> (Output, Vec<String>) {
        let folder = self.0.path();
        let calls = folder.join("calls");
        fs::write(&calls, "").unwrap();
        let path = format!("{}:/usr/bin:/bin", folder.join("bin").display());
        let output = Command::new("bash")
            .arg(folder.join("scripts/test"))
            .env("PATH", path)
            .env("CALLS", &calls)
            .env("FAILS", fails)
            .output()
            .unwrap();
        let mut calls: Vec<_> =
            fs::read_to_string(calls).unwrap().lines().map(str::to_owned).collect();
        calls.sort_unstable();
        (output, calls)
    }
}

/// The lines of the output that say what has failed.
fn failed(output: &Output) -> Vec<String> {
    stdout(output).lines().filter(|l| l.starts_with("failed: ")).map(str::to_owned).collect()
}

#[test]
fn everything_is_tested_whatever_fails_and_all_failures_are_at_the_end() {
    let world = World::new();
    let (output, calls) = world.run("nothing fails");
    assert_eq!((output.status.code(), failed(&output)), (Some(0), vec![]), "{}", stdout(&output));
    for part in [
        "cargo fmt --all --check",
        "cargo clippy --locked --all-targets --all-features -- -D warnings",
        "cargo test --locked --doc",
        "chroots make",
        "exims run",
        "exims table",
        "fuzz bounded",
        "try-archive ",
        "try-image ",
        "try-package ",
        "try-setup ",
    ] {
        assert!(calls.iter().any(|call| call == part), "{part}: {calls:?}");
    }
    // Each binary of tests once, and those of the program beside the others.
    let end = "-- -Zunstable-options --report-time";
    for tests in ["--lib --bins --test one --test other", "--test cli"] {
        let call = format!("cargo test --locked --no-fail-fast {tests} {end}");
        assert_eq!(calls.iter().filter(|other| **other == call).count(), 1, "{calls:?}");
    }
    let fuzzed = "cargo test --quiet --locked --bench cost --bench trace";
    assert_eq!(calls.iter().filter(|call| *call == fuzzed).count(), 1, "{calls:?}");

    // Each alone, and all together: the same is run.
    for call in &calls {
        let (output, others) = world.run(call);
        assert_eq!(others, calls);
        assert_eq!(output.status.code(), Some(1), "{call}");
        let containing = calls.iter().filter(|other| other.contains(call.as_str())).count();
        assert_eq!(failed(&output).len(), containing, "{call}: {:?}", failed(&output));
        let text = stdout(&output);
        let (_, end) = text.split_once("Failed: ").unwrap();
        assert!(end.contains(&format!("output of {call}\n")), "{end}");
    }
    let (output, others) = world.run("");
    assert_eq!((others, output.status.code()), (calls.clone(), Some(1)));
    // The format is one part of two calls, and the lints are one of three.
    assert_eq!(failed(&output).len(), calls.len() - 3, "{:?}", failed(&output));

    // The last lines are the results that Cargo prints.
    let text = stdout(&output);
    let (failures, results) = text.split_once("Results of the tests").unwrap();
    assert!(failures.contains("\n    one_that_fails\n"));
    let results: Vec<_> = results.lines().skip(1).collect();
    assert_eq!(results.len(), 6, "{results:?}");
    for (n, line) in results.into_iter().enumerate() {
        let expected = ["     Running unittests", "test result: FAILED. 3 passed"][n % 2];
        assert!(line.starts_with(expected), "{line}");
    }
}

/// The lines of documents and scripts in which root makes directories and gives them away, each
/// with the paths.
fn given_away() -> Vec<(String, Vec<String>)> {
    let mut lines = Vec::new();
    let mut folders =
        ["docs", "scripts", "debian", "exim"].map(|name| Path::new(ROOT).join(name)).to_vec();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let Ok(text) = fs::read_to_string(&path) else { continue };
            for line in
                text.lines().filter(|line| line.contains("install -d") && line.contains(" -o "))
            {
                let code = line.split(" # ").next().unwrap();
                let paths = code.split_whitespace().filter(|word| word.starts_with('/'));
                lines.push((
                    format!("{}: {line}", path.display()),
                    paths.map(str::to_owned).collect(),
                ));
            }
        }
    }
    lines
}

/// Whoever owns a directory puts a link in the place of one below it, which `install` as root
/// follows, and gives what it leads to away.
#[test]
fn root_gives_away_no_directory_below_one_that_it_has_given_away() {
    let lines = given_away();
    assert!(lines.iter().any(|(_, paths)| paths.contains(&"/var/lib/exirate".to_owned())));
    for (line, paths) in &lines {
        for path in paths {
            let above = |owned: &String| owned != path && Path::new(path).starts_with(owned);
            assert!(!lines.iter().any(|(_, owned)| owned.iter().any(above)), "{line}");
        }
    }
}
