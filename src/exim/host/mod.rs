//! What both libraries use of the running Exim: its memory, functions and variables, and the
//! boundary that no panic crosses.

pub(super) mod abi;
pub(super) mod boundary;
pub(super) mod bypass;
pub(super) mod callers;
pub(super) mod context;
pub(super) mod directory;
pub(super) mod exports;
pub(super) mod headers;
pub(super) mod program;
pub(super) mod recipients;
pub(super) mod table;
pub(super) mod text;
pub(super) mod variables;
