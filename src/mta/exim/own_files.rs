//! Which files that Exim's configuration names are exirate's.

/// The libraries, in whichever directory.
const LIBRARIES: [&str; 2] = ["exirate.so", "exirate-trace.so"];
/// How the path of a file of ours goes on after its directory's parent.
const OUR_FILES: [&str; 2] = ["/exirate/", "/exirate-"];

/// Whether a text loads a library of ours, or has the path of a file of ours.
pub(super) fn names_ours(text: &str) -> bool {
    LIBRARIES.iter().any(|library| text.contains(library)) || names_our_file(text)
}

/// Whether a text has the path of a file of ours: a file in a directory `exirate`, or whose own
/// name begins so. That a directory farther up is called so says nothing, as in
/// `/home/exirate/mail/exim.conf`.
pub(crate) fn names_our_file(text: &str) -> bool {
    let ends = |rest: &str| {
        let is_of_name = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '+');
        !rest.trim_start_matches(is_of_name).starts_with('/')
    };
    OUR_FILES
        .iter()
        .any(|part| text.match_indices(part).any(|(start, _)| ends(&text[start + part.len()..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_farther_up_says_nothing() {
        for (text, is_ours) in [
            (".include_if_exists /etc/exim4/exirate/acl_policy.conf", true),
            ("x = ${readsocket{/run/exirate/decide.sock}{y}}", true),
            ("EXIRATE = /usr/lib/exim4/exirate-libraries.conf", true),
            (".include /home/exirate/mail/acl.conf", false),
            (".include \"/tmp/exirate-1.x/acl.conf\"", false),
            ("/home/exirate/a/b:/etc/exirate/b/c", false),
        ] {
            assert_eq!(names_our_file(text), is_ours, "{text}");
        }
    }
}
