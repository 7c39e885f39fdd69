//! Insertions and new files as a unified diff.

use std::fmt;
use std::path::Path;

/// How many lines that stay are shown before and after a change.
const CONTEXT: usize = 3;

/// A line of the diff: ` `, `-` or `+`, and its text.
type Tagged = (char, String);

/// Writes a file that does not exist yet.
pub(super) fn new_file(f: &mut fmt::Formatter<'_>, path: &Path, text: &str) -> fmt::Result {
    let lines = lines(text.as_bytes()).into_iter().map(|line| ('+', line)).collect::<Vec<_>>();
    writeln!(f, "--- /dev/null\n+++ {}", path.display())?;
    hunks(f, &lines)
}

/// Writes what the insertions change in a file that contains `before`.
pub(super) fn insertions(
    f: &mut fmt::Formatter<'_>,
    path: &Path,
    before: &[u8],
    insertions: &[(usize, &str)],
) -> fmt::Result {
    writeln!(f, "--- {0}\n+++ {0}", path.display())?;
    let (mut tagged, mut start) = (Vec::new(), 0);
    let mut waiting = insertions.iter().peekable();
    for line in before.split_inclusive(|&byte| byte == b'\n') {
        let end = start + line.len();
        while let Some((_, text)) =
            waiting.next_if(|(at, text)| *at == start && text.ends_with('\n'))
        {
            tagged.extend(lines(text.as_bytes()).into_iter().map(|line| ('+', line)));
        }
        let (mut new, mut from) = (Vec::new(), start);
        while let Some((at, text)) = waiting.next_if(|(at, _)| {
            *at < end || *at == end && end == before.len() && !line.ends_with(b"\n")
        }) {
            new.extend(before.get(from..*at).unwrap_or_default());
            new.extend(text.as_bytes());
            from = *at;
        }
        if from == start && new.is_empty() {
            tagged.extend(lines(line).into_iter().map(|line| (' ', line)));
        } else {
            new.extend(before.get(from..end).unwrap_or_default());
            tagged.extend(lines(line).into_iter().map(|line| ('-', line)));
            tagged.extend(lines(&new).into_iter().map(|line| ('+', line)));
        }
        start = end;
    }
    for (_, text) in waiting {
        tagged.extend(lines(text.as_bytes()).into_iter().map(|line| ('+', line)));
    }
    hunks(f, &tagged)
}

fn lines(text: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(text).lines().map(str::to_owned).collect()
}

/// Writes the changed lines with those around them.
fn hunks(f: &mut fmt::Formatter<'_>, tagged: &[Tagged]) -> fmt::Result {
    let is_near = |at: usize| {
        let near = at.saturating_sub(CONTEXT)..tagged.len().min(at + CONTEXT + 1);
        tagged.get(near).is_some_and(|lines| lines.iter().any(|(tag, _)| *tag != ' '))
    };
    let (mut old, mut new, mut at) = (1, 1, 0);
    while at < tagged.len() {
        let length = (at..tagged.len()).take_while(|&at| is_near(at)).count();
        let hunk = tagged.get(at..at + length.max(1)).unwrap_or_default();
        let count = |gone: char| hunk.iter().filter(|(tag, _)| *tag != gone).count();
        let (olds, news) = (count('+'), count('-'));
        if length > 0 {
            // An empty range is named by the line before it.
            let first = |line: usize, count: usize| if count == 0 { line - 1 } else { line };
            writeln!(f, "@@ -{},{olds} +{},{news} @@", first(old, olds), first(new, news))?;
            for (tag, line) in hunk {
                writeln!(f, "{tag}{line}")?;
            }
        }
        (old, new, at) = (old + olds, new + news, at + length.max(1));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Shown<F>(F);
    impl<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> fmt::Display for Shown<F> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            (self.0)(f)
        }
    }

    #[test]
    fn whole_lines_and_parts_of_lines_are_shown() {
        let before = b"1\n2\n3\n4\n5\n6\n7\n8\n9\na = b\n";
        let shown = Shown(|f: &mut fmt::Formatter<'_>| {
            insertions(f, Path::new("x"), before, &[(2, "new\n"), (22, "c, ")])
        });
        assert_eq!(
            shown.to_string(),
            "--- x\n+++ x\n@@ -1,4 +1,5 @@\n 1\n+new\n 2\n 3\n 4\n@@ -7,4 +8,4 @@\n 7\n 8\n 9\n\
             -a = b\n+a = c, b\n"
        );
        let created = Shown(|f: &mut fmt::Formatter<'_>| new_file(f, Path::new("x"), "a\nb\n"));
        assert_eq!(created.to_string(), "--- /dev/null\n+++ x\n@@ -0,0 +1,2 @@\n+a\n+b\n");
    }
}
