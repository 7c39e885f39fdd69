//! A mail server, as setup deals with it.

use std::path::Path;

use super::error::SetupError;
use super::files::Contents;
use super::files::Steps;
use super::plan::Plan;
use crate::place::OWN;

/// A mail server, as setup deals with it.
pub(crate) trait MailServer {
    /// `Exim 4.98.2, Debian's split configuration, by the library`
    fn name(&self) -> String;

    /// The directory in which rates and policies in use are.
    fn spool(&self) -> &Path;

    /// What is missing.
    ///
    /// # Errors
    /// Setup cannot do it here.
    fn plan(&self) -> Result<Plan, SetupError>;

    /// Whether it receives mail now.
    ///
    /// # Errors
    /// It does not.
    fn is_running(&self) -> Result<(), SetupError>;

    /// Builds its configuration, with these files as they would be, beside the one in use, and
    /// has the mail server itself check it.
    ///
    /// # Errors
    /// What the mail server says.
    fn check(&self, files: &Contents) -> Result<(), SetupError>;

    /// Puts its configuration into force as the files have it now, and has running processes
    /// read it.
    ///
    /// # Errors
    /// What the mail server says.
    fn put_into_force(&self, steps: &Steps) -> Result<(), SetupError>;

    /// Whether mail comes to the lines.
    ///
    /// # Errors
    /// Where it does not, and what the mail server said.
    fn probe(&self) -> Result<(), SetupError>;
}

/// A mail server that is gone, or cannot be asked: its files can still be put back.
pub(crate) struct Absent;

impl MailServer for Absent {
    fn name(&self) -> String {
        "no mail server".to_owned()
    }

    fn spool(&self) -> &Path {
        Path::new(OWN)
    }

    fn plan(&self) -> Result<Plan, SetupError> {
        Ok(Plan::default())
    }

    fn is_running(&self) -> Result<(), SetupError> {
        Ok(())
    }

    fn check(&self, _: &Contents) -> Result<(), SetupError> {
        Ok(())
    }

    fn put_into_force(&self, _: &Steps) -> Result<(), SetupError> {
        Ok(())
    }

    fn probe(&self) -> Result<(), SetupError> {
        Ok(())
    }
}
