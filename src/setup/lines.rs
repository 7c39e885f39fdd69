//! Lines of a file, and where they begin.

/// Each line with its end.
pub(super) fn lines_of(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut end = 0;
    text.split_inclusive(|&byte| byte == b'\n').map(move |line| {
        let start = end;
        end += line.len();
        (start, line)
    })
}

/// Where the first line begins that `is_it`.
pub(super) fn line_at(text: &[u8], is_it: impl Fn(&[u8]) -> bool) -> Option<usize> {
    lines_of(text).find(|(_, line)| is_it(line)).map(|(start, _)| start)
}
