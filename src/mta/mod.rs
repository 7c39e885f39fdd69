//! The configurations of mail servers, read as the servers read them: `rules`, `doctor` and
//! `setup` use these readers, and the scripts of the packages by `exirate rules`.

pub(crate) mod exim;
