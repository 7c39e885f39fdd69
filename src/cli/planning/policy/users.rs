//! `exirate policy apply --users`: the file of users that a policy names, from elsewhere.
//!
//! What is cut off, empty, or has far fewer users than the file that it replaces never becomes
//! the limits: so is the answer of a database that is half down.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::file::reported;
use crate::cli::Failure;
use crate::cli::shared::screen::note;
use crate::cli::shared::{input, output_file};
use crate::csv;
use crate::policy::model::Policies;
use crate::policy::source::compile;
use crate::text::counted_or_no;
use crate::toml_file::text;

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
        let (mut input, name) = input::open(users)?;
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
                None => fs::remove_file(&self.file)
                    .map_err(|error| input::failed(&self.file.display().to_string(), &error)),
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

    /// What is in the file, if there is one.
    fn before(&self) -> Result<Option<String>, Failure> {
        match fs::read(&self.file) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(input::failed(&self.file.display().to_string(), &error)),
        }
    }
}

/// How many users a file has.
fn users(text: &str) -> usize {
    let mut at = 0;
    std::iter::from_fn(|| csv::row(text, &mut at)).count().saturating_sub(1)
}
