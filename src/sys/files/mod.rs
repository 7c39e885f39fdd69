//! Files opened relative to a directory, never through a symbolic link, with
//! the owner, group and mode they should have.

mod content;
mod info;
mod names;
mod open;

use std::io;

use rustix::io::Errno;

pub use content::{
    append, data_from, empty, overwrite_at, read_at, read_start, reserve, sync, write_at,
    write_start,
};
pub use info::{DIRECTORY, FileInfo, REGULAR, info, info_at, info_of};
pub use names::{link_at, names, remove_at, remove_directory_at, rename_at, rename_new_at};
pub use open::{
    Access, adopt, create_at, make_directory_at, open_at, open_directory, open_directory_at,
    open_real_directory,
};

/// Repeats a call that a signal interrupted.
fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> io::Result<T> {
    #[cfg(test)]
    crate::sys::failpoint::step();
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result.map_err(io::Error::from),
        }
    }
}
