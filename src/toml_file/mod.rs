//! Files in TOML that an administrator writes: places in them, what is wrong there, and
//! typed access to their values.

#[cfg(feature = "cli")]
pub mod diagnostic;
mod location;
#[cfg(feature = "cli")]
mod long_tables;
#[cfg(feature = "cli")]
pub(crate) mod reader;
#[cfg(feature = "cli")]
pub(crate) mod text;
mod word;

pub use location::Location;
pub use word::Word;
