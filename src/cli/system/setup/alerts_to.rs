//! The value of `exirate setup --alerts`.

use std::path::Path;

use crate::policy::source::{FILE, compile};
use crate::setup::policy_file::with_alerts;

/// Who is alerted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AlertsTo {
    /// Nobody.
    Nobody,
    /// This address.
    Mail(String),
}

impl AlertsTo {
    /// `none`, or an address that a policy file can have.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::Nobody);
        }
        let file = with_alerts("version = 1\n", Some(text));
        let none = |_: &Path| Err("no file".to_owned());
        let found = compile(Path::new(FILE), &file, &none).diagnostics.sorted();
        match found.first() {
            None => Ok(Self::Mail(text.to_owned())),
            Some(one) => Err(one.message.clone()),
        }
    }
}
