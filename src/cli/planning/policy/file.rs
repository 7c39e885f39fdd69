//! Policy files, as the commands read them; and `exirate policy apply --users`: the file of users that a
//! policy names, from elsewhere.
//!
//! What is cut off, empty, or has far fewer users than the file that it replaces never becomes
//! the limits: so is the answer of a database that is half down.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::cli::Failure;
use crate::cli::shared::output_file;
use crate::cli::shared::screen::{Terminal, complain, note};
use crate::csv;
use crate::history::measure::{By, MeasuredBy};
use crate::mta::ServerKind;
use crate::policy::image::{Image, build};
use crate::policy::model::{Location, Policies};
use crate::policy::needs::{FrontEnd, unheld};
use crate::policy::source::{Compiled, FILE, compile, read};
use crate::text::{counted_or_no, input, printable};
use crate::toml_file::diagnostic::place;
use crate::toml_file::text;

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

/// Where a policy at delivery is written that this mail server cannot keep, and why.
pub(super) fn needs_exim(
    policies: &Policies,
    other: Option<ServerKind>,
) -> Option<(Location, String)> {
    let server = other?.name();
    policies.at_delivery().find_map(|(name, policy)| {
        let why = unheld(policy)?;
        let text = format!(
            "{name:?} is evaluated when mail is delivered, which {server} cannot do for it: {why}; \
             docs/later.md"
        );
        Some((policy.at, text))
    })
}

/// Fewer than this part of the users before, in percent, is too few;
const LEAST: usize = 90;
/// if there were at least so many.
const FROM: usize = 20;

/// The users that were handed over, as text.
pub(super) struct UsersText {
    text: String,
    /// Where it is from.
    name: String,
}

impl UsersText {
    /// Reads the file, `-` for standard input, to its end.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn read(users: &Path) -> Result<Self, Failure> {
        let (mut input, name) = input::open(users, &Terminal).map_err(Failure::new)?;
        let text = text::read(&mut input, &name).map_err(Failure::new)?;
        Ok(Self { text, name })
    }
}

/// A file of users that was handed over, and the one that it replaces.
pub(super) struct GivenUsers {
    text: String,
    name: String,
    file: PathBuf,
}

impl GivenUsers {
    /// The text of the users in place of the file of users that the policy file at `policy`
    /// names; the policies with them. Nothing is written.
    ///
    /// # Errors
    /// It is cut off; there is an error in it or in the policy file; that names no file of users,
    /// or several.
    pub(super) fn of(text: UsersText, policy: &Path) -> Result<(Self, Policies), Failure> {
        let UsersText { text: given, name } = text;
        if given.is_empty() {
            return Err(Failure::new(format!("{name} is empty: nothing has changed")));
        }
        if !given.ends_with('\n') {
            let text = format!(
                "{name} may be cut off, as it does not end with a newline: nothing has changed"
            );
            return Err(Failure::new(text));
        }
        let named = RefCell::new(BTreeSet::new());
        let load = |path: &Path| {
            named.borrow_mut().insert(path.to_owned());
            Ok(given.clone())
        };
        let mut compiled = compile(policy, &text::load(policy).map_err(Failure::new)?, &load);
        let named: Vec<PathBuf> = named.into_inner().into_iter().collect();
        let [file] = &named[..] else {
            let policy = policy.display();
            let which = named.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
            return Err(Failure::new(match which.join(", ") {
                none if none.is_empty() => {
                    format!(
                        "{policy} names no file that --users could replace: write users = \
                         \"users.csv\" in a policy"
                    )
                }
                several => format!(
                    "{policy} names several files of users, and --users is for one: {several}"
                ),
            }));
        };
        // Places are in what was handed over.
        compiled.diagnostics.rename(file, Path::new(&name));
        let mut policies = reported(compiled, policy)?;
        policies
            .files
            .iter_mut()
            .filter(|one| *one == file)
            .for_each(|one| *one = PathBuf::from(&name));
        Ok((Self { text: given, name, file: file.clone() }, policies))
    }

    /// Refuses what has no user, or far fewer than before.
    ///
    /// # Errors
    /// It is so, or what was there before cannot be read.
    pub(super) fn require_enough(&self) -> Result<(), Failure> {
        let before = self.before()?.map_or(0, |text| users(&text));
        let now = users(&self.text);
        if now > 0 && (before < FROM || now * 100 >= before * LEAST) {
            return Ok(());
        }
        let (name, file) = (&self.name, self.file.display());
        let before = counted_or_no(before, "user", "users");
        let too_few = match now {
            0 => "has no user".to_owned(),
            now => format!("has {now}, less than {LEAST} %"),
        };
        Err(Failure::new(format!(
            "{file} has {before}, and {name} {too_few}: nothing has changed; use --allow-shrink \
             if that is intended"
        )))
    }

    /// Puts the text into the file, for the next time that the policy file is applied, and does
    /// `then`; where that fails, the file has what it had before. A link is replaced, not followed:
    /// the directory may belong to another user than the one who runs this. That user may go on
    /// replacing the file: it keeps its owner, or gets that of its directory.
    ///
    /// # Errors
    /// It cannot be written, or `then` fails; what was there before still is.
    pub(super) fn keep<T>(&self, then: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        let before = self.before()?;
        if before.as_ref() == Some(&self.text) {
            return then();
        }
        self.write(&self.text)?;
        then().inspect_err(|_| {
            let restored = match &before {
                Some(text) => self.write(text),
                None => fs::remove_file(&self.file).map_err(|error| self.failed(&error)),
            };
            if let Err(failure) = restored {
                let file = self.file.display();
                note(format_args!(
                    "{file} has the new users although they are not in use: {failure}"
                ));
            }
        })
    }

    fn write(&self, text: &str) -> Result<(), Failure> {
        let found = fs::symlink_metadata(&self.file).ok().filter(fs::Metadata::is_file);
        let mode = found.as_ref().map_or(0o644, |found| found.permissions().mode() & 0o777);
        let directory = self.file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let like = found.or_else(|| fs::metadata(directory.unwrap_or(Path::new("."))).ok());
        output_file::replace_as(&self.file, mode, like.as_ref(), |out| {
            Ok(out.write_all(text.as_bytes())?)
        })
    }

    fn failed(&self, error: &std::io::Error) -> Failure {
        Failure::new(input::failed(&self.file.display().to_string(), error))
    }

    /// What is in the file, if there is one.
    fn before(&self) -> Result<Option<String>, Failure> {
        match fs::read(&self.file) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }
}

/// How many users a file has.
fn users(text: &str) -> usize {
    let mut at = 0;
    std::iter::from_fn(|| csv::row(text, &mut at)).count().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::source::compile;

    #[test]
    fn a_policy_about_single_recipients_at_delivery_needs_exim() {
        let of = |text: &str, other| {
            let none = |_: &Path| Err(String::new());
            let text = format!("version = 1\n[policy.p]\n{text}");
            let compiled = compile(Path::new("p"), &text, &none);
            let policies =
                compiled.policies.unwrap_or_else(|| panic!("{:?}", compiled.diagnostics));
            needs_exim(&policies, other).map(|(at, why)| (at.line, why))
        };
        let limit = "default.recipients = \"9/1h\"\n";
        let pace = format!("at = \"delivery\"\nkey = \"destination\"\n{limit}");
        let acceptance = "key = \"recipient_domain\"\nwhen = \"authenticated\"\n";
        for other in [ServerKind::Postfix, ServerKind::Sendmail] {
            let other = Some(other);
            assert_eq!(of(&pace, None), None);
            assert_eq!(of(&format!("{acceptance}{limit}"), other), None);
            let users = format!("at = \"delivery\"\nkey = \"auth\"\n{limit}");
            assert_eq!(of(&users, other), None);
            let more = "default.messages = \"9/1h\"\ndefault.bytes = \"9M/1h\"\n";
            assert_eq!(of(&format!("{users}{more}"), other), None);
            let (line, why) = of(&pace, other).unwrap();
            assert!(line == 2 && why.contains("one slow receiver"), "{line}: {why}");
            for (more, expected) in [
                ("when = { recipient_domain = [\"x.test\"] }\n", "single recipients"),
                ("exempt = [{ recipients = \"a@x.test\" }]\n", "single recipients"),
                ("default.unique_recipients = \"9/1h\"\n", "write recipients"),
            ] {
                let (_, why) = of(&format!("{users}{more}"), other).unwrap();
                assert!(why.contains(expected), "{more}: {why}");
            }
        }
    }
}
