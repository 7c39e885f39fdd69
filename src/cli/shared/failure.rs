//! How a command ends.

use std::fmt;
use std::io;
use std::process::ExitCode;

use crate::alerts::AlertError;
use crate::cluster::SettingsError;
use crate::history::measure::MeasureError;
use crate::history::simulate::SimulateError;
use crate::logs::files::LogError;
use crate::policy::image::ImageError;
use crate::spool::SpoolError;
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
#[derive(Debug)]
pub(in crate::cli) enum Failure {
    /// What is wrong, where, and what would be right: one line.
    Said(String),
    /// The output could not be written.
    Output(io::Error),
}

impl Failure {
    /// A failure in words.
    pub(in crate::cli) fn new(what: impl Into<String>) -> Self {
        Self::Said(what.into())
    }

    /// An error of the database or of the trace store, which says what should
    /// be; what to do about it here and now may be simpler.
    fn with_advice(error: &dyn std::error::Error, place: Option<&DirError>) -> Self {
        let advice = match place {
            Some(DirError::Io { source, .. })
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                "; run exirate as root, or as that user"
            }
            _ => "",
        };
        Self::Said(format!("{error}{advice}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Said(text) => f.write_str(text),
            Self::Output(error) => error.fmt(f),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<LogError> for Failure {
    fn from(error: LogError) -> Self {
        Self::Said(error.to_string())
    }
}

impl From<MeasureError> for Failure {
    fn from(error: MeasureError) -> Self {
        Self::Said(error.to_string())
    }
}

impl From<SimulateError> for Failure {
    fn from(error: SimulateError) -> Self {
        Self::Said(error.to_string())
    }
}

impl From<SpoolError> for Failure {
    fn from(error: SpoolError) -> Self {
        let place = if let SpoolError::Directory(place) = &error { Some(place) } else { None };
        Self::with_advice(&error, place)
    }
}

impl From<DirError> for Failure {
    fn from(error: DirError) -> Self {
        Self::with_advice(&error, Some(&error))
    }
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        match error {
            SettingsError::Directory(error) => error.into(),
            error @ SettingsError::Line { .. } => {
                Self::Said(format!("{error}; `exirate cluster join` writes the file again"))
            }
        }
    }
}

impl From<AlertError> for Failure {
    fn from(error: AlertError) -> Self {
        match error {
            AlertError::Spool(error) => error.into(),
            AlertError::Image(error) => error.into(),
            AlertError::Settings(error) => error.into(),
            AlertError::Unfit(text) => Self::new(text),
        }
    }
}

impl From<&ImageError> for Failure {
    fn from(error: &ImageError) -> Self {
        let place = if let ImageError::Directory(place) = error { Some(place) } else { None };
        Self::with_advice(error, place)
    }
}

impl From<ImageError> for Failure {
    fn from(error: ImageError) -> Self {
        Self::from(&error)
    }
}

impl From<InspectError> for Failure {
    fn from(error: InspectError) -> Self {
        match error.downcast::<SpoolError>() {
            Ok(error) => (*error).into(),
            Err(error) => Self::Said(error.to_string()),
        }
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        let place = if let TraceError::Directory(place) = &error { Some(place) } else { None };
        Self::with_advice(&error, place)
    }
}
