//! The mail servers of this machine and their configurations, read as the servers read them:
//! `rules`, `doctor` and `setup` use these readers, and the scripts of the packages by
//! `exirate rules`.

pub(crate) mod account;
pub(crate) mod command;
pub(crate) mod exim;
pub(crate) mod postfix;
pub(crate) mod sendmail;

pub(crate) use account::Account;
