//! A check in Exim, from the configuration's library to the database.

use std::path::PathBuf;

use super::finding::{Findings, Level};
use super::mailer::Mailer;

/// Lets Exim check `spec`, which must be harmless, as its own user where that is
/// possible.
///
/// Only where all is well so far: Exim would mend a damaged database, and the
/// doctor is to change nothing.
pub(super) fn look(mailer: &Mailer, libraries: &[PathBuf], spec: &str, findings: &mut Findings) {
    let Some(setup) = &mailer.setup else { return };
    let sick = findings.count(Level::Problem) > 0;
    let (false, Some(library)) = (sick, libraries.first()) else { return };
    let call = format!("${{dlfunc{{{}}}{{ratelimit}}{{{spec}}}}}", library.display());
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
