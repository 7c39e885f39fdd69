//! How large the library is, and how long it takes to load.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::Effort;
use crate::common::library;
use crate::exim::compile;
use crate::table::{head, median, micros};

/// Prints size and load time of the library as Exim gets it.
pub(crate) fn run(effort: Effort) {
    let folder = tempfile::tempdir().unwrap();
    let loader = folder.path().join("load");
    compile("load.c", &loader, &[]);
    let path = library::built();
    let times: Vec<Duration> = (0..effort.processes).map(|_| load(&loader, path)).collect();
    head("The library that Exim loads");
    println!("size: {} KiB", std::fs::metadata(path).unwrap().len() / 1024);
    println!(
        "dlopen and dlsym in a fresh process, median of {}: {}",
        effort.processes,
        micros(median(times))
    );
}

fn load(loader: &PathBuf, library: &Path) -> Duration {
    let output = Command::new(loader).arg(library).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Duration::from_nanos(String::from_utf8(output.stdout).unwrap().trim().parse().unwrap())
}
