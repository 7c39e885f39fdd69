//! The canonical form of whole files.

use std::borrow::Cow;

/// The form in which whole files are compared. Transport changes line ends, and
/// adds or removes some at the end of a file. In this form lines end in LF, and
/// the file does not end in a line end.
#[must_use]
pub fn canonical_file(bytes: &[u8]) -> Cow<'_, [u8]> {
    let end = bytes.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n'));
    let bytes = &bytes[..end.map_or(0, |end| end + 1)];
    if memchr::memmem::find(bytes, b"\r\n").is_none() {
        return Cow::Borrowed(bytes);
    }
    let mut out = Vec::with_capacity(bytes.len());
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        match line.strip_suffix(b"\n") {
            Some(mut content) => {
                while let Some(shorter) = content.strip_suffix(b"\r") {
                    content = shorter;
                }
                out.extend_from_slice(content);
                out.push(b'\n');
            }
            None => out.extend_from_slice(line),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use quickcheck::quickcheck;

    use super::*;

    #[test]
    fn line_ends_change_nothing() {
        let canonical = "one\n\ntwo\rthree";
        for file in [
            "one\n\ntwo\rthree",
            "one\r\n\r\ntwo\rthree\r\n",
            "one\r\r\n\ntwo\rthree\r",
            "one\n\r\ntwo\rthree\n\n\r\n",
        ] {
            assert_eq!(canonical_file(file.as_bytes()), canonical.as_bytes(), "{file:?}");
        }
        assert_eq!(canonical_file(b"\r\n\n"), &b""[..]);
    }

    quickcheck! {
        fn canonical_files_do_not_change_again(bytes: Vec<u8>) -> bool {
            let bytes: Vec<u8> = bytes.iter().map(|byte| b"\r\nab"[usize::from(byte % 4)]).collect();
            let once = canonical_file(&bytes);
            canonical_file(&once) == once
        }
    }
}
