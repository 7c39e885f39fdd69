//! The lines of a document, as an administrator takes them.

/// The code blocks of a page in this language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    page.split(&*fence).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// The blocks that are for a file: their first line names it.
pub(crate) fn for_file<'a>(page: &'a str, language: &str, file: &str) -> Vec<&'a str> {
    let head = format!("# {file}\n");
    let is_head = |block: &&str| block.strip_prefix("dnl ").unwrap_or(block).starts_with(&head);
    let found: Vec<&str> = blocks(page, language).into_iter().filter(is_head).collect();
    assert!(!found.is_empty(), "the page has no block for {file}");
    found
}

/// The block of shell commands that has this one.
pub(crate) fn commands<'a>(page: &'a str, command: &str) -> &'a str {
    let found = blocks(page, "sh").into_iter().find(|block| block.contains(command));
    found.unwrap_or_else(|| panic!("the page has no block with {command}"))
}
