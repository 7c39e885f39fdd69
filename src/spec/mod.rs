//! What the administrator wrote → a validated [`Request`].
//!
//! `m / p / options / key`, as the `ratelimit` condition of Exim reads it. A
//! [`Spec`] is the text taken apart; [`Spec::request`] adds what depends on
//! where in Exim it stands (see [`Context`]).

mod request;

pub use request::{Context, Mode, Place, Request, Scope, Update};
