//! The library in a real Exim: the machine's own, or that of a chroot of
//! `scripts/chroots`, in which `scripts/exims` runs this as well.

#![allow(missing_docs, unreachable_pub)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acl_files;
mod addresses;
mod alerts;
mod build;
mod bypass;
mod calendar;
mod day_of_mail;
mod end_to_end;
mod events;
mod explain;
mod failed;
mod habits;
mod held;
mod identities;
mod later;
mod logs;
mod mail_front_ends;
mod native;
mod outcomes;
mod overrides;
mod policy;
mod policy_examples;
mod policy_paths;
mod policy_replayed;
mod probe;
mod record;
mod shadow;
mod simulated;
mod socket;
mod stages;
mod taint;
mod theft;
mod two_libraries;
