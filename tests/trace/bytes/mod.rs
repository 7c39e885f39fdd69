//! Damaged bytes in every file of the trace store: no panic, no hang, no wrong
//! result presented as right; undamaged messages are found, and recording
//! continues. `EXIRATE_TEST_LONG=1` tries every byte and every length.

use kit::counts;
mod keys;
mod special_files;
pub(crate) mod store;
mod tampering;

use std::collections::BTreeSet;
use std::path::Path;

use store::{FILES, Image, MESSAGES, Observed, memory_folder, open, path, question, read, record};

/// The number of a message that is recorded after the damage.
const LATER: u32 = 1000;

/// The effects of damage to a file.
#[derive(Debug, Default)]
struct Totals {
    tried: u64,
    /// The results are as before.
    same: u64,
    /// Some results are missing, which the query reports.
    reported: u64,
    /// `verify` does not report it.
    unverified: u64,
    /// The store cannot be opened, and the error names the file.
    refused: u64,
}

/// Examines a store with one damaged file.
fn look(folder: &Path, name: &str, what: &str, totals: &mut Totals) {
    totals.tried += 1;
    let names_it = |text: &String| text.contains(path(folder, name).to_str().unwrap());
    let trace = match read(folder) {
        Ok(trace) => trace,
        Err(error) => {
            assert!(["key", "settings"].contains(&name), "{what}: {error}");
            assert!(names_it(&error.to_string()), "{what}: {error}");
            totals.refused += 1;
            return;
        }
    };
    let own = FILES.iter().find(|file| file.0 == name).map_or(0..0, |file| file.1.clone());
    // And one of another file.
    let other = (own.end % MESSAGES).min(MESSAGES - 1);
    let observed = Observed::of(&trace, own.clone().chain([other]), what);
    let expected: BTreeSet<_> = (0..MESSAGES).collect();
    assert!(observed.listed.is_subset(&expected), "{what}: {:?}", observed.listed);
    let lost: Vec<_> = expected.difference(&observed.listed).copied().collect();
    assert!(lost.iter().all(|n| own.contains(n)), "{what}: {lost:?} are lost");
    assert!(observed.found.contains(&other), "{what}: {other} is lost");
    let missed: Vec<_> = own.clone().filter(|n| !observed.found.contains(n)).collect();
    if lost.is_empty() && missed.is_empty() && observed.damaged == 0 {
        totals.same += 1;
    } else {
        let says_so = |text: &String| names_it(text) || text.contains("of another key");
        assert!(observed.reported.iter().any(says_so), "{what}: {lost:?} {missed:?}");
        totals.reported += 1;
    }
    let is_verified = |text: &String| names_it(text) || text.contains("with another key");
    totals.unverified += u64::from(!observed.verified.iter().any(is_verified));
    // No other file is reported.
    let others = |text: &&String| !names_it(text) && text.contains("/0000000");
    assert_eq!(observed.verified.iter().find(others), None, "{what}");
}

/// Records in such a store, and seals everything.
fn go_on(folder: &Path, name: &str, what: &str) {
    let names_it = |text: &str| text.contains(path(folder, name).to_str().unwrap());
    let done = open(folder).and_then(|mut trace| {
        record(&mut trace, LATER)?;
        trace.seal()?;
        trace.tidy(0)?;
        Ok(trace)
    });
    let mut trace = match done {
        Ok(trace) => trace,
        Err(error) => {
            assert!(names_it(&error.to_string()), "{what}: {error}");
            return;
        }
    };
    let (results, _) = store::ask(&trace, &question(LATER));
    assert!(results.iter().any(|one| one.envelope == store::envelope(LATER)), "{what}");
    for (other, messages) in FILES.iter().filter(|file| file.0 != name) {
        let (results, _) = store::ask(&trace, &question(messages.start));
        let right = store::envelope(messages.start);
        assert!(
            name == "key" || results.iter().any(|one| one.envelope == right),
            "{what}: {other}"
        );
    }
    // Damage is reported once, and then the sound part has been sealed.
    trace.take_incidents();
    trace.verify(&mut |_, _| {}, &mut |_| {}).unwrap();
}

/// The distance of the bytes and lengths that are tried: without a common
/// factor with 8, so that each bit is tried.
fn step() -> usize {
    if std::env::var_os("EXIRATE_TEST_LONG").is_some() { 1 } else { 7 }
}

#[test]
fn bytes_of_every_file() {
    let (image, folder) = (Image::sound(), memory_folder());
    let mut all = Totals::default();
    for (name, bytes) in &image.files {
        let mut totals = Totals::default();
        for at in (0..bytes.len()).step_by(step()) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            image.with(name, damaged).lay_out(folder.path());
            let what = format!("{name}, byte {at}");
            look(folder.path(), name, &what, &mut totals);
            if at % 5 == 0 {
                go_on(folder.path(), name, &what);
            }
        }
        println!("{name}: {totals:?}");
        // Of the small files, what is between the copies is not read.
        assert!(totals.unverified == 0 || ["key", "settings"].contains(&name.as_str()), "{name}");
        all.tried += totals.tried;
    }
    counts::record("damaged trace stores opened", all.tried);
    assert!(all.tried > 700, "{all:?}");
}

#[test]
fn lengths_of_every_file() {
    let (image, folder) = (Image::sound(), memory_folder());
    let mut tried = 0;
    for (name, bytes) in &image.files {
        let mut totals = Totals::default();
        let cut = (0..bytes.len()).step_by(step()).map(|length| bytes[..length].to_vec());
        let longer = [1, 8, 4096]
            .into_iter()
            .flat_map(|more| [0, 0xA5].map(|byte| [bytes.clone(), vec![byte; more]].concat()));
        let twice = [bytes.clone(), bytes.clone()].concat();
        for (n, damaged) in cut.chain(longer).chain([twice]).enumerate() {
            let is_longer = damaged.len() > bytes.len();
            let what = format!("{name}, {} bytes of {}", damaged.len(), bytes.len());
            image.with(name, damaged).lay_out(folder.path());
            look(folder.path(), name, &what, &mut totals);
            if n % 7 == 0 || is_longer {
                go_on(folder.path(), name, &what);
            }
        }
        println!("{name}: {totals:?}");
        tried += totals.tried;
    }
    counts::record("damaged trace stores opened", tried);
}

#[test]
fn zeros_and_noise_in_place_of_a_sector() {
    let (image, folder) = (Image::sound(), memory_folder());
    let mut totals = Totals::default();
    for (name, bytes) in &image.files {
        for start in (0..bytes.len()).step_by(512) {
            let end = bytes.len().min(start + 512);
            for fill in [0, 0xFF, 0x5A] {
                let mut damaged = bytes.clone();
                damaged[start..end].fill(fill);
                let what = format!("{name}, {fill} from {start}");
                image.with(name, damaged).lay_out(folder.path());
                look(folder.path(), name, &what, &mut totals);
                go_on(folder.path(), name, &what);
            }
        }
    }
    counts::record("damaged trace stores opened", totals.tried);
}
