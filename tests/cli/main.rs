//! The program `exirate`, run as an administrator runs it.

#![cfg(feature = "cli")]
#![allow(missing_docs, clippy::unwrap_used)]

mod block;
mod buckets;
mod calendar;
mod care;
mod check;
mod cluster;
mod config;
mod containers;
mod customers;
mod database;
mod deliver;
mod dependencies;
mod doctor;
mod dump;
mod erase;
mod events;
mod explain;
mod export;
mod fail2ban;
mod formats;
mod habits;
mod help;
mod hosting;
mod imports;
mod install;
mod keys;
mod list;
mod log_truth;
mod logs;
mod logs_as_written;
mod mail;
mod maintenance;
mod measure;
mod migrate;
mod overrides;
mod policy;
mod policy_apply;
mod policy_try;
mod prepared;
mod printed;
mod readme;
mod references;
mod rules;
mod scripts;
mod set;
mod share;
mod show;
mod simulate;
mod stats;
mod status;
mod times;
mod top;
mod trace;
mod transcripts;
mod unblock;
mod wrong;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn exirate() -> Command {
    Command::new(env!("CARGO_BIN_EXE_exirate"))
}

/// Runs `exirate ARGUMENTS --spool SPOOL`.
fn run(spool: &Path, arguments: &[&str]) -> Output {
    exirate().args(arguments).arg("--spool").arg(spool).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    assert_eq!(stderr(output), "");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn list(spool: &Path) -> Vec<Value> {
    let output = run(spool, &["list", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    json(&output).as_array().unwrap().clone()
}
