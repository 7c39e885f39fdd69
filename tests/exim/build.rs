//! How the Exim of this machine, or of a chroot, takes the library in.

use kit::{EntryPoint, Setup, counts};

/// Loads that are timed; their median is printed.
const LOADS: usize = 21;

#[test]
fn the_library_is_loaded() {
    let exim = Setup::new().library().build();
    let ask = EntryPoint::chosen().ask("9 / 1h / per_cmd / readonly / k");
    // The first creates the database, which no other has to do.
    assert_eq!(exim.expand(&ask).stdout, "no\n");
    let timed = format!("$tod_epoch_l {ask} $tod_epoch_l {ask} $tod_epoch_l");
    let mut times: Vec<u64> = (0..LOADS)
        .map(|_| {
            let ran = exim.expand(&timed);
            let words: Vec<&str> = ran.stdout.split_whitespace().collect();
            let [start, "no", loaded, "no", asked] = words[..] else { panic!("{ran:?}") };
            let [start, loaded, asked]: [u64; 3] =
                [start, loaded, asked].map(|moment| moment.parse().unwrap());
            // The second answer costs no loading.
            (loaded - start).saturating_sub(asked - loaded)
        })
        .collect();
    times.sort_unstable();
    // Told, not judged: another program may have been at work as well.
    counts::record("µs to load the library into Exim", times[LOADS / 2]);
    assert_eq!(exim.log("panic"), "");
}
