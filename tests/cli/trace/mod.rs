//! `exirate trace`: what goes in is found again.

mod care;
mod query;
mod record;
mod wrong;

use std::io::Write as _;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::mail;
use crate::{exirate, json, run, stderr, stdout};

/// A spool directory in whose trace store nothing is yet. Its key is known, so
/// that a message that is found by chance is found each time.
fn empty() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let output = trace(folder.path(), &["record", "--mbox", "/dev/null"]);
    assert_eq!(stdout(&output), "recorded 0 messages, 0 B\n", "{}", stderr(&output));
    mail::settle_key(folder.path());
    // The mail has a date, and the clock of the machine any other.
    let output = run(folder.path(), &["config", "set", "trace.keep=forever"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    folder
}

/// A spool directory in whose store the mail of [`mail::passed`] is.
fn passed() -> tempfile::TempDir {
    let folder = empty();
    let mbox = mail::mbox(&mail::passed());
    let output = pipe(folder.path(), &["record", "--mbox", "-", "--json"], mbox.as_bytes());
    assert_eq!(json(&output)["recorded"], 5);
    folder
}

/// The same, with other mail before it, so that probabilities can be estimated better.
fn busy() -> tempfile::TempDir {
    let folder = empty();
    let mbox = mail::mbox(&mail::others()) + &mail::mbox(&mail::passed());
    let output = pipe(folder.path(), &["record", "--mbox", "-", "--json"], mbox.as_bytes());
    assert_eq!(json(&output)["recorded"], mail::OTHERS + 5);
    folder
}

/// Runs `exirate trace ARGUMENTS --spool SPOOL`.
fn trace(spool: &Path, arguments: &[&str]) -> Output {
    run(spool, &[&["trace"], arguments].concat())
}

/// The same, with something to read on standard input.
fn pipe(spool: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut child = exirate()
        .arg("trace")
        .args(arguments)
        .arg("--spool")
        .arg(spool)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may refuse before it reads.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// The answer to a query.
fn answer(spool: &Path, arguments: &[&str]) -> Value {
    let output = trace(spool, &[&["query", "--json"], arguments].concat());
    let answer = json(&output);
    let found = answer["found"].as_array().unwrap().len();
    assert_eq!(output.status.code(), Some(i32::from(found == 0)), "{}", stderr(&output));
    answer
}

/// The ids of the messages that a query finds.
fn ids(spool: &Path, arguments: &[&str]) -> Vec<String> {
    let answer = answer(spool, arguments);
    let found = answer["found"].as_array().unwrap();
    found.iter().map(|message| message["id"].as_str().unwrap().to_owned()).collect()
}

/// The ids of the mail that has passed.
const Q3: &str = "1vL1kS-000000003Fq-2bXd";
const LEAK: &str = "1vLPqB-000000005Zk-0aQe";
const PLAN: &str = "1vLm3y-000000006Rd-3zKk";
const LUNCH: &str = "1vLo2C-000000007Hb-1gTt";
const BOUNCE: &str = "1vLoAc-000000007Jx-0oPp";
