//! The file-locked spool database: a [`crate::store::Store`].
