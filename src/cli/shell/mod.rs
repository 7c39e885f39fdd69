//! What shells and manuals show of the program.

pub(super) mod completions;
pub(super) mod help;
pub(super) mod json;
pub(super) mod man;
pub(super) mod other_words;
mod transcripts;
