//! Lists in Exim's configuration.

/// The items of a list of Exim's.
pub(super) fn list(text: &str) -> Vec<String> {
    let text = text.trim();
    let (separator, text) = match text.strip_prefix('<') {
        Some(rest) => (rest.chars().next().unwrap_or(':'), rest.get(1..).unwrap_or_default()),
        None => (':', text),
    };
    // Doubled, it is a part of the item.
    let doubled: String = [separator, separator].iter().collect();
    let text = text.replace(&doubled, "\0");
    let items = text.split(separator).map(|item| item.replace('\0', &separator.to_string()));
    items.map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_split_as_exim_does() {
        assert_eq!(list("@:localhost:mail.test"), ["@", "localhost", "mail.test"]);
        assert_eq!(list("<; 192.0.2.0/24 ; ::1"), ["192.0.2.0/24", "::1"]);
        assert_eq!(list("192.0.2.1 : ::::1"), ["192.0.2.1", "::1"]);
        assert!(list("").is_empty());
    }
}
