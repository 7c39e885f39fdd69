//! How a command ends.

use std::error::Error;
use std::io;
use std::process::ExitCode;

use crate::cluster::SettingsError;
use crate::history::measure::MeasureError;
use crate::history::simulate::SimulateError;
use crate::logs::files::LogError;
use crate::policy::image::ImageError;
use crate::spool::SpoolError;
use crate::standing::databases::StandingError;
use crate::store::InspectError;
use crate::sys::secure_dir::DirError;
use crate::trace::TraceError;

/// What a command found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Outcome {
    /// All is well: exit code 0.
    Fine,
    /// Something was found, or nothing was found that was searched for: exit code 1.
    /// The command's help says which.
    Found,
}

impl Outcome {
    /// [`Outcome::Found`] where `found`.
    pub(in crate::cli) fn found_if(found: bool) -> Self {
        if found { Self::Found } else { Self::Fine }
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Fine => Self::SUCCESS,
            Outcome::Found => Self::from(1),
        }
    }
}

/// Why a command could not do its work: exit code 2.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum Failure {
    /// What is wrong, where, and what would be right: one line.
    #[error("{0}")]
    Said(String),
    /// The output could not be written.
    #[error("{0}")]
    Output(#[from] io::Error),
}

impl Failure {
    /// A failure in words.
    pub(in crate::cli) fn new(what: impl Into<String>) -> Self {
        Self::Said(what.into())
    }

    fn in_words(error: &dyn Error) -> Self {
        Self::Said(error.to_string())
    }

    /// An error of the databases, which says what should be; what to do about it here and now may be
    /// simpler.
    fn of_databases(error: &(dyn Error + 'static)) -> Self {
        let (mut advice, mut next) = ("", Some(error));
        while let Some(cause) = next {
            let is_denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
            if cause.downcast_ref().is_some_and(is_denied) {
                advice = "; run exirate as root, or as that user";
            } else if let Some(SettingsError::Line { .. }) = cause.downcast_ref() {
                advice = "; `exirate cluster join` writes the file again";
            }
            next = cause.source();
        }
        Self::Said(format!("{error}{advice}"))
    }
}

/// Each of these errors is said by a function.
macro_rules! said {
    ($($said:path: $($error:ty),*;)*) => {
        $($(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                $said(&error)
            }
        })*)*
    };
}

said! {
    Failure::in_words: LogError, MeasureError, SimulateError;
    Failure::of_databases: SpoolError, DirError, TraceError, ImageError, SettingsError;
}

impl From<&ImageError> for Failure {
    fn from(error: &ImageError) -> Self {
        Self::of_databases(error)
    }
}

impl From<StandingError> for Failure {
    fn from(error: StandingError) -> Self {
        match error {
            StandingError::Inspect(error) => error.into(),
            error => Self::of_databases(&error),
        }
    }
}

impl From<InspectError> for Failure {
    fn from(error: InspectError) -> Self {
        match error.downcast_ref::<SpoolError>() {
            Some(error) => Self::of_databases(error),
            None => Self::Said(error.to_string()),
        }
    }
}
