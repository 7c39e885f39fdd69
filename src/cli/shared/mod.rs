//! What commands share: [`database`] opens and reads, [`keys`] finds the records an argument
//! means, [`screen`] and [`table`] show things to people.

pub(super) mod administrator;
pub(super) mod ask_daemon;
pub(super) mod commands;
pub(super) mod complete;
pub(super) mod confirm;
pub(super) mod database;
pub(super) mod diagnostics;
pub(super) mod event_settings;
pub(super) mod failure;
pub(super) mod hold_queue;
pub(super) mod keys;
pub(super) mod lines;
pub(super) mod output_file;
pub(super) mod rates;
pub(super) mod screen;
pub(super) mod server_table;
pub(super) mod spool_dir;
pub(super) mod table;
pub(super) mod times;
