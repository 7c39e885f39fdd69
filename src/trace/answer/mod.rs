//! What a query is about, and what it comes to, for people and programs.
//!
//! [`excerpt`] and [`names`] have what is searched for, [`answers`] and [`reply`] what was found, and
//! [`probability`] chances in words.

mod answers;
mod excerpt;
mod names;
pub(crate) mod probability;
mod reply;

pub(crate) use answers::{
    AnswerJson, CSV_HEAD, First, PassageJson, Sort, chance, csv_line, group, passage, share,
    within, within_words,
};
pub(crate) use excerpt::{ExcerptSource, Excerpts, Passages, bytes_as_text, questions, sha256};
pub(crate) use names::{Name, Network, addresses};
pub(crate) use reply::{QueryReply, RARE, ReplyFacts, distinctive_share, too_short};
