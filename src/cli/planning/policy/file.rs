//! Policy files, as the commands read them.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::cli::Failure;
use crate::cli::shared::screen::complain;
use crate::history::measure::{By, MeasuredBy};
use crate::mta::ServerKind;
use crate::policy::image::{Image, build};
use crate::policy::model::{Location, Policies};
use crate::policy::needs::FrontEnd;
use crate::policy::source::{Compiled, FILE, read};
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

/// By what mail is counted: by domains and customers as the policies of `file` know the users, or those
/// of the usual file, if it is there.
pub(in crate::cli) fn measured_by(by: By, file: Option<&Path>) -> Result<MeasuredBy, Failure> {
    let usual = Some(Path::new(FILE)).filter(|usual| by.is_of_group() && usual.exists());
    let file = match file.or(usual) {
        Some(_) if !by.is_of_group() => {
            return Err(Failure::new("--policy needs --by domain or --by customer"));
        }
        None if by == By::Customer => {
            return Err(Failure::new("--by customer needs the customers of a file: --policy FILE"));
        }
        file => file,
    };
    let image = file.map(compiled).transpose()?.map(|(_, image)| Rc::new(image));
    Ok(MeasuredBy::new(by, image)?)
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

/// The mail server of this machine, if it is not Exim.
pub(super) fn other_server() -> Option<ServerKind> {
    let (kind, _) = ServerKind::of_this_machine(None).ok()?;
    (kind != ServerKind::Exim).then_some(kind)
}

/// The front ends by which the mail server of this machine may ask that do not see everything.
pub(super) fn front_ends() -> &'static [FrontEnd] {
    match ServerKind::of_this_machine(None) {
        Ok((ServerKind::Exim, _)) => &[],
        Ok((ServerKind::Sendmail, _)) => &[FrontEnd::Milter],
        Ok((ServerKind::Postfix, _)) | Err(_) => &FrontEnd::ALL,
    }
}

/// Where a policy is written that this mail server asks nothing about, and why.
pub(super) fn needs_exim(
    policies: &Policies,
    other: Option<ServerKind>,
) -> Option<(Location, String)> {
    let (name, policy) = policies.at_delivery().next()?;
    let server = other?.name();
    let why = format!(
        "{name:?} is evaluated when mail is delivered, for which {server} asks no policy: that is for \
         Exim; write at = \"acceptance\" (docs/later.md)"
    );
    Some((policy.at, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::source::compile;

    #[test]
    fn a_policy_at_delivery_needs_exim() {
        let of = |text: &str, other| {
            let none = |_: &Path| Err(String::new());
            let text = format!("version = 1\n[policy.p]\ndefault.recipients = \"9/1h\"\n{text}");
            let policies = compile(Path::new("p"), &text, &none).policies.unwrap();
            needs_exim(&policies, other).map(|(at, why)| (at.line, why))
        };
        let other = Some(ServerKind::Postfix);
        assert_eq!(of("at = \"delivery\"\n", None), None);
        assert_eq!(of("at = \"acceptance\"\n", other), None);
        let (line, why) = of("at = \"delivery\"\n", other).unwrap();
        assert!(line == 2 && why.contains("Postfix asks no policy"), "{line}: {why}");
    }
}
