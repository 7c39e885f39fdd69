//! Ids of messages as people copy them from logs, headers and the queue.

/// Exim's ids: the lengths of their three parts, before 4.97 and from it on.
const PARTS: [[usize; 3]; 2] = [[6, 6, 2], [6, 11, 4]];

/// Whether `text` has the form of an id of Exim's, short or long.
pub(super) fn is_exims(text: &str) -> bool {
    let letters = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric());
    let parts: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    parts.iter().all(|part| letters(part)) && PARTS.iter().any(|form| lengths == form)
}

/// The id that `text` means: as it is in a log (`1vM1aB-000000001Ab-1aBc`), in
/// the name of a spool file (`…-H`, `…-D`), or in a Message-ID that Exim made
/// (`<E1vM1aB-000000001Ab-1aBc@example.org>`). What is none of these stays as
/// it is, but for angle brackets.
pub(super) fn read(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')).unwrap_or(text);
    let file = ["-H", "-D", "-J"].iter().find_map(|end| inner.strip_suffix(end));
    let made = inner.strip_prefix('E').and_then(|rest| rest.split('@').next());
    let meant = [file, made].into_iter().flatten().find(|id| is_exims(id));
    meant.unwrap_or(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_either_length_is_known_in_all_its_places() {
        for id in ["1vM1aB-000000001Ab-1aBc", "1vM1aB-0001Ab-1a"] {
            assert!(is_exims(id));
            for text in [
                id.to_owned(),
                format!(" {id}\n"),
                format!("{id}-H"),
                format!("{id}-D"),
                format!("E{id}@example.org"),
                format!("<E{id}@example.org>"),
            ] {
                assert_eq!(read(&text), id, "{text}");
            }
        }
        for text in ["", "1vM1aB-0001Ab-1aBc", "1vM1aB-000000001Ab-1a", "1vM1aB-0001A.-1a", "a-b-c"]
        {
            assert!(!is_exims(text), "{text}");
        }
        assert_eq!(read("<1@example.org>"), "1@example.org");
        assert_eq!(read("E1@example.org"), "E1@example.org");
        assert_eq!(read("x-H"), "x-H");
    }
}
