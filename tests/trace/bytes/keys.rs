//! Another key, a missing key, a key that others can read; files of a later
//! version.

use std::os::unix::fs::PermissionsExt;

use super::store::{
    FILES, Image, MESSAGES, Observed, ask, memory_folder, open, path, question, read, record,
};

/// The numbers of all messages of a sound store.
fn all() -> Vec<u32> {
    (0..MESSAGES).collect()
}

fn observe(folder: &std::path::Path, what: &str) -> Observed {
    Observed::of(&read(folder).unwrap(), 0..MESSAGES, what)
}

#[test]
fn with_another_key_nothing_is_found_and_that_is_reported() {
    let (image, folder) = (Image::sound(), memory_folder());
    let other = Image::sound();
    image.with("key", other.get("key").to_vec()).lay_out(folder.path());
    let found = observe(folder.path(), "another key");
    assert!(found.listed.is_empty() && found.found.is_empty() && found.damaged == 0);
    assert_eq!(found.reported, ["4 of another key"]);
    let text = "4 of its files were written with another key, and cannot be queried";
    assert!(found.verified.iter().any(|problem| problem.ends_with(text)), "{:?}", found.verified);
    // Recording continues, and the old files do not change.
    let mut trace = open(folder.path()).unwrap();
    record(&mut trace, 500).unwrap();
    trace.seal().unwrap();
    trace.tidy(0).unwrap();
    assert_eq!(ask(&trace, &question(500)).0.len(), 1);
    std::fs::write(path(folder.path(), "key"), image.get("key")).unwrap();
    let found = observe(folder.path(), "the old key again");
    assert_eq!(found.listed.into_iter().collect::<Vec<_>>(), all());
    assert_eq!(found.found.into_iter().collect::<Vec<_>>(), all());
    assert_eq!(found.reported, ["1 of another key"]);
}

#[test]
fn without_its_key_nothing_is_found_again() {
    let (image, folder) = (Image::sound(), memory_folder());
    image.lay_out(folder.path());
    let key = path(folder.path(), "key");
    std::fs::remove_file(&key).unwrap();
    let error = read(folder.path()).unwrap_err().to_string();
    let start = format!("{} is missing: without it, recorded messages cannot", key.display());
    assert!(error.starts_with(&start), "{error}");
    let mut trace = open(folder.path()).unwrap();
    record(&mut trace, 500).unwrap();
    assert_ne!(std::fs::read(&key).unwrap(), image.get("key"));
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let found = observe(folder.path(), "a new key");
    assert!(found.found.is_empty(), "{:?}", found.found);
    assert_eq!(found.listed.into_iter().collect::<Vec<_>>(), [500]);
    assert_eq!(found.reported, ["4 of another key"]);
}

/// The files contain no plaintext of recorded messages.
#[test]
fn files_contain_no_plaintext() {
    let image = Image::sound();
    for (name, bytes) in &image.files {
        for n in 0..MESSAGES {
            let envelope = super::store::envelope(n);
            for text in [&envelope.id, &envelope.sender, &envelope.recipients[0]] {
                let text = text.as_bytes();
                assert!(!bytes.windows(text.len()).any(|window| window == text), "{name}: {n}");
            }
        }
        // Two files of one store, or of two, have no part in common either.
        for (other, more) in image.files.iter().filter(|(other, _)| other > name) {
            let known: std::collections::HashSet<_> = bytes.windows(16).collect();
            let same = more.windows(16).filter(|window| known.contains(window) && !is_dull(window));
            assert!(same.count() <= 1, "{name} and {other}");
        }
    }
}

/// Zeros, and the unencrypted start of a file.
fn is_dull(window: &[u8]) -> bool {
    window.iter().filter(|&&byte| byte == 0).count() > 4
}

#[test]
fn a_key_that_others_may_read_is_reported() {
    let (image, folder) = (Image::sound(), memory_folder());
    image.lay_out(folder.path());
    let key = path(folder.path(), "key");
    for mode in [0o640, 0o604, 0o666] {
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
        let found = observe(folder.path(), "its mode");
        assert_eq!(found.listed.len(), MESSAGES as usize);
        let text = format!(
            "users other than its owner can read it (mode {mode:04o}): it should have mode 0600"
        );
        assert_eq!(found.verified, [format!("{}: {text}", key.display())]);
    }
}

/// The offset of the version in each copy of the start of a file.
fn starts(name: &str, bytes: &[u8]) -> [usize; 2] {
    // The second head of a segment, and the checksum after it.
    let last = 228 + 4;
    [8, if name.ends_with("segment") { bytes.len() - last + 8 } else { 512 + 8 }]
}

#[test]
fn a_file_of_a_later_version_does_not_change() {
    let (image, folder) = (Image::sound(), memory_folder());
    for (name, messages) in FILES {
        let mut later = image.get(name).to_vec();
        for at in starts(name, &later) {
            later[at..at + 4].copy_from_slice(&7_u32.to_le_bytes());
        }
        image.with(name, later.clone()).lay_out(folder.path());
        let found = observe(folder.path(), name);
        let text = "it is of format version 7, and this exirate knows no version above 5: use the later exirate \
                    that wrote it";
        assert_eq!(found.reported, [format!("{}: {text}", path(folder.path(), name).display())]);
        let missing: Vec<_> = all().into_iter().filter(|n| !found.listed.contains(n)).collect();
        assert_eq!(missing, messages.collect::<Vec<_>>(), "{name}");
        let mut trace = open(folder.path()).unwrap();
        let recorded = record(&mut trace, 500);
        if name == "open.log" {
            let error = recorded.unwrap_err().to_string();
            assert!(
                error.contains("is of format version 7, and this exirate knows no version above 5"),
                "{error}"
            );
        } else {
            recorded.unwrap();
            trace.seal().unwrap();
            trace.tidy(0).unwrap();
        }
        assert_eq!(std::fs::read(path(folder.path(), name)).unwrap(), later, "{name}");
    }
}

#[test]
fn a_key_or_settings_of_another_version_are_not_used() {
    let (image, folder) = (Image::sound(), memory_folder());
    let later = "is of format version 6, and this exirate knows no version above 5: use the later \
                 exirate that wrote it";
    let early = |version| {
        format!(
            "is of format version {version}, and this exirate knows no version below 5: no release \
             has written it; remove the directory, and record the mail again"
        )
    };
    for (name, version, what) in [
        ("key", 6, later.to_owned()),
        ("settings", 6, later.to_owned()),
        ("key", 1, early(1)),
        ("key", 2, early(2)),
        ("key", 3, early(3)),
        ("key", 4, early(4)),
        ("settings", 2, early(2)),
    ] {
        let mut later = image.get(name).to_vec();
        for at in [0, 512] {
            later[at + 8] = version;
            let crc = crc32fast::hash(&later[at..at + 48]);
            later[at + 48..at + 52].copy_from_slice(&crc.to_le_bytes());
        }
        image.with(name, later.clone()).lay_out(folder.path());
        for error in [read(folder.path()), open(folder.path())].map(Result::unwrap_err) {
            let text = format!("{} {what}", path(folder.path(), name).display());
            assert_eq!(error.to_string(), text);
        }
        assert_eq!(std::fs::read(path(folder.path(), name)).unwrap(), later);
    }
}

#[test]
fn with_damaged_settings_messages_are_kept_and_settings_can_be_set() {
    let (image, folder) = (Image::sound(), memory_folder());
    image.with("settings", vec![0xA5; 1024]).lay_out(folder.path());
    let mut trace = open(folder.path()).unwrap();
    assert_eq!(trace.options().keep, None);
    // In a hundred years.
    trace.tidy(1_700_000_000 + 100 * 365 * 86_400).unwrap();
    let found = observe(folder.path(), "damaged settings");
    assert_eq!(found.listed.into_iter().collect::<Vec<_>>(), all());
    let [problem] = &found.verified[..] else { panic!("{:?}", found.verified) };
    assert!(
        problem.contains("settings: it is damaged: until it is repaired or set again"),
        "{problem}"
    );
    // New settings are written even if they equal those in use.
    for options in [*trace.options(), exirate::trace::Options::default()] {
        std::fs::write(path(folder.path(), "settings"), [0xA5; 1024]).unwrap();
        trace.set_options(options).unwrap();
        assert_eq!(observe(folder.path(), "set again").verified, Vec::<String>::new());
        assert_eq!(*read(folder.path()).unwrap().options(), options);
    }
    // Also with one damaged copy.
    let mut bytes = std::fs::read(path(folder.path(), "settings")).unwrap();
    bytes[530] ^= 1;
    std::fs::write(path(folder.path(), "settings"), &bytes).unwrap();
    assert_eq!(observe(folder.path(), "one copy").verified.len(), 1);
    trace.set_options(*trace.options()).unwrap();
    assert_eq!(observe(folder.path(), "one copy set").verified, Vec::<String>::new());
}
