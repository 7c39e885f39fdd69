//! Which lines of a configuration use exirate, so that whoever removes it knows what to delete.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::acls::Acls;
use super::calls::{calls, verb};
use super::debian::{Debian, ETC, GENERATED};
use super::macros::switches;
use super::own_files::names_ours;
use super::source::{Include, Line, Position, ReadError, Source, definition, label};

/// What a text has in it that asks our daemon.
const REQUEST: &str = "request=exirate_policy";
/// The start of the names of our ACLs. Debian's own options name them by a macro that a switch
/// defines: that line goes on with another value.
const OUR_ACLS: &str = "acl_exirate_";
/// The file with the paths of the libraries, which is installed and removed with them.
const LIBRARIES: &str = "exirate-libraries.conf";
/// The package's own files there, which go with it.
const OWN_PIECES: [&str; 2] = ["main/00_exirate", "acl/25_exirate"];

/// The lines that use exirate in the configuration `config`, as they are written. Of a statement
/// of an ACL that uses it, these are all lines: what would be left could accept or refuse all
/// mail. Lines of exirate's own files do not count. Where Debian generates the configuration,
/// the lines are those of what it is generated from, if that has any.
pub(crate) fn references(
    config: &Path,
    predefined: Vec<(String, String)>,
) -> Result<Vec<(Position, String)>, ReadError> {
    let is_generated = config.parent() == Path::new(GENERATED).parent();
    if is_generated {
        let found = in_sources(config, Path::new(ETC), predefined.clone())?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    let mut found = in_source(&Source::read_all(&[config], predefined)?);
    if is_generated {
        // The lines of the package's own files go with them.
        let read = |name| std::fs::read_to_string(Path::new(ETC).join("conf.d").join(name));
        let own = OWN_PIECES.map(read).map(Result::unwrap_or_default);
        let is_own = |text: &str| own.iter().any(|file| file.lines().any(|own| own.trim() == text));
        found.retain(|(_, text)| !is_own(text.trim()));
    }
    Ok(found)
}

/// The lines in the files of `folder` from which Debian generated `config`.
fn in_sources(
    config: &Path,
    folder: &Path,
    mut predefined: Vec<(String, String)>,
) -> Result<Vec<(Position, String)>, ReadError> {
    let unsplit = || Debian { etc: folder.to_owned(), split: false };
    let files = Debian::look(folder).unwrap_or_else(unsplit).sources();
    // What the generator adds: such as DCconfig_internet.
    let generated = Source::read_all(&[config], predefined.clone())?;
    let added = generated.macros.into_iter().filter(|known| known.name.starts_with("DC"));
    predefined.extend(added.map(|known| (known.name, known.value)));
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    Ok(in_source(&Source::read_all(&files, predefined)?))
}

fn in_source(source: &Source) -> Vec<(Position, String)> {
    let acls = Acls::of(source);
    let switches: BTreeSet<&str> = switches().collect();
    let mut found: Vec<(Position, String)> = Vec::new();
    let lines: Vec<&Line> = source.texts.iter().chain(&acls.from_files).collect();
    for statement in lines.chunk_by(|_, next| continues(next)) {
        if statement.iter().any(|line| uses(line, &switches)) {
            found.extend(statement.iter().flat_map(|line| line.written.iter().cloned()));
        }
    }
    for Include { position, written, path } in &source.includes {
        // Of a lone macro, the definition is what to delete.
        let name = written.split_whitespace().nth(1).unwrap_or_default();
        let is_macro = source.macro_named(name).is_some_and(|known| known.position.is_some());
        if !is_macro && is_ours(&path.to_string_lossy()) {
            found.push((position.clone(), written.clone()));
        }
    }
    found.retain(|(position, _)| !is_own_file(&position.file));
    let files: Vec<&Rc<Path>> = lines.iter().map(|line| &line.position.file).collect();
    let order = |position: &Position| files.iter().position(|file| **file == position.file);
    found.sort_by_cached_key(|(position, _)| (order(position), position.line));
    found.dedup();
    found
}

/// Whether a line belongs to the statement of the line before.
fn continues(line: &Line) -> bool {
    line.acl.is_some()
        && verb(&line.text).0.is_none()
        && definition(&line.text).is_none()
        && label(&line.text).is_none()
}

fn uses(line: &Line, switches: &BTreeSet<&str>) -> bool {
    let is_switch =
        |(name, _): (&str, usize)| switches.contains(name) || name.starts_with("EXIRATE");
    is_ours(&line.text)
        || line.written.iter().any(|(_, written)| written.contains(OUR_ACLS))
        || definition(&line.text).is_some_and(is_switch)
        || !calls(&line.text).is_empty()
}

fn is_ours(text: &str) -> bool {
    text.contains(REQUEST) || names_ours(text)
}

fn is_own_file(file: &Path) -> bool {
    let is_listed = file.parent().is_some_and(|parent| parent.ends_with("exirate"));
    file.ends_with(LIBRARIES) || is_listed || OWN_PIECES.iter().any(|own| file.ends_with(own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Debian's files, and what is found in them as `NAME:LINE: TEXT`.
    fn found(settings: &str, files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("update-exim4.conf.conf", settings);
        write("generated", ".ifndef DCconfig_internet\nDCconfig_internet=1\n.endif\n");
        for (name, text) in files {
            write(name, text);
        }
        let found = in_sources(&folder.path().join("generated"), folder.path(), Vec::new());
        let shown = |(position, text): (Position, String)| {
            let name = position.file.strip_prefix(folder.path()).unwrap().display().to_string();
            format!("{name}:{}: {text}", position.line)
        };
        found.unwrap().into_iter().map(shown).collect()
    }

    const LIMIT: &str = "  deny condition = OVER{1 / 1h}}\n";

    #[test]
    fn what_debian_generates_from_is_what_to_edit() {
        let split = "dc_use_split_config='true'\n";
        let over = "OVER = ${dlfunc{/usr/lib/exim4/exirate.so}{ratelimit}\n";
        let rcpt = format!("acl_check_rcpt:\n.ifdef DCconfig_internet\n{LIMIT}.endif\n  accept\n");
        let files = [
            ("conf.d/main/000_local", over),
            ("conf.d/main/00_exirate", ".include_if_exists /etc/exim4/exirate/exirate.conf\n"),
            ("conf.d/main/01_acl", "begin acl\n"),
            ("conf.d/acl/25_exirate", "acl_exirate_check_rcpt:\n  accept\n"),
            ("conf.d/acl/30_check", "no such\n"),
            ("conf.d/acl/30_check.rul", &rcpt),
            ("conf.d/acl/31_old.dpkg-old", LIMIT),
            ("exim4.conf.template", over),
        ];
        let limit = LIMIT.trim();
        let expected = [
            format!("conf.d/main/000_local:1: {}", over.trim()),
            format!("conf.d/acl/30_check.rul:3: {limit}"),
        ];
        assert_eq!(found(split, &files), expected);
        // Debian's own option names the ACL by a macro, and stays as it is.
        let macros = format!("{over}MAIN_ACL = acl_exirate_check_rcpt\n");
        let files = [
            ("exim4.conf.localmacros", &*macros),
            ("exim4.conf.template", &*format!("acl_smtp_rcpt = MAIN_ACL\nbegin acl\n{rcpt}")),
            ("conf.d/main/000_local", over),
        ];
        let expected = [
            format!("exim4.conf.localmacros:1: {}", over.trim()),
            "exim4.conf.localmacros:2: MAIN_ACL = acl_exirate_check_rcpt".to_owned(),
            format!("exim4.conf.template:5: {limit}"),
        ];
        assert_eq!(found("dc_use_split_config='false'\n", &files), expected);
    }
}
