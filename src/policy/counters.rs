//! Counters of what policies decide: how often each rule was checked, by mode and verdict.
//!
//! They are in the file `policy.counters` beside the image, which all processes map. Each
//! counter is one atomic addition: nothing is locked, and a process that is killed leaves
//! what it had counted. The file has a fixed size. A rule has the slot that the hash of its
//! name leads to; one that finds no slot is counted in `uncounted`. `exirate policy apply`
//! frees the slots of rules that no longer exist.
//!
//! A counter never fails a check: a file that cannot be used is not counted in, and a
//! damaged one is quarantined and replaced.
//!
//! | offset | size | field | content |
//! |---|---|---|---|
//! | 0 | 8 | `magic` | `EXIRCNT1` |
//! | 8 | 8 | `superseded` | 1 if another file has replaced this one |
//! | 16 | 8 | `uncounted` | checks of rules for which there was no slot |
//! | 24 | 8 | `errors` | evaluations that failed |
//!
//! Slots of 256 bytes follow from 256 on:
//!
//! | offset | size | field | content |
//! |---|---|---|---|
//! | 0 | 8 | `tag` | hash of the name; 0: the slot is free |
//! | 8 | 96 | `counts` | for each mode, for each verdict |
//! | 104 | 152 | `name` | policy, line feed, rule; zeros after it |
//!
//! A slot belongs to its rule from the moment its tag is written. A name that is not the
//! tag's was torn by a kill; the next process that counts there writes it again.

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::limit::{Limit, Per};
use super::word::{Unit, Verdict, Word as _};
use crate::engine::Algorithm;
use crate::spool;
use crate::sys::files::{self, Access};
use crate::sys::mapping::Mapping;
use crate::sys::secure_dir::{DirError, SecureDir};

/// The file.
const COUNTERS: &CStr = c"policy.counters";
/// That file while it is written.
const COUNTERS_NEW: &CStr = c"policy.counters.new";
/// A damaged file that was replaced.
const COUNTERS_DAMAGED: &CStr = c"policy.counters.damaged-1";

const MAGIC: u64 = u64::from_le_bytes(*b"EXIRCNT1");
const SUPERSEDED: usize = 8;
const UNCOUNTED: usize = 16;
const ERRORS: usize = 24;

/// The size of a slot, and of the header.
const SLOT: usize = 256;
/// The slots of rules.
const SLOTS: usize = 511;
/// The size of the file.
const BYTES: usize = (1 + SLOTS) * SLOT;
/// The slots in which a rule is searched for.
const PROBES: usize = 64;
const COUNTS: usize = 8;
const NAME: usize = COUNTS + 8 * MODES * Verdict::ALL.len();
const NAME_WORDS: usize = (SLOT - NAME) / 8;
/// Enforced, and observed.
const MODES: usize = 2;

/// How many rules a process remembers the slots of.
const KNOWN_MAX: usize = 64;

/// How long `exirate policy apply` waits for the lock of the directory.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// What is counted: one rule that was checked.
#[derive(Clone, Copy, Debug)]
pub struct Checked<'a> {
    /// The policy.
    pub policy: &'a str,
    /// The rule: `recipients/1h`, `recipients/1h (total)`, `recipients/bucket 1/1h`.
    pub rule: RuleName<'a>,
    /// It could not refuse the event.
    pub observed: bool,
    /// The rule's own verdict; that of an observed one is what it would have been.
    pub verdict: Verdict,
}

impl<'a> Checked<'a> {
    /// `limit` of `policy`, which had this verdict.
    #[must_use]
    #[inline]
    pub fn new(policy: &'a str, limit: &Limit<'a>, observed: bool, verdict: Verdict) -> Self {
        let bucket = matches!(limit.algorithm, Algorithm::Bucket { .. });
        let total = limit.per == Per::Domain;
        let rule = RuleName::new(limit.unit, bucket, limit.text, total);
        Self { policy, rule, observed, verdict }
    }
}

/// How a rule is called: its unit and period, or the rate of a bucket. The limit is not
/// part of it, as users have their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleName<'a> {
    /// What is counted.
    pub unit: Unit,
    /// It is a bucket.
    pub bucket: bool,
    /// The period of a window, or the rate of a bucket, as written.
    pub window: &'a str,
    /// All users of a domain are counted together.
    pub total: bool,
}

impl<'a> RuleName<'a> {
    /// Of a limit as written: `100/1h`; of a bucket its rate, `1/1h`.
    #[must_use]
    #[inline]
    pub fn new(unit: Unit, bucket: bool, text: &'a str, total: bool) -> Self {
        let window = match text.split_once('/') {
            Some((_, period)) if !bucket => period,
            _ => text,
        };
        Self { unit, bucket, window, total }
    }

    fn parts(&self) -> [&'a str; 4] {
        let kind = if self.bucket { "/bucket " } else { "/" };
        let total = if self.total { " (total)" } else { "" };
        [self.unit.word(), kind, self.window, total]
    }
}

impl std::fmt::Display for RuleName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.parts().iter().try_for_each(|part| f.write_str(part))
    }
}

/// The name of a rule and its policy, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name([u64; NAME_WORDS]);

impl Name {
    fn of(checked: &Checked<'_>) -> Self {
        let [unit, kind, window, total] = checked.rule.parts();
        Self::from_parts(&[checked.policy, "\n", unit, kind, window, total])
    }

    /// What is too long is cut off.
    fn from_parts(parts: &[&str]) -> Self {
        let mut bytes = [0; 8 * NAME_WORDS];
        let mut rest = &mut bytes[..];
        for part in parts {
            let length = part.len().min(rest.len());
            let (to, after) = rest.split_at_mut(length);
            to.copy_from_slice(part.as_bytes().get(..length).unwrap_or_default());
            rest = after;
        }
        let mut words = [0; NAME_WORDS];
        let (eights, _) = bytes.as_chunks();
        for (word, eight) in words.iter_mut().zip(eights) {
            *word = u64::from_le_bytes(*eight);
        }
        Self(words)
    }

    /// Never 0.
    fn tag(&self) -> u64 {
        let mut hash = 0x9e37_79b9_7f4a_7c15_u64;
        for word in self.0.iter().take_while(|word| **word != 0) {
            hash = (hash ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
            hash ^= hash >> 32;
        }
        hash.max(1)
    }

    /// The policy and the rule.
    fn read(&self) -> Option<(String, String)> {
        let bytes: Vec<u8> = self.0.iter().flat_map(|word| word.to_le_bytes()).collect();
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        let text = String::from_utf8_lossy(bytes.get(..end)?);
        let (policy, rule) = text.split_once('\n')?;
        Some((policy.to_owned(), rule.to_owned()))
    }
}

/// The counters of a spool directory, to count in.
#[derive(Debug)]
pub struct Counters {
    spool: PathBuf,
    state: State,
    /// The rules that this process counted, and their slots.
    known: Vec<Known>,
}

/// A rule and its slot.
#[derive(Debug)]
struct Known {
    policy: Box<str>,
    unit: Unit,
    bucket: bool,
    window: Box<str>,
    total: bool,
    offset: usize,
}

impl Known {
    #[inline]
    fn is(&self, checked: &Checked<'_>) -> bool {
        let RuleName { unit, bucket, window, total } = checked.rule;
        (self.unit, self.bucket, self.total) == (unit, bucket, total)
            && *self.window == *window
            && *self.policy == *checked.policy
    }
}

#[derive(Debug)]
enum State {
    /// It is opened when something is counted.
    Closed,
    Open(Mapping),
    /// It could not be opened: this process counts nothing.
    Unusable,
}

impl Counters {
    /// Those of the spool directory `spool`. The file is opened, or created, when
    /// something is counted.
    #[must_use]
    pub fn new(spool: &Path) -> Self {
        Self { spool: spool.to_path_buf(), state: State::Closed, known: Vec::new() }
    }

    /// Counts a rule that was checked.
    #[inline]
    pub fn count(&mut self, checked: &Checked<'_>) {
        if self.map().is_none() {
            return;
        }
        let known = self.known.iter().find(|known| known.is(checked));
        let slot = known.map(|known| known.offset).or_else(|| self.find(checked));
        let verdict = Verdict::ALL.iter().position(|verdict| *verdict == checked.verdict);
        let counter = usize::from(checked.observed) * Verdict::ALL.len() + verdict.unwrap_or(0);
        self.add(slot.map_or(UNCOUNTED, |offset| offset + COUNTS + 8 * counter));
    }

    /// The offset of the rule's slot; writes its name where it is missing or torn.
    #[cold]
    fn find(&mut self, checked: &Checked<'_>) -> Option<usize> {
        let State::Open(map) = &mut self.state else { return None };
        let name = Name::of(checked);
        let offset = find(map, &name)?;
        if read_name(map, offset).as_ref() != Some(&name) {
            write_name(map, offset, &name);
        }
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        let RuleName { unit, bucket, window, total } = checked.rule;
        let (policy, window) = (checked.policy.into(), window.into());
        self.known.push(Known { policy, unit, bucket, window, total, offset });
        Some(offset)
    }

    /// Counts an evaluation that failed.
    #[cold]
    pub fn count_error(&mut self) {
        if self.map().is_some() {
            self.add(ERRORS);
        }
    }

    #[inline]
    fn add(&mut self, offset: usize) {
        if let State::Open(map) = &self.state {
            // Every offset is in the file.
            let _ = map.add_u64(offset, 1);
        }
    }

    /// The file, opened again if another has replaced it.
    #[inline]
    fn map(&mut self) -> Option<&Mapping> {
        let is_current = match &self.state {
            State::Open(map) => map.u64(SUPERSEDED) == Some(0),
            State::Unusable => true,
            State::Closed => false,
        };
        if !is_current {
            self.reopen();
        }
        match &self.state {
            State::Open(map) => Some(map),
            _ => None,
        }
    }

    #[cold]
    fn reopen(&mut self) {
        self.known.clear();
        self.state = open(&self.spool).map_or(State::Unusable, State::Open);
    }
}

fn read_name(map: &Mapping, offset: usize) -> Option<Name> {
    let mut words = [0; NAME_WORDS];
    for (n, word) in words.iter_mut().enumerate() {
        *word = map.u64(offset + NAME + 8 * n)?;
    }
    Some(Name(words))
}

#[cold]
fn write_name(map: &mut Mapping, offset: usize, name: &Name) {
    for (n, word) in name.0.iter().enumerate() {
        // Every offset is in the file.
        let _ = map.set_u64(offset + NAME + 8 * n, *word);
    }
}

/// The offset of the slot of `name`, claimed if it had none. `None` if all slots in which
/// it may be are taken.
fn find(map: &Mapping, name: &Name) -> Option<usize> {
    let tag = name.tag();
    // Less than SLOTS.
    let first = (tag % SLOTS as u64) as usize;
    for probe in 0..PROBES {
        let slot = (first + probe) % SLOTS;
        let offset = (1 + slot) * SLOT;
        let mut found = map.u64(offset)?;
        if found == 0 {
            found = map.replace_u64(offset, 0, tag)?;
            if found == 0 {
                return Some(offset);
            }
        }
        if found == tag {
            return Some(offset);
        }
    }
    None
}

/// Opens the file for counting; creates it if it is missing, and replaces it if it is
/// damaged.
fn open(spool: &Path) -> Option<Mapping> {
    let dir = spool::open_directory(spool, false).ok()?;
    for _ in 0..2 {
        let file = dir.open_or_create(COUNTERS, spool::FILE_MODE).ok()?;
        let size = files::info(&file).ok()?.size;
        let mut magic = [0; 8];
        let _ = files::read_start(&file, &mut magic).ok()?;
        match u64::from_le_bytes(magic) {
            MAGIC if size == BYTES as u64 => return Mapping::of(&file, true).ok(),
            // New, or a process was killed while it created it.
            0 if size <= BYTES as u64 => {
                files::reserve(&file, 0, BYTES as u64).ok()?;
                let mut map = Mapping::of(&file, true).ok().filter(|map| map.len() == BYTES)?;
                map.set_u64(0, MAGIC)?;
                return Some(map);
            }
            _ => quarantine(&dir, &file)?,
        }
    }
    None
}

/// Renames the damaged `file`, unless another process has done so.
#[cold]
fn quarantine(dir: &SecureDir, file: &std::fs::File) -> Option<()> {
    let _guard = dir.lock_directory(Duration::ZERO).ok()?;
    let named = files::info_at(dir.directory(), COUNTERS).ok()?.identity;
    if files::info(file).ok()?.identity == named {
        files::rename_at(dir.directory(), COUNTERS, COUNTERS_DAMAGED).ok()?;
    }
    Some(())
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By policy and rule, in this order.
    pub rules: Vec<RuleCounts>,
    /// Checks of rules for which there was no room.
    pub uncounted: u64,
    /// Evaluations that failed.
    pub errors: u64,
}

/// The counters of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleCounts {
    /// The policy.
    pub policy: String,
    /// The rule, such as `recipients/1h`.
    pub rule: String,
    /// For each verdict, in the order of [`Verdict::ALL`], where the rule was enforced.
    pub enforced: [u64; Verdict::ALL.len()],
    /// The same where it was only observed: what the verdicts would have been.
    pub observed: [u64; Verdict::ALL.len()],
}

/// Reads the counters of the spool directory `spool`. `None` if there is no file, or it is
/// damaged: the next process that counts replaces it.
///
/// # Errors
/// The directory or the file cannot be read.
pub fn read(spool: &Path) -> Result<Option<Counts>, DirError> {
    let dir = match spool::open_directory(spool, false) {
        Err(DirError::Absent { .. }) => return Ok(None),
        result => result?,
    };
    Ok(map_of(&dir, Access::Read)?.map(|map| counts(&map)))
}

/// The file, mapped, if it is there and sound.
fn map_of(dir: &SecureDir, access: Access) -> Result<Option<Mapping>, DirError> {
    let Some((file, info)) = dir.open_file(access, COUNTERS)? else { return Ok(None) };
    if info.size != BYTES as u64 {
        return Ok(None);
    }
    let map = Mapping::of(&file, access != Access::Read).map_err(dir.failed("map", COUNTERS))?;
    Ok(Some(map).filter(|map| map.u64(0) == Some(MAGIC)))
}

fn counts(map: &Mapping) -> Counts {
    let mut rules: Vec<RuleCounts> = slots(map)
        .filter_map(|(offset, name)| {
            let (policy, rule) = name.read()?;
            let [mut enforced, mut observed] = [[0; Verdict::ALL.len()]; MODES];
            for (n, count) in enforced.iter_mut().chain(&mut observed).enumerate() {
                *count = map.u64(offset + COUNTS + 8 * n)?;
            }
            Some(RuleCounts { policy, rule, enforced, observed })
        })
        .collect();
    rules.sort_by(|a, b| (&a.policy, &a.rule).cmp(&(&b.policy, &b.rule)));
    let of = |offset| map.u64(offset).unwrap_or(0);
    Counts { rules, uncounted: of(UNCOUNTED), errors: of(ERRORS) }
}

/// The slots in use and their names, without those whose name is not the tag's.
fn slots(map: &Mapping) -> impl Iterator<Item = (usize, Name)> {
    (1..=SLOTS).map(|slot| slot * SLOT).filter_map(|offset| {
        let tag = map.u64(offset).filter(|tag| *tag != 0)?;
        let name = read_name(map, offset)?;
        (name.tag() == tag).then_some((offset, name))
    })
}

/// Frees the slots of the rules that `is_known` does not know; returns how many. Processes
/// that count meanwhile may lose a few counts of the others.
///
/// # Errors
/// The file could not be written; the old one is still in use.
pub fn retain(spool: &Path, is_known: impl Fn(&str, &str) -> bool) -> Result<usize, DirError> {
    let dir = match spool::open_directory(spool, false) {
        Err(DirError::Absent { .. }) => return Ok(0),
        result => result?,
    };
    let _guard = dir.lock_directory(LOCK_TIMEOUT)?;
    let Some(mut old) = map_of(&dir, Access::Write)? else { return Ok(0) };
    let is_kept = |name: &Name| name.read().is_some_and(|(policy, rule)| is_known(&policy, &rule));
    let kept: Vec<_> = slots(&old).filter(|(_, name)| is_kept(name)).collect();
    let used = (1..=SLOTS).filter(|slot| old.u64(slot * SLOT).is_some_and(|tag| tag != 0)).count();
    let freed = used - kept.len();
    if freed == 0 {
        return Ok(0);
    }
    let failed = |error| dir.failed("write", COUNTERS)(error);
    let file = dir.create_file(COUNTERS_NEW, spool::FILE_MODE)?;
    let written = files::reserve(&file, 0, BYTES as u64).and_then(|()| {
        let mut new = Mapping::of(&file, true)?;
        copy(&old, &mut new, &kept).ok_or(std::io::ErrorKind::UnexpectedEof)?;
        files::rename_at(dir.directory(), COUNTERS_NEW, COUNTERS)
    });
    if let Err(error) = written {
        let _ = files::remove_at(dir.directory(), COUNTERS_NEW);
        return Err(failed(error));
    }
    // Running processes open the new one.
    let _ = old.set_u64(SUPERSEDED, 1);
    Ok(freed)
}

/// Copies the counters of the `kept` slots, and the others of the header.
fn copy(old: &Mapping, new: &mut Mapping, kept: &[(usize, Name)]) -> Option<()> {
    for (from, name) in kept {
        let to = find(new, name)?;
        write_name(new, to, name);
        for at in (COUNTS..NAME).step_by(8) {
            new.set_u64(to + at, old.u64(from + at)?)?;
        }
    }
    for at in [UNCOUNTED, ERRORS] {
        new.set_u64(at, old.u64(at)?)?;
    }
    new.set_u64(0, MAGIC)
}

#[cfg(test)]
mod tests;
