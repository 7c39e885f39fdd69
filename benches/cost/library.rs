//! The sizes of the libraries, and the times to load them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::effort::Effort;
use crate::exim::compile;
use kit::library;
use kit::table::{head, median, micros};

/// Prints the size, relocations and load time of the libraries as Exim uses them.
pub(crate) fn run(effort: Effort) {
    let folder = tempfile::tempdir().unwrap();
    let loader = folder.path().join("load");
    // Exim has already loaded libm.
    compile("load.c", &loader, &["-Wl,--no-as-needed", "-lm"]);
    head("The libraries that Exim loads");
    for (name, path, function) in [
        ("exirate.so", library::built(), "ratelimit"),
        ("exirate-trace.so", library::built_trace(), "record"),
    ] {
        let times: Vec<Duration> =
            (0..effort.processes).map(|_| load(&loader, path, function)).collect();
        println!(
            "{name}: {} KiB, {} relocations; dlopen and dlsym in a fresh process, median of {}: {}",
            std::fs::metadata(path).unwrap().len() / 1024,
            relocations(path),
            effort.processes,
            micros(median(times))
        );
    }
}

/// The number of relocations.
fn relocations(library: &Path) -> usize {
    let output = Command::new("readelf").args(["-rW"]).arg(library).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().filter(|l| l.contains(" R_")).count()
}

fn load(loader: &PathBuf, library: &Path, function: &str) -> Duration {
    let output = Command::new(loader).arg(library).arg(function).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Duration::from_nanos(String::from_utf8(output.stdout).unwrap().trim().parse().unwrap())
}
