//! Ids of messages as people copy them from logs, headers and the queue.

/// Whether it is the id of a message: of 6, 6 and 2 letters and digits, or from 4.97 on of
/// 6, 11 and 4.
pub(crate) fn is_exim_id(text: &str) -> bool {
    let bytes = text.as_bytes();
    let dashes = match bytes.len() {
        16 => [6, 13],
        23 => [6, 18],
        _ => return false,
    };
    let is_right = |(at, b): (usize, &u8)| match dashes.contains(&at) {
        true => *b == b'-',
        false => b.is_ascii_alphanumeric(),
    };
    bytes.iter().enumerate().all(is_right)
}

/// The id that `text` means: as it is in a log (`1vM1aB-000000001Ab-1aBc`), in
/// the name of a spool file (`…-H`, `…-D`), or in a Message-ID that Exim made
/// (`<E1vM1aB-000000001Ab-1aBc@example.org>`). What is none of these stays as
/// it is, but for angle brackets.
pub(crate) fn exim_id(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')).unwrap_or(text);
    let file = ["-H", "-D", "-J"].iter().find_map(|end| inner.strip_suffix(end));
    let made = inner.strip_prefix('E').and_then(|rest| rest.split('@').next());
    let meant = [file, made].into_iter().flatten().find(|id| is_exim_id(id));
    meant.unwrap_or(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_either_length_is_known_in_all_its_places() {
        for id in ["1vM1aB-000000001Ab-1aBc", "1vM1aB-0001Ab-1a"] {
            assert!(is_exim_id(id));
            for text in [
                id.to_owned(),
                format!(" {id}\n"),
                format!("{id}-H"),
                format!("{id}-D"),
                format!("E{id}@example.org"),
                format!("<E{id}@example.org>"),
            ] {
                assert_eq!(exim_id(&text), id, "{text}");
            }
        }
        for text in ["", "1vM1aB-0001Ab-1aBc", "1vM1aB-000000001Ab-1a", "1vM1aB-0001A.-1a", "a-b-c"]
        {
            assert!(!is_exim_id(text), "{text}");
        }
        assert_eq!(exim_id("<1@example.org>"), "1@example.org");
        assert_eq!(exim_id("E1@example.org"), "E1@example.org");
        assert_eq!(exim_id("x-H"), "x-H");
    }
}
