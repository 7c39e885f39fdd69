//! Checking a store without its key.

use std::path::Path;

use crate::sys::files::Access;
use crate::sys::mapping::Mapping;
use crate::sys::secure_dir::SecureDir;
use crate::text::counted;

use super::codec::{checksum_fits, decode};
use super::error::Problem;
use super::key::KEY;
use super::log::Start;
use super::names::{self, FileKind, Numbered, OPEN};
use super::segment::SEGMENT_MAGIC;
use super::verify::Verified;
use super::{TraceError, TraceStore, VERSIONS};

impl TraceStore {
    /// Checks a store whose key is missing: the checksums of segments. That everything else
    /// cannot be checked is the first problem. No messages are counted.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn verify_without_key(
        directory: &Path,
        problem: &mut dyn FnMut(Problem),
    ) -> Result<Verified, TraceError> {
        let dir = Self::open_directory(directory, false)?;
        let listed = names::list(&dir)?;
        let (segments, logs): (Vec<Numbered>, Vec<Numbered>) =
            listed.into_iter().partition(|one| one.kind == FileKind::Segment);
        let open = dir.open_file(Access::Read, OPEN)?;
        let logs = logs.len() + usize::from(open.is_some());
        let mut problems = vec![Problem {
            path: dir.path_of(KEY),
            what: format!(
                "it is missing: without it, only damage in {} can be found, and not whether they \
                 were changed on purpose; {} not checked",
                counted(segments.len(), "segment", "segments"),
                counted(logs, "log was", "logs were")
            ),
        }];
        let mut verified = Verified { files: segments.len() as u64, ..Verified::default() };
        for numbered in segments {
            let name = numbered.name();
            let (bytes, wrong) = checked(&dir, &name)?;
            verified.bytes += bytes;
            let path = dir.path_of(&name);
            problems.extend(wrong.map(|what| Problem { path, what: what.to_owned() }));
        }
        verified.problems = problems.len() as u64;
        problems.into_iter().for_each(problem);
        Ok(verified)
    }
}

/// The size of a segment, and what is wrong with it. One that was removed meanwhile is empty.
fn checked(
    dir: &SecureDir,
    name: &std::ffi::CStr,
) -> Result<(u64, Option<&'static str>), TraceError> {
    let Some((file, info)) = dir.open_file(Access::Read, name)? else { return Ok((0, None)) };
    if info.size == 0 {
        return Ok((0, Some("it is empty")));
    }
    let map = Mapping::of(&file, false).map_err(dir.failed("read", name))?;
    let bytes = map.bytes(0, map.len()).unwrap_or(&[]);
    let is_ours = decode::<Start>(bytes).is_some_and(|start| {
        start.magic == SEGMENT_MAGIC && VERSIONS.known().contain(start.version)
    });
    let wrong = match is_ours {
        false => Some("it does not begin as a segment of this version"),
        true => (!checksum_fits(bytes)).then_some("its checksum is wrong"),
    };
    Ok((info.size, wrong))
}
