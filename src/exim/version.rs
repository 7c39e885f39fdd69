//! Which exirate this library is, for those who only look at its file.

/// What stands before the version in the library's file: the mark by which
/// what(1) finds such texts.
pub const MARK: &str = "@(#)exirate ";

const TEXT: &str = concat!("@(#)exirate ", env!("CARGO_PKG_VERSION"), "\0");

/// `@(#)exirate 0.1.0` and a NUL: read from the file, it tells the version
/// without loading what may be the wrong library.
#[unsafe(no_mangle)]
pub static EXIRATE_VERSION: [u8; TEXT.len()] = match TEXT.as_bytes().first_chunk() {
    Some(text) => *text,
    None => [0; TEXT.len()],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_in_front() {
        assert_eq!(
            EXIRATE_VERSION.strip_prefix(MARK.as_bytes()),
            Some(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes())
        );
    }
}
