//! What the page of `exirate report` costs for a month of 100,000 identities: to make it, its
//! size, and until Chromium shows it and its table answers.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use kit::browser::Browser;

/// The page is opened so often; the median counts.
const ROUNDS: usize = 5;
/// What is done on the page, and how it is called.
const DEEDS: [(&str, &str); 4] = [
    (
        "search",
        "{ const box = document.querySelector('#identities input[type=search]');
           box.value = '99@'; box.dispatchEvent(new Event('input')); }",
    ),
    ("sort by name", "document.querySelector('#identities thead button').click()"),
    (
        "move the slider",
        "{ const slider = document.getElementById('slider');
           slider.value = Math.floor(slider.max / 2); slider.dispatchEvent(new Event('input')); }",
    ),
    (
        "open and close details",
        "document.querySelector('#identities td button').click();
         document.getElementById('detail').close()",
    ),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|one| one != "--bench").collect();
    let people = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => 100_000,
        // Only to see that it runs.
        ["--quick"] => 1000,
        _ => panic!("{arguments:?}: the only option is --quick"),
    };
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("spool")).unwrap();
    let log = kit::demonstration::log(people);
    println!("log: {people} identities, {} messages, {}", log.lines().count(), mb(log.len()));
    fs::write(folder.path().join("mainlog"), log).unwrap();
    fs::write(folder.path().join("policy.toml"), kit::demonstration::POLICY).unwrap();
    make(folder.path());
    let page = folder.path().join("page.html");
    println!("page: {}", mb(usize::try_from(fs::metadata(&page).unwrap().len()).unwrap()));

    let mut browser = Browser::start();
    let mut opened = Vec::new();
    let mut deeds = vec![Vec::new(); DEEDS.len()];
    for _ in 0..ROUNDS {
        let before = Instant::now();
        browser.open(&page);
        shown(&mut browser);
        opened.push(before.elapsed().as_secs_f64());
        for ((_, deed), times) in DEEDS.iter().zip(&mut deeds) {
            let before = Instant::now();
            browser.value(deed);
            shown(&mut browser);
            times.push(before.elapsed().as_secs_f64());
        }
    }
    println!("open: {:.2} s", median(&mut opened));
    for ((name, _), times) in DEEDS.iter().zip(&mut deeds) {
        println!("{name}: {:.3} s", median(times));
    }
}

/// Makes the page, and prints the time and the memory.
fn make(folder: &Path) {
    let before = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_exirate"))
        .args(["report", "mainlog", "--policy", "policy.toml", "--output", "page.html"])
        .args(["--spool", "spool"])
        .current_dir(folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = String::new();
    while child.try_wait().unwrap().is_none() {
        let status = fs::read_to_string(&status).unwrap_or_default();
        if let Some(line) = status.lines().find_map(|line| line.strip_prefix("VmHWM:")) {
            line.trim().clone_into(&mut peak);
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert!(child.wait().unwrap().success());
    println!("make: {:.1} s, {peak} of memory", before.elapsed().as_secs_f64());
}

/// Waits until the browser has drawn what there is.
fn shown(browser: &mut Browser) {
    browser.value(
        "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))",
    );
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn mb(bytes: usize) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
