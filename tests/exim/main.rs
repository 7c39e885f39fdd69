//! The library in a real Exim: the machine's own, or that of a chroot of
//! `scripts/chroots`, in which `scripts/exims` runs this as well.

#![allow(missing_docs, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acl_files;
mod alerts;
mod build;
mod bypass;
#[path = "../common/mod.rs"]
mod common;
#[path = "../../src/sys/counts.rs"]
mod counts;
#[path = "../mail/daemon.rs"]
#[allow(dead_code)]
mod daemon;
mod day_of_mail;
mod end_to_end;
mod events;
mod explain;
mod identities;
mod logs;
mod mail_front_ends;
#[path = "../mail/mta.rs"]
#[allow(dead_code)]
mod mta;
mod native;
mod outcomes;
mod overrides;
mod policy;
mod policy_examples;
mod policy_paths;
mod policy_replayed;
mod record;
#[path = "../redis_common/mod.rs"]
mod redis_common;
mod shadow;
mod simulated;
#[path = "../mail/client.rs"]
#[allow(dead_code)]
mod smtp_policy;
mod stages;
mod taint;
mod two_libraries;
