//! The image in use. A process that has it open goes on with it, and opens the new one
//! once it is replaced.

use std::ffi::CStr;
use std::path::{Path, PathBuf};

use super::{Image, ImageError};
use crate::identity::fold::Folding;
use crate::spool::{self, Spool};
use crate::sys::files::Access;
use crate::sys::mapping::Watched;
use crate::sys::secure_dir::{DirError, SecureDir};

/// The name of the image in the directory of the spool database.
pub(super) const IMAGE: &CStr = c"policy.image";

/// The image of a spool directory.
#[derive(Debug)]
pub struct PolicyFile {
    spool: PathBuf,
    opened: Result<Opened, ImageError>,
}

#[derive(Debug)]
struct Opened {
    image: Image,
    file: Watched,
    /// Identifies the file.
    identity: (u64, u64),
}

impl PolicyFile {
    /// Opens the image of the spool directory `spool`. [`PolicyFile::image`] returns it, or
    /// why it cannot be used.
    #[must_use]
    pub fn open(spool: &Path) -> Self {
        let opened = open(spool, None).and_then(|new| new.ok_or_else(|| absent(spool)));
        Self { spool: spool.to_path_buf(), opened }
    }

    /// As [`PolicyFile::open`], of the directory of an open database, which need not be
    /// opened again.
    #[must_use]
    pub fn beside(database: &Spool, spool: &Path) -> Self {
        let opened = open_in(database.secure_directory(), None);
        let opened = opened.and_then(|new| new.ok_or_else(|| absent(spool)));
        Self { spool: spool.to_path_buf(), opened }
    }

    /// The image that is open.
    ///
    /// # Errors
    /// There is none, or it cannot be used.
    #[inline]
    pub fn image(&self) -> Result<&Image, &ImageError> {
        self.opened.as_ref().map(|opened| &opened.image)
    }

    /// How the policies in use fold identities; where there are none, the default.
    ///
    /// # Errors
    /// The image cannot be used: in words.
    pub fn folding(&self) -> Result<Folding, String> {
        let identity = match self.image() {
            Ok(image) => image.identity().map_err(|error| error.to_string())?,
            Err(ImageError::Absent { .. }) => return Ok(Folding::default()),
            Err(error) => return Err(error.to_string()),
        };
        Ok(identity.folding.clone())
    }

    /// Opens the image again if it has been replaced, or could not be used. If nothing has
    /// changed, this costs one load. An image that cannot be opened does not replace one
    /// that could: the old one stays in use, and the next call tries again.
    ///
    /// # Errors
    /// As [`PolicyFile::image`].
    #[inline]
    pub fn refresh(&mut self) -> Result<&Image, &ImageError> {
        if !self.is_current() {
            self.reopen();
        }
        self.image()
    }

    /// Whether an image is open that was not replaced, nor cut off.
    #[inline]
    pub fn is_current(&mut self) -> bool {
        let Ok(opened) = &mut self.opened else { return false };
        if opened.file.is_whole() {
            return !opened.image.is_superseded();
        }
        // What is no longer there must not be read: the old image does not stay in use.
        self.opened = Err(absent(&self.spool));
        false
    }

    #[cold]
    fn reopen(&mut self) {
        let known = self.opened.as_ref().ok().map(|opened| opened.identity);
        match open(&self.spool, known) {
            Ok(Some(new)) => self.opened = Ok(new),
            Ok(None) => {}
            Err(error) => {
                if self.opened.is_err() {
                    self.opened = Err(error);
                }
            }
        }
    }
}

/// Opens the image; `None` if it is the `known` one.
fn open(spool: &Path, known: Option<(u64, u64)>) -> Result<Option<Opened>, ImageError> {
    let dir = match spool::open_directory(spool, false) {
        Err(DirError::Absent { .. }) => return Err(absent(spool)),
        result => result.map_err(ImageError::Directory)?,
    };
    open_in(&dir, known)
}

/// As [`open`], in the directory of the database.
fn open_in(dir: &SecureDir, known: Option<(u64, u64)>) -> Result<Option<Opened>, ImageError> {
    let found = dir.open_file(Access::Read, IMAGE).map_err(ImageError::Directory)?;
    let path = dir.path_of(IMAGE);
    let Some((file, info)) = found else { return Err(ImageError::Absent { path }) };
    if known == Some(info.identity) {
        return Ok(None);
    }
    let image = Image::of(&file, info.size, path)?;
    let length = usize::try_from(info.size).unwrap_or(usize::MAX);
    Ok(Some(Opened { image, file: Watched::of(file, length), identity: info.identity }))
}

fn absent(spool: &Path) -> ImageError {
    ImageError::Absent { path: spool.join("exirate/policy.image") }
}
