//! Symbolic links, FIFOs, directories and sockets in place of files.

use std::path::Path;

use super::store::{
    FILES, Image, MESSAGES, Observed, ask, envelope, memory_folder, open, path, question, read,
    record,
};

/// Puts something else in the place of a file.
fn put(kind: &str, at: &Path, target: &Path) {
    match kind {
        "symbolic link" => {
            if at.exists() {
                std::fs::rename(at, target).unwrap();
            }
            std::os::unix::fs::symlink(target, at).unwrap();
        }
        _ => {
            let _ = std::fs::remove_file(at);
            match kind {
                "FIFO" => {
                    let made = std::process::Command::new("mkfifo").arg(at).status().unwrap();
                    assert!(made.success());
                }
                "directory" => std::fs::create_dir(at).unwrap(),
                _ => drop(std::os::unix::net::UnixListener::bind(at).unwrap()),
            }
        }
    }
}

const KINDS: [&str; 4] = ["symbolic link", "FIFO", "directory", "socket"];

#[test]
fn in_place_of_logs_and_segments() {
    let image = Image::sound();
    for (name, messages) in FILES {
        for kind in KINDS {
            let folder = memory_folder();
            image.lay_out(folder.path());
            let at = path(folder.path(), name);
            put(kind, &at, &folder.path().join("target"));
            let what = format!("{name}: {kind}");
            let found = Observed::of(&read(folder.path()).unwrap(), 0..MESSAGES, &what);
            let [problem] = &found.reported[..] else { panic!("{what}: {:?}", found.reported) };
            assert!(problem.contains(at.to_str().unwrap()) && problem.contains(kind), "{problem}");
            let rest: Vec<_> = (0..MESSAGES).filter(|n| !messages.contains(n)).collect();
            assert_eq!(found.listed.into_iter().collect::<Vec<_>>(), rest, "{what}");
            assert_eq!(found.found.into_iter().collect::<Vec<_>>(), rest, "{what}");
            let mut trace = open(folder.path()).unwrap();
            if name == "open.log" {
                let error = record(&mut trace, 500).unwrap_err().to_string();
                assert!(error.contains(at.to_str().unwrap()) && error.contains(kind), "{error}");
                continue;
            }
            // It prevents neither recording nor the sealing of other logs.
            record(&mut trace, 500).unwrap();
            trace.seal().unwrap();
            trace.tidy(0).unwrap();
            assert!(std::fs::symlink_metadata(&at).is_ok(), "{what}: it was removed");
            for n in rest.into_iter().chain([500]) {
                let (results, _) = ask(&trace, &question(n));
                assert!(results.iter().any(|one| one.envelope == envelope(n)), "{what}: {n}");
            }
        }
    }
}

#[test]
fn in_place_of_the_key_and_the_settings() {
    let image = Image::sound();
    for name in ["key", "settings"] {
        for kind in KINDS {
            let folder = memory_folder();
            image.lay_out(folder.path());
            let at = path(folder.path(), name);
            put(kind, &at, &folder.path().join("target"));
            for error in [read(folder.path()), open(folder.path())].map(Result::unwrap_err) {
                let error = error.to_string();
                assert!(error.contains(at.to_str().unwrap()) && error.contains(kind), "{error}");
            }
        }
    }
}

#[test]
fn in_place_of_files_being_written() {
    let image = Image::sound();
    for name in ["sealing", "segment.new", "open.new"] {
        for kind in KINDS {
            let folder = memory_folder();
            image.lay_out(folder.path());
            let at = path(folder.path(), name);
            let target = folder.path().join("target");
            std::fs::write(&target, "not ours").unwrap();
            if at.exists() {
                std::fs::remove_file(&at).unwrap();
            }
            match kind {
                "symbolic link" => std::os::unix::fs::symlink(&target, &at).unwrap(),
                _ => put(kind, &at, &target),
            }
            let mut trace = open(folder.path()).unwrap();
            record(&mut trace, 500).unwrap();
            let done = trace.seal().and_then(|()| record(&mut trace, 501));
            // Those that cannot be moved away are named; all others are
            // replaced.
            if let Err(error) = done {
                let error = error.to_string();
                assert!(kind == "directory" || name == "sealing", "{name}: {kind}: {error}");
                assert!(error.contains(at.to_str().unwrap()), "{error}");
            }
            assert_eq!(std::fs::read(&target).unwrap(), b"not ours");
            for n in (0..MESSAGES).chain([500]) {
                let (results, summary) = ask(&trace, &question(n));
                assert_eq!(summary.damaged, []);
                assert!(
                    results.iter().any(|one| one.envelope == envelope(n)),
                    "{name}: {kind}: {n}"
                );
            }
        }
    }
}

#[test]
fn the_highest_possible_number() {
    let (image, folder) = (Image::sound(), memory_folder());
    image.lay_out(folder.path());
    let name = format!("{}.log", u64::MAX);
    let at = path(folder.path(), &name);
    std::fs::rename(path(folder.path(), "00000003.log"), &at).unwrap();
    let mut trace = open(folder.path()).unwrap();
    record(&mut trace, 500).unwrap();
    let error = trace.seal().unwrap_err().to_string();
    assert!(
        error.contains(at.to_str().unwrap()) && error.contains("the highest possible number"),
        "{error}"
    );
    let found = Observed::of(&trace, 0..MESSAGES, "the highest number");
    assert_eq!(found.found.len(), MESSAGES as usize);
}
