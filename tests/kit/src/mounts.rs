//! File systems mounted for one worker only.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::worker::{finish, start_by};

/// Runs a worker in its own mount namespace.
pub fn run_apart(arguments: &[&str]) {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]);
    command.arg(std::env::current_exe().unwrap());
    finish(vec![start_by(command, arguments)]);
}

/// Runs a system program, which must succeed.
pub fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Mounts a tmpfs of so many KiB under `folder`.
pub fn tmpfs(folder: &Path, kib: u32) -> PathBuf {
    let place = folder.join("tmpfs");
    std::fs::create_dir(&place).unwrap();
    let size = format!("size={kib}k");
    run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", place.to_str().unwrap()]);
    place
}

/// Mounts an ext4 of so many KiB under `folder`.
pub fn ext4(folder: &Path, kib: u64) -> PathBuf {
    let (image, place) = (folder.join("image"), folder.join("ext4"));
    let file = std::fs::File::create_new(&image).unwrap();
    file.set_len(kib * 1024).unwrap();
    std::fs::create_dir(&place).unwrap();
    let (image, path) = (image.to_str().unwrap(), place.to_str().unwrap());
    // Nothing is reserved for root.
    run("mkfs.ext4", &["-q", "-F", "-m", "0", image]);
    run("mount", &["-o", "loop", image, path]);
    place
}
