//! Images are replaced as a whole, and running processes pick up the new one.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use super::{Image, ImageError, PolicyFile, build, install};
use crate::policy::source::compile;
use crate::sys::simulated_disk::memory_folder;
use crate::sys::{clock, failpoint};
use crate::versions::as_the_next;

/// An image whose only policy has this name.
fn image(policy: &str) -> Vec<u8> {
    let none = |_: &Path| Err(String::new());
    let text = format!("version = 1\n[policy.{policy}]\ndefault.messages = \"1/1h\"\n");
    build(&compile(Path::new("p"), &text, &none).policies.unwrap())
}

/// The name of the only policy.
fn name(image: Result<&Image, &ImageError>) -> String {
    let image = image.unwrap();
    image.policies().unwrap();
    image.names().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_running_process_picks_up_the_new_image() {
    let spool = tempfile::tempdir().unwrap();
    let mut running = PolicyFile::open(spool.path());
    let error = running.image().unwrap_err().to_string();
    let path = spool.path().join("exirate/policy.image");
    assert_eq!(
        error,
        format!("no policy image at {}: run `exirate policy apply` to write it", path.display())
    );
    assert!(running.refresh().is_err());
    for number in 0..3 {
        let new = format!("p{number}");
        assert_eq!(install(spool.path(), &image(&new)).unwrap(), path);
        if number > 0 {
            assert!(running.image().unwrap().is_superseded());
            assert_eq!(name(running.image()), format!("p{}", number - 1));
        }
        assert_eq!(name(running.refresh()), new);
        assert!(!running.image().unwrap().is_superseded());
        assert_eq!(name(PolicyFile::open(spool.path()).image()), new);
    }
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o640);
    assert!(!path.with_extension("image.new").exists());
}

/// Else the session that has mapped it would end by SIGBUS.
#[test]
fn an_image_that_is_cut_off_while_it_is_mapped_is_out_of_use_a_second_later() {
    let spool = tempfile::tempdir().unwrap();
    let path = install(spool.path(), &image("old")).unwrap();
    let mut running = PolicyFile::open(spool.path());
    std::fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    kit::until("a second has passed", {
        let second = clock::coarse_seconds();
        move || clock::coarse_seconds() != second
    });
    let error = running.refresh().unwrap_err().to_string();
    assert!(error.contains("damaged"), "{error}");
    install(spool.path(), &image("new")).unwrap();
    assert_eq!(name(running.refresh()), "new");
}

#[test]
fn an_image_that_cannot_be_used_does_not_replace_one_that_can() {
    let spool = tempfile::tempdir().unwrap();
    let path = install(spool.path(), &image("old")).unwrap();
    let mut running = PolicyFile::open(spool.path());
    install(spool.path(), b"EXIRATEP, but no image").unwrap();
    assert_eq!(name(running.refresh()), "old");
    let error = PolicyFile::open(spool.path()).image().unwrap_err().to_string();
    let begin = format!("the policy image {} is damaged at byte 0: ", path.display());
    assert!(error.starts_with(&begin), "{error}");
    assert!(error.ends_with("; run `exirate policy apply` to write it again"), "{error}");
    // What is there is replaced, whatever it is.
    for damaged in [&b""[..], b"short", &[0; 100]] {
        std::fs::write(&path, damaged).unwrap();
        assert!(PolicyFile::open(spool.path()).image().is_err());
        install(spool.path(), &image("new")).unwrap();
        assert_eq!(name(PolicyFile::open(spool.path()).image()), "new");
    }
    assert_eq!(name(running.refresh()), "new");

    // Another version.
    let mut other = image("other");
    other[8] = 6;
    let crc = super::layout::checksum(0, &other[..56]);
    other[56..60].copy_from_slice(&crc.to_le_bytes());
    install(spool.path(), &other).unwrap();
    let error = PolicyFile::open(spool.path()).image().unwrap_err().to_string();
    assert!(
        error.contains(
            "is of format version 6, and this exirate knows no version above 5: use the later"
        ),
        "{error}"
    );
    // What still runs goes on with the image that it has open; a later program reads both.
    assert_eq!(name(running.refresh()), "new");
    as_the_next(|| {
        assert_eq!(name(PolicyFile::open(spool.path()).image()), "other");
        assert_eq!(name(Image::from_bytes(image("this")).as_ref()), "this");
    });
    for version in [0, 0xffff_ffff_u32] {
        other[8..12].copy_from_slice(&version.to_le_bytes());
        let crc = super::layout::checksum(0, &other[..56]);
        other[56..60].copy_from_slice(&crc.to_le_bytes());
        let error = Image::from_bytes(other.clone()).unwrap_err();
        assert_eq!(matches!(error, ImageError::Version { .. }), version > 0, "{error}");
    }
    install(spool.path(), &image("newer")).unwrap();
    assert_eq!(name(running.refresh()), "newer");

    // Links are not followed.
    let elsewhere = spool.path().join("elsewhere");
    std::fs::rename(&path, &elsewhere).unwrap();
    symlink(&elsewhere, &path).unwrap();
    assert!(PolicyFile::open(spool.path()).image().is_err());
    let error = install(spool.path(), &image("x")).unwrap_err().to_string();
    assert!(error.contains("is a symbolic link: it must be a regular file"), "{error}");
    assert_eq!(name(Image::open(&elsewhere).as_ref()), "newer");
}

/// Whatever step the writer dies at, the old image or the new one is in use.
#[test]
fn a_writer_that_dies_leaves_the_old_image_or_the_new_one() {
    let spool = memory_folder();
    install(spool.path(), &image("old")).unwrap();
    let (mut died, mut renamed) = (0, 0);
    loop {
        install(spool.path(), &image("old")).unwrap();
        let mut running = PolicyFile::open(spool.path());
        let new = image("new");
        let mut written = None;
        let install_new = || written = Some(install(spool.path(), &new));
        let was_killed = failpoint::dies_after(died, install_new);
        let now = name(PolicyFile::open(spool.path()).image());
        assert!(["old", "new"].contains(&&*now), "after {died} steps: {now}");
        renamed += u32::from(now == "new" && was_killed);
        for _ in 0..2 {
            assert_eq!(name(running.refresh()), now, "after {died} steps");
        }
        install(spool.path(), &image("newest")).unwrap();
        assert_eq!(name(running.refresh()), "newest", "after {died} steps");
        assert!(!running.image().unwrap().is_superseded());
        if let Some(written) = written {
            written.unwrap();
            assert_eq!(now, "new");
            break;
        }
        died += 1;
    }
    assert!(died > 5 && renamed > 0, "{died} steps, {renamed} after it was renamed");
}

#[test]
fn a_full_disk_leaves_the_old_image() {
    let spool = memory_folder();
    let path = install(spool.path(), &image("old")).unwrap();
    let mut running = PolicyFile::open(spool.path());
    failpoint::limit_disk(Some(100));
    let error = install(spool.path(), &image("new")).unwrap_err().to_string();
    failpoint::limit_disk(None);
    let words = format!("cannot write {}: no storage space", path.display());
    assert!(
        error.starts_with(&words) && error.ends_with("; free some space on its file system"),
        "{error}"
    );
    assert_eq!(name(running.refresh()), "old");
    assert!(!running.image().unwrap().is_superseded());
    assert!(!path.with_extension("image.new").exists());
}

#[test]
fn images_are_written_by_several_at_once() {
    let spool = tempfile::tempdir().unwrap();
    install(spool.path(), &image("p")).unwrap();
    std::thread::scope(|threads| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let spool = spool.path();
                threads.spawn(move || {
                    for number in 0..20 {
                        install(spool, &image(&format!("w{writer}-{number}"))).unwrap();
                    }
                })
            })
            .collect();
        let mut running = PolicyFile::open(spool.path());
        while writers.iter().any(|writer| !writer.is_finished()) {
            let found = name(running.refresh());
            assert!(found == "p" || found.starts_with('w'), "{found}");
        }
        assert!(name(running.refresh()).ends_with("-19"));
        assert_eq!(name(PolicyFile::open(spool.path()).image()), name(running.image()));
    });
}
