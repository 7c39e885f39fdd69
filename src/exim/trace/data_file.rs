//! The data file of a message in Exim's spool: its body.
//!
//! `SPOOL[/QUEUE]/input/[C/]ID-D`, where `C` is the last character of the id's
//! first part with `split_spool_directory`. Its first line is `ID-D`, the rest
//! is the body, as `spool_open_datafile` of Exim 4.96 to 4.100 reads it.
//!
//! Exim has it open and locked. It is read through Exim's own descriptor: to open it
//! again and close it would unlock it (see [`Descriptor`]).

use crate::sys::descriptors::Descriptor;
use crate::sys::files;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The length of the first part of an id, the time (`MESSAGE_ID_TIME_LEN`).
const TIME_LENGTH: usize = 6;

/// Why a body cannot be read.
#[derive(Debug, thiserror::Error)]
pub(in crate::exim) enum DataFileError {
    /// There is no such file.
    #[error("there is no file {0}")]
    Missing(PathBuf),
    /// This process does not have it open.
    #[error("Exim does not have {0} open")]
    NotOpen(PathBuf),
    /// It belongs to another message, or is no data file.
    #[error("{0} does not begin with the message's id")]
    Foreign(PathBuf),
    /// There is not enough memory for it.
    #[error("not enough memory for a body of {0} bytes")]
    Memory(u64),
    /// Reading it failed.
    #[error("cannot read {0}: {1}")]
    Read(PathBuf, io::Error),
}

/// Appends the body of the message `id` in `queue` to `message`, which grows to at
/// most `max` bytes; whether some of the body was left out.
///
/// Lines end in LF, also where Exim stores CRLF (`spool_wireformat`).
pub(in crate::exim) fn append_body(
    spool: &Path,
    queue: &[u8],
    id: &[u8],
    max: usize,
    message: &mut Vec<u8>,
) -> Result<bool, DataFileError> {
    let (path, file) = find(spool, queue, id)?;
    let failed = |error| DataFileError::Read(path.clone(), error);
    let mark = [id, b"-D\n"].concat();
    let mut first = vec![0; mark.len()];
    if file.read_at(0, &mut first).map_err(failed)? < first.len() || first != mark {
        return Err(DataFileError::Foreign(path));
    }
    let (start, all) = (mark.len() as u64, file.size().saturating_sub(mark.len() as u64));
    let room = max.saturating_sub(message.len());
    let length = usize::try_from(all).unwrap_or(usize::MAX).min(room);
    let before = message.len();
    message.try_reserve_exact(length).map_err(|_| DataFileError::Memory(all))?;
    message.resize(before + length, 0);
    let read = file.read_at(start, &mut message[before..]).map_err(failed)?;
    message.truncate(before + read);
    to_lf(message, before);
    Ok(all > length as u64)
}

/// The path of the file, and the descriptor by which Exim has it open.
fn find(spool: &Path, queue: &[u8], id: &[u8]) -> Result<(PathBuf, Descriptor), DataFileError> {
    let mut input = spool.to_path_buf();
    if !queue.is_empty() {
        input.push(text(queue));
    }
    input.push("input");
    let name = text(&[id, b"-D"].concat());
    let split = id.get(TIME_LENGTH - 1).map(|letter| input.join(text(&[*letter])).join(&name));
    // After a change of split_spool_directory, a file at the other path belongs to
    // another message.
    let mut closed = None;
    for path in [Some(input.join(name)), split].into_iter().flatten() {
        let Ok(facts) = files::info_of(&path) else { continue };
        match Descriptor::of(facts.identity) {
            Some(descriptor) => return Ok((path, descriptor)),
            None => closed = Some(path),
        }
    }
    Err(match closed {
        Some(path) => DataFileError::NotOpen(path),
        None => DataFileError::Missing(input.join(text(&[id, b"-D"].concat()))),
    })
}

fn text(bytes: &[u8]) -> std::ffi::OsString {
    std::ffi::OsString::from_vec(bytes.to_vec())
}

/// Replaces CRLF by LF from `start` on, if the first line there ends in CRLF, so that
/// a body is the same bytes in both of Exim's formats. Exim's own format has no CR at
/// the end of a line.
fn to_lf(message: &mut Vec<u8>, start: usize) {
    let body = message.get(start..).unwrap_or_default();
    let first = body.iter().position(|&b| b == b'\n');
    if first.and_then(|end| body.get(end.checked_sub(1)?)) != Some(&b'\r') {
        return;
    }
    let mut to = start;
    for from in start..message.len() {
        if message[from] == b'\r' && message.get(from + 1) == Some(&b'\n') {
            continue;
        }
        message[to] = message[from];
        to += 1;
    }
    message.truncate(to);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    const SHORT: &[u8] = b"1vMrB7-000000-1x";
    const LONG: &[u8] = b"1vMrB7-00000000001-2x9Z";

    /// A spool with one data file that is open.
    fn spool(path: &str, content: &[u8]) -> (tempfile::TempDir, File) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        let file = File::options().read(true).write(true).open(path).unwrap();
        (folder, file)
    }

    fn body(spool: &Path, queue: &str, id: &[u8], max: usize) -> Result<(String, bool), String> {
        let mut message = b"H: x\n\n".to_vec();
        let partial = append_body(spool, queue.as_bytes(), id, max, &mut message);
        let partial =
            partial.map_err(|e| e.to_string().replace(spool.to_str().unwrap(), "SPOOL"))?;
        let text = String::from_utf8(message).unwrap();
        Ok((text.strip_prefix("H: x\n\n").unwrap().to_owned(), partial))
    }

    #[test]
    fn the_file_is_found_wherever_exim_puts_it() {
        for (id, path, queue) in [
            (SHORT, "input/1vMrB7-000000-1x-D", ""),
            (SHORT, "input/7/1vMrB7-000000-1x-D", ""),
            (LONG, "input/1vMrB7-00000000001-2x9Z-D", ""),
            (LONG, "input/7/1vMrB7-00000000001-2x9Z-D", ""),
            (LONG, "slow/input/7/1vMrB7-00000000001-2x9Z-D", "slow"),
        ] {
            let content = [id, b"-D\nbody\n.x\n"].concat();
            let (folder, _open) = spool(path, &content);
            let found = body(folder.path(), queue, id, 1000);
            assert_eq!(found, Ok(("body\n.x\n".to_owned(), false)), "{path}");
            assert_eq!(body(folder.path(), queue, id, 10), Ok(("body".to_owned(), true)));
            assert_eq!(body(folder.path(), queue, id, 0), Ok((String::new(), true)));
        }
    }

    #[test]
    fn the_file_of_another_message_is_not_read() {
        let (folder, open) = spool("input/1vMrB7-000000-1x-D", b"1vMrB7-000000-1y-D\nother\n");
        let read = |id| body(folder.path(), "", id, 1000).unwrap_err();
        let name = "SPOOL/input/1vMrB7-000000-1x-D";
        assert_eq!(read(SHORT), format!("{name} does not begin with the message's id"));
        drop(open);
        assert_eq!(read(SHORT), format!("Exim does not have {name} open"));
        assert_eq!(read(b"x"), "there is no file SPOOL/input/x-D");
        let (folder, _open) = spool("input/1vMrB7-000000-1x-D", b"1vMrB7");
        assert!(body(folder.path(), "", SHORT, 9).unwrap_err().contains("does not begin"));
    }

    #[test]
    fn lines_end_in_lf_in_both_formats() {
        for (wire, plain) in [
            ("a\r\nb\r\n", "a\nb\n"),
            ("\r\n\r\n..\r\nx", "\n\n..\nx"),
            ("a\r\nb\rc\r", "a\nb\rc\r"),
            ("a\nb\r\n", "a\nb\r\n"),
            ("\n", "\n"),
            ("", ""),
        ] {
            let mut message = [b"\r\n", wire.as_bytes()].concat();
            to_lf(&mut message, 2);
            assert_eq!(message, [b"\r\n", plain.as_bytes()].concat(), "{wire:?}");
        }
    }
}
