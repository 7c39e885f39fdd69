//! A check in Exim, from the configuration's library to the database.

use std::path::PathBuf;

use super::finding::{Findings, Level};
use super::mailer::Mailer;

/// A readonly check of a key of its own: it writes nothing.
const SPEC: &str = "1 / 1h / readonly / exirate doctor";

/// Lets Exim make a check, as its own user where that is possible.
///
/// Only where the database is sound so far: Exim would make a missing one, and
/// mend a damaged one, and the doctor is to change nothing.
pub(super) fn look(mailer: &Mailer, libraries: &[PathBuf], read: bool, findings: &mut Findings) {
    let Some(setup) = &mailer.setup else { return };
    let sick = findings.count(Level::Problem) > 0;
    let (false, true, Some(library)) = (sick, read, libraries.first()) else { return };
    let call = format!("${{dlfunc{{{}}}{{ratelimit}}{{{SPEC}}}}}", library.display());
    if call.len() > super::library::ARGUMENT_MAX {
        return;
    }
    match mailer.exim.ask_as((setup.who.uid, setup.who.gid), &["-be", &call]) {
        Ok(answer) if answer.stdout.trim() == "no" => {
            findings.ok("Exim can ask the database: a check that counts nothing was answered");
        }
        Ok(answer) => {
            findings.problem(format!("Exim cannot ask the database: {}", answer.complaint()));
        }
        Err(error) => {
            findings.problem(error);
        }
    }
}
