//! The file `ID-H` of Exim's spool, with the envelope and the headers of a message.
//!
//! ```text
//! 1xWeBG-0006YM-0g-H
//! alice 1000 1000
//! <alice@example.org>
//! 1795717610 0
//! --aclm _exirate_held 31
//! …31 bytes…
//! -frozen 1795717610
//! XX
//! 1
//! bob@example.net
//!
//! 010  X-Y: a
//!  b
//! ```
//!
//! A value of a variable may have newlines, which is why its length is written, and why no
//! line of the file is taken for what it seems to be.

use std::collections::HashSet;

/// The variable of a message that could not be decided when it was received: what the daemon was
/// asked.
pub(super) const REQUEST: &str = "exirate_request";

/// What is used of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SpoolFile<'a> {
    /// The name of the account that has handed it over, or Exim's.
    pub(super) account: &'a [u8],
    pub(super) sender: &'a [u8],
    /// When it was received, in seconds since 1970.
    pub(super) received: i64,
    /// When it was frozen, if it is, in seconds since 1970.
    pub(super) frozen: Option<i64>,
    /// The value of the variable that marks held messages.
    pub(super) mark: Option<&'a [u8]>,
    /// The value of [`REQUEST`].
    pub(super) request: Option<&'a [u8]>,
    pub(super) recipients: Vec<&'a [u8]>,
    /// Those that have got the message, or have failed.
    done: HashSet<&'a [u8]>,
    /// The headers, each with its length and a letter before it.
    headers: &'a [u8],
}

impl<'a> SpoolFile<'a> {
    /// Reads a file; `mark` is the name of the variable. `None` if it is not as Exim writes it.
    pub(super) fn parse(bytes: &'a [u8], mark: &str) -> Option<Self> {
        let mut lines = FileLines(bytes);
        lines.next()?.strip_suffix(b"-H")?;
        let account = lines.next()?.split(|&byte| byte == b' ').next()?;
        let sender = lines.next()?.strip_prefix(b"<")?.strip_suffix(b">")?;
        let times = lines.next()?.split(|&byte| byte == b' ').next()?;
        let received = i64::try_from(number(times)?).ok()?;
        let mut file = Self { account, sender, received, ..Self::default() };
        let mut line = lines.next()?;
        while let Some(option) = line.strip_prefix(b"-") {
            file.option(option, &mut lines, mark)?;
            line = lines.next()?;
        }
        file.done = tree(line, &mut lines)?;
        let count = number(lines.next()?)?;
        for _ in 0..count {
            file.recipients.push(recipient(lines.next()?));
        }
        lines.next()?.is_empty().then_some(())?;
        file.headers = lines.0;
        Some(file)
    }

    /// `aclm _exirate_held 31` and such; with another `-` it is tainted.
    fn option(&mut self, option: &[u8], lines: &mut FileLines<'a>, mark: &str) -> Option<()> {
        let mut words = option.strip_prefix(b"-").unwrap_or(option).split(|&byte| byte == b' ');
        // Exim may say how a tainted value is quoted.
        let name = words.next()?.rsplit(|&byte| byte == b')').next()?;
        match name {
            b"aclm" | b"aclc" => {
                let variable = words.next()?;
                let value = lines.take(usize::try_from(number(words.next()?)?).ok()?)?;
                let variable = variable.strip_prefix(b"_").filter(|_| name == b"aclm");
                if variable == Some(mark.as_bytes()) {
                    self.mark = Some(value);
                }
                if variable == Some(REQUEST.as_bytes()) {
                    self.request = Some(value);
                }
            }
            b"frozen" => self.frozen = Some(i64::try_from(number(words.next()?)?).ok()?),
            _ => {}
        }
        Some(())
    }

    /// The recipients that have not got it.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &'a [u8]> {
        self.recipients.iter().copied().filter(|one| !self.done.contains(one))
    }

    /// How long all headers are.
    pub(super) fn header_bytes(&self) -> u64 {
        self.headers().map(|header| header.len() as u64).sum()
    }

    /// The headers, each with its lines. Those that Exim has replaced are left out.
    pub(super) fn headers(&self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.headers;
        let next = move || {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let (length, after) = rest.split_at_checked(digits)?;
            let (kind, after) = after.split_at_checked(2)?;
            let (text, after) = after.split_at_checked(usize::try_from(number(length)?).ok()?)?;
            rest = after;
            Some((kind, text))
        };
        std::iter::from_fn(next).filter(|(kind, _)| *kind != b"* ").map(|(_, text)| text)
    }
}

/// The rest of a file.
struct FileLines<'a>(&'a [u8]);

impl<'a> FileLines<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|&byte| byte == b'\n')?;
        self.take(end)
    }

    /// So many bytes, and the newline after them.
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest.strip_prefix(b"\n")?;
        Some(taken)
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The recipients that are done with, from their tree: of each node, whether a left and a right
/// one follow, `YN bob@example.net`. `XX` is an empty tree.
fn tree<'a>(first: &'a [u8], lines: &mut FileLines<'a>) -> Option<HashSet<&'a [u8]>> {
    let (mut nodes, mut due) = (HashSet::new(), 1_u64);
    let mut line = first;
    if line == b"XX" {
        return Some(nodes);
    }
    loop {
        let (flags, address) = line.split_at_checked(3)?;
        let [left @ (b'Y' | b'N'), right @ (b'Y' | b'N'), b' '] = flags else { return None };
        due += u64::from(*left == b'Y') + u64::from(*right == b'Y');
        due -= 1;
        nodes.insert(address);
        if due == 0 {
            return Some(nodes);
        }
        line = lines.next()?;
    }
}

/// The address in the line of a recipient: `bob@example.net`, or that with what it is for,
/// `ADDRESS ORCPT LENGTH,FLAGS ERRORS_TO LENGTH,PARENT#3`.
fn recipient(line: &[u8]) -> &[u8] {
    let short = || {
        let rest = before_sized(line.strip_suffix(b"#1").or_else(|| line.strip_suffix(b"#3"))?)?;
        if line.ends_with(b"#1") { Some(rest) } else { before_sized(rest) }
    };
    short().unwrap_or(line)
}

/// What is before ` TEXT LENGTH,NUMBER`.
fn before_sized(line: &[u8]) -> Option<&[u8]> {
    let at = line.iter().rposition(|&byte| byte == b' ')?;
    let (rest, sizes) = line.split_at_checked(at)?;
    let length = sizes.strip_prefix(b" ")?.split(|&byte| byte == b',').next()?;
    let length = usize::try_from(number(length)?).ok()?;
    let (rest, _) = rest.split_at_checked(rest.len().checked_sub(length)?)?;
    rest.strip_suffix(b" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &[u8] = b"1xWeBG-0006YM-0g-H\nroot 0 0\n<a@b>\n1795717610 0\n\
        -received_time_usec .213118\n-ident root\n--aclc _exirate_held 3\nno!\n\
        --aclm 0 13\n-frozen 1\nXX\n\n--(mysql)aclm _exirate_held 9\n1\nout\nkey\n\
        -frozen 1795717610\n-tls_resumption A\n\
        YY d@x.test\nNN c@x.test\nNN e@x.test\n4\nbob@x.test\n\"a b\"@y.test\nc@x.test\n\
        d@x.test rfc822;D 8,1 o@x.test 8,-1#3\n\n\
        010  X-Y: a\n b\n008* Old: x\n010F From: a@b\n";

    #[test]
    fn a_file_is_read_as_exim_writes_it() {
        let file = SpoolFile::parse(FILE, "exirate_held").unwrap();
        assert_eq!((file.sender, file.received), (&b"a@b"[..], 1_795_717_610));
        assert_eq!(file.frozen, Some(1_795_717_610));
        assert_eq!(file.mark, Some(&b"1\nout\nkey"[..]));
        assert_eq!(file.recipients.len(), 4);
        assert_eq!(file.recipients[3], b"d@x.test");
        let waiting: Vec<&[u8]> = file.waiting().collect();
        assert_eq!(waiting, [&b"bob@x.test"[..], b"\"a b\"@y.test"]);
        let headers: Vec<&[u8]> = file.headers().collect();
        assert_eq!(headers, [&b"X-Y: a\n b\n"[..], b"From: a@b\n"]);
        assert_eq!(file.header_bytes(), 20);
    }

    #[test]
    fn a_recipient_is_read_in_each_of_its_forms() {
        for (line, address) in [
            ("bob@x.test", "bob@x.test"),
            ("\"a 3,1#3\"@x.test", "\"a 3,1#3\"@x.test"),
            ("bob@x.test o@x.test 8,-1#1", "bob@x.test"),
            ("\"a b\"@x.test  0,1  0,-1#3", "\"a b\"@x.test"),
            ("#3", "#3"),
            ("x 99,1#1", "x 99,1#1"),
        ] {
            assert_eq!(recipient(line.as_bytes()), address.as_bytes(), "{line}");
        }
    }

    #[test]
    fn what_is_cut_or_changed_anywhere_is_no_panic() {
        for end in 0..FILE.len() {
            if let Some(file) = SpoolFile::parse(&FILE[..end], "exirate_held") {
                file.headers().for_each(drop);
            }
            for byte in [0, b'\n', b'9', b'-', 0xff] {
                let mut changed = FILE.to_vec();
                changed[end] = byte;
                if let Some(file) = SpoolFile::parse(&changed, "exirate_held") {
                    file.headers().for_each(drop);
                }
            }
        }
        assert_eq!(SpoolFile::parse(b"", "exirate_held"), None);
    }
}
