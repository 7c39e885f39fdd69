//! The mail servers of this machine and their configurations, read as the servers read them:
//! `rules`, `doctor` and `setup` use these readers, and the scripts of the packages by
//! `exirate rules`. [`held`] is their queues, as far as policies hold messages there.

pub(crate) mod account;
pub(crate) mod command;
pub(crate) mod exim;
pub(crate) mod held;
mod kind;
pub(crate) mod postfix;
pub(crate) mod sendmail;

pub(crate) use account::Account;
pub(crate) use kind::ServerKind;
