//! Compiles the clock of the tests, which `src/clock.rs` contains.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src/clock.c");
    let library = Path::new(&std::env::var_os("OUT_DIR").unwrap()).join("clock.so");
    let mut compile = Command::new("cc");
    compile
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "src/clock.c", "-o"])
        .arg(&library);
    let status = compile.status().unwrap();
    assert!(status.success(), "{compile:?}: {status}");
}
