//! What the bytes of a library show, without loading it.

use std::fs::File;
use std::path::Path;

use crate::exim::version::MARK;
use crate::sys::files;

/// Whether these are the bytes of a library for the processor that `program`
/// is for.
pub(super) fn is_for_this_machine(bytes: &[u8], program: &Path) -> Result<(), String> {
    let ours = header(program).or_else(|| header(Path::new("/proc/self/exe")));
    let Some(found) = Elf::read(bytes) else {
        return Err("is not a library: it is not an ELF file".to_owned());
    };
    if found.kind != SHARED {
        return Err("is an ELF file, but not a shared library".to_owned());
    }
    match ours {
        Some(ours)
            if (ours.class, ours.order, ours.machine)
                != (found.class, found.order, found.machine) =>
        {
            Err(format!(
                "is for another processor than Exim (ELF machine {}, {} bits; Exim has {}, {})",
                found.machine,
                found.bits(),
                ours.machine,
                ours.bits()
            ))
        }
        _ => Ok(()),
    }
}

/// What the start of an ELF file contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Elf {
    class: u8,
    order: u8,
    kind: u16,
    machine: u16,
}

/// `e_type` of libraries.
const SHARED: u16 = 3;

impl Elf {
    fn read(bytes: &[u8]) -> Option<Self> {
        let [0x7f, b'E', b'L', b'F', class, order, ..] = *bytes else { return None };
        let half = |at: usize| {
            let pair = bytes.get(at..)?.first_chunk::<2>()?;
            Some(if order == 2 { u16::from_be_bytes(*pair) } else { u16::from_le_bytes(*pair) })
        };
        Some(Self { class, order, kind: half(16)?, machine: half(18)? })
    }

    fn bits(self) -> u8 {
        if self.class == 2 { 64 } else { 32 }
    }
}

fn header(program: &Path) -> Option<Elf> {
    let mut bytes = [0; 20];
    let length = files::read_start(&File::open(program).ok()?, &mut bytes).ok()?;
    Elf::read(bytes.get(..length)?)
}

/// The version that a library of ours has in its file.
pub(super) fn version(bytes: &[u8]) -> Option<&str> {
    let mark = MARK.as_bytes();
    bytes.windows(mark.len()).enumerate().find_map(|(at, window)| {
        if window != mark {
            return None;
        }
        let text = bytes.get(at + mark.len()..)?;
        let end = text.iter().take(40).position(|&b| b == 0)?;
        let version = std::str::from_utf8(text.get(..end)?).ok()?;
        version.starts_with(|c: char| c.is_ascii_digit()).then_some(version)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_one_with_a_number() {
        assert_eq!(version(b"x@(#)exirate @(#)exirate 0.1.0\0y"), Some("0.1.0"));
        assert_eq!(version(b"@(#)exirate is not here"), None);
        assert_eq!(version(b""), None);
    }

    #[test]
    fn programs_and_libraries_are_distinguished_by_their_first_bytes() {
        let mut bytes = std::fs::read("/proc/self/exe").unwrap();
        let elf = Elf::read(&bytes).unwrap();
        assert_eq!(Some(elf), header(Path::new("/proc/self/exe")));
        let fit = |bytes: &[u8]| is_for_this_machine(bytes, Path::new("/proc/self/exe"));
        bytes.truncate(64);
        bytes[16] = 3;
        assert_eq!(fit(&bytes), Ok(()));
        bytes[18] ^= 0xff;
        assert!(fit(&bytes).unwrap_err().contains("another processor"));
        bytes[16] = 2;
        assert!(fit(&bytes).unwrap_err().contains("not a shared library"));
        for short in [&b""[..], b"\x7fELF", b"#!/bin/sh\n"] {
            assert!(fit(short).unwrap_err().contains("ELF"));
        }
    }
}
