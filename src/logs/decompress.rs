//! Opens compressed logs. What a file is compressed with, its first bytes say, not its name.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;

use crate::sys::child;

/// Formats that a program decompresses: their first bytes, the program, Debian's package.
const PROGRAMS: [(&[u8], &str, &str); 3] = [
    (b"\xfd7zXZ\0", "xz", "xz-utils"),
    (b"BZh", "bzip2", "bzip2"),
    (b"\x28\xb5\x2f\xfd", "zstd", "zstd"),
];
const GZIP: &[u8] = &[0x1f, 0x8b];
/// A quarter of a megabyte is read at a time.
const BUFFER: usize = 256 << 10;

/// Opens a file, whatever it is compressed with: gzip, xz, bzip2, zstd, or nothing. `bytes`
/// is set to how many bytes of the file itself have been read.
///
/// # Errors
/// It cannot be read, or the program that decompresses it (`xz`, `bzip2`, `zstd`) is missing.
pub fn open(path: &Path, bytes: &Rc<Cell<u64>>) -> io::Result<Box<dyn BufRead>> {
    let mut file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    let mut start = Vec::new();
    file.by_ref().take(6).read_to_end(&mut start)?;
    // What is no regular file cannot be rewound, so it is read as it is.
    if file.rewind().is_err() {
        return Ok(Box::new(io::Cursor::new(start).chain(BufReader::new(file))));
    }
    if let Some((_, program, package)) =
        PROGRAMS.iter().find(|(magic, ..)| start.starts_with(magic))
    {
        return Ok(Box::new(BufReader::with_capacity(
            BUFFER,
            Decompressor::run(program, package, file)?,
        )));
    }
    let counted = BufReader::with_capacity(BUFFER, CountedReader { file, bytes: bytes.clone() });
    Ok(match start.starts_with(GZIP) {
        true => Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(counted))),
        false => Box::new(counted),
    })
}

/// A file, and how much of it has been read.
struct CountedReader {
    file: File,
    bytes: Rc<Cell<u64>>,
}

impl Read for CountedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.bytes.set(self.bytes.get() + read as u64);
        Ok(read)
    }
}

/// The output of a program that decompresses its standard input.
struct Decompressor {
    name: &'static str,
    child: Child,
    output: ChildStdout,
}

impl Decompressor {
    fn run(name: &'static str, package: &str, file: File) -> io::Result<Self> {
        let mut command = child::command(name.as_ref());
        command.arg("-dc").stdin(file).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::other(format!(
                "it is compressed with {name}, which is not installed here (Debian's package {package})"
            )),
            _ => error,
        })?;
        let output = child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
        Ok(Self { name, child, output })
    }
}

impl Read for Decompressor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.output.read(buffer)?;
        // At the end: whether that was all.
        if read == 0 && !buffer.is_empty() && !self.child.wait()?.success() {
            let name = self.name;
            return Err(io::Error::other(format!(
                "{name} cannot decompress it: it is damaged or cut off"
            )));
        }
        Ok(read)
    }
}

impl Drop for Decompressor {
    fn drop(&mut self) {
        // Both fail if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
