//! Why something was refused, what would let it pass, and what the habits of an account say.

mod habits;
mod limits;

pub(crate) use habits::{AccountJson, HabitsExplanation, suspected};
pub(crate) use limits::{EventExplanation, NowExplanation, blocked, decides, denied};
