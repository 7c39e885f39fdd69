//! The additional files that Exim opens with the library, according to
//! `strace`.

use super::names_in_the_library;
use super::world::{CHECK, Start, World};
use std::collections::BTreeSet;

/// A line of the ACL that does not use the library.
const NOTHING: &str = "warn logwrite = answer nothing";

/// All paths in the system calls of one start.
fn paths(
    world: &World,
    environment: &[String],
    by_root: bool,
    arguments: &[&str],
) -> BTreeSet<String> {
    let trace = tempfile::NamedTempFile::new().unwrap();
    let file = trace.path().to_str().unwrap();
    // Strace runs as root, so that the setuid bit has its usual effect.
    let wrapper = ["/usr/bin/strace", "-f", "-y", "-s", "4096", "-e", "trace=%file", "-o", file];
    let environment = environment.to_vec();
    let start = Start { environment, wrapper: &wrapper, by_root, arguments, ..Start::default() };
    let output = world.start(&start);
    assert!(output.status.success(), "strace is needed: {output:?}");
    let text = std::fs::read(trace.path()).unwrap();
    let text = String::from_utf8_lossy(&text).into_owned();
    // Only from the reading of the configuration on; earlier paths are the
    // loader's.
    let (_, text) = text.split_once("/etc/exim4/exim4.conf").expect("Exim was started");
    let mut found = BTreeSet::new();
    for line in text.lines() {
        let Some((call, arguments)) = line.split_once('(') else { continue };
        // An open directory is shown as `3</spool/exirate>`.
        let at = arguments.split_once('<').filter(|(fd, _)| fd.parse::<u32>().is_ok());
        let directory = at.and_then(|(_, rest)| rest.split_once('>')).map_or("", |(d, _)| d);
        for name in arguments.split('"').skip(1).step_by(2) {
            let directory = directory.strip_prefix(world.root().to_str().unwrap());
            let full = match directory {
                Some(directory) if name.is_empty() => directory.to_owned(),
                Some(directory) if call.contains("at") && !name.starts_with('/') => {
                    format!("{directory}/{name}")
                }
                _ => name.to_owned(),
            };
            found.insert(full);
        }
    }
    found
}

/// Without the files that are named after each message.
fn kinds(paths: BTreeSet<String>) -> BTreeSet<String> {
    let is_message = |path: &String| path.contains("/input/") || path.contains("/msglog/");
    paths.into_iter().filter(|path| !is_message(path)).collect()
}

#[test]
fn no_file_is_opened_outside_the_database() {
    let world = World::new();
    let hostile: Vec<String> =
        names_in_the_library().iter().map(|name| format!("{name}=/home")).collect();
    // Exim creates its own directories first.
    world.configure(NOTHING);
    world.start(&Start::default());
    world.configure(CHECK);
    let with = kinds(paths(&world, &hostile, true, &[]));
    assert_eq!(world.answers().len(), 2);
    world.configure(NOTHING);
    let without = kinds(paths(&world, &hostile, true, &[]));
    assert_eq!(world.answers().len(), 3);
    let more: Vec<&String> = with.difference(&without).collect();
    let of_the_database = |path: &str| {
        path == "/spool" || path == "/spool/exirate" || path.starts_with("/spool/exirate")
    };
    // The library itself, and the paths that the loader searches for it.
    let of_the_loader = |path: &str| path.starts_with("/exirate") || path.starts_with("/lib");
    let strange: Vec<_> =
        more.iter().filter(|path| !of_the_database(path) && !of_the_loader(path)).collect();
    assert!(strange.is_empty(), "{strange:?} of {more:?}");
    assert!(more.iter().any(|path| path.ends_with(".shard")), "{more:?}");
    assert!(more.iter().any(|path| *path == "/exirate.so"), "{more:?}");
    // In the hands of an account, no file of the rates is open, and so none is locked.
    let _daemon = world.serve();
    world.configure(CHECK);
    let of_rates = |path: &&String| {
        path.starts_with("/spool/exirate/") && !path.starts_with("/spool/exirate/trace")
    };
    // Nor where Exim delivers its message, and hands over a bounce for it, in processes that the account
    // has started.
    let returned = ["-odi", "-oem", "-f", "nobody@private.test", "gone@routed.test"];
    for (arguments, answers) in [(&[][..], 1), (&returned, 3)] {
        let before = world.answers().len();
        let opened = kinds(paths(&world, &hostile, false, arguments));
        assert_eq!(world.answers().len(), before + answers, "{}", world.log("mainlog"));
        let rates: Vec<_> = opened.iter().filter(of_rates).collect();
        assert!(rates.iter().all(|path| path.ends_with("/bypass")), "{rates:?}");
    }
}
