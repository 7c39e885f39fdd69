//! Policy files, as the commands read them.

use std::path::{Path, PathBuf};

use crate::cli::Failure;
use crate::cli::shared::screen::complain;
use crate::policy::image::{Image, build};
use crate::policy::model::Policies;
use crate::policy::source::{Compiled, read};
use crate::text::printable;
use crate::toml_file::diagnostic::place;

/// Reads a policy file, which must be readable.
pub(super) fn open(path: &Path) -> Result<Compiled, Failure> {
    read(path).map_err(Failure::new)
}

/// The policies of a file without errors; else its errors are on standard error.
pub(in crate::cli) fn sound(path: &Path) -> Result<Policies, Failure> {
    reported(open(path)?, path)
}

/// The same, and compiled.
pub(in crate::cli) fn compiled(path: &Path) -> Result<(Policies, Image), Failure> {
    let policies = sound(path)?;
    let image = Image::from_bytes(build(&policies))?;
    Ok((policies, image))
}

/// The policies that were compiled without errors; else these are on standard error.
pub(super) fn reported(compiled: Compiled, path: &Path) -> Result<Policies, Failure> {
    match compiled.policies {
        Some(policies) => Ok(policies),
        None => {
            let files: Vec<PathBuf> = compiled.diagnostics.files.clone();
            let errors = compiled.diagnostics.sorted();
            for error in &errors {
                let line = format!("{}: {}", place(&files, error.at), error.message);
                complain(printable(line.as_bytes()));
            }
            Err(Failure::new(format!("{} cannot be used: see above", path.display())))
        }
    }
}
