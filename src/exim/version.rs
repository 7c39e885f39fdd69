//! The version of exirate, readable in the library's file.

/// The mark before the version in the library's file, by which what(1) finds such
/// texts.
pub const MARK: &str = "@(#)exirate ";

const TEXT: &str = concat!("@(#)exirate ", env!("CARGO_PKG_VERSION"), "\0");

/// `@(#)exirate 0.1.0` and a NUL: the version can be read from the file, without
/// loading what may be the wrong library.
#[unsafe(no_mangle)]
pub static EXIRATE_VERSION: [u8; TEXT.len()] = match TEXT.as_bytes().first_chunk() {
    Some(text) => *text,
    None => [0; TEXT.len()],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_follows_the_mark() {
        assert_eq!(
            EXIRATE_VERSION.strip_prefix(MARK.as_bytes()),
            Some(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes())
        );
    }
}
