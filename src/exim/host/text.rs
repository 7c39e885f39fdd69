//! Text for Exim: NUL-terminated, in memory that outlives the call.

use super::abi::Uschar;
use super::exports::Host;
use std::any::Any;
use std::io::Write;
use std::ptr::NonNull;

/// Room for the largest rate, `f64::MAX` with one decimal.
const ROOM: usize = 384;

/// The longest text of a spec that may be plain.
const LONGEST_PLAIN: usize = 63;

/// Whether a text is harmless where Exim trusts it, such as in a file name or as the
/// argument of a command: a number, a time or a word that cannot be a path, a hidden
/// file or an option.
pub(in crate::exim) fn is_plain(text: &[u8]) -> bool {
    let harmless = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_');
    text.first().is_some_and(u8::is_ascii_alphanumeric)
        && text.len() <= LONGEST_PLAIN
        && text.iter().all(harmless)
}

/// The text of a panic.
pub(in crate::exim) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}

/// Panics with the rest of a spec that begins with `panic `.
///
/// Not in released libraries: `tests/safe/panic.rs` builds one with this, to test a
/// panic in a real Exim.
#[cfg(exirate_test_panics)]
#[allow(clippy::panic)]
pub(in crate::exim) fn panic_on_demand(spec: &[u8]) {
    if let Some(text) = spec.strip_prefix(b"panic ") {
        panic!("{}", String::from_utf8_lossy(text));
    }
}

/// Memory for one C string that Exim reads.
pub(in crate::exim) struct Buffer {
    bytes: Box<[u8; ROOM]>,
    length: usize,
}

impl Buffer {
    pub(in crate::exim) fn new() -> Self {
        Self { bytes: Box::new([0; ROOM]), length: 0 }
    }

    /// Its text, without the NUL.
    pub(in crate::exim) fn text(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Its text, NUL-terminated; stays valid, and changes with the buffer.
    pub(in crate::exim) fn pointer(&self) -> *const Uschar {
        self.bytes.as_ptr().cast()
    }

    /// Keeps `text` if it is plain: Exim trusts this memory.
    pub(in crate::exim) fn keep(&mut self, text: &[u8]) -> bool {
        if !is_plain(text) {
            return false;
        }
        self.bytes[..text.len()].copy_from_slice(text);
        self.end(text.len());
        true
    }

    /// Keeps as much of `text` as fits; a NUL becomes `?`.
    pub(in crate::exim) fn keep_some(&mut self, text: &str) {
        self.end(0);
        self.keep_more(text);
    }

    /// Appends `text` in the same way.
    pub(in crate::exim) fn keep_more(&mut self, text: &str) {
        let room = ROOM - 1 - self.length;
        let end = text.floor_char_boundary(room);
        for (to, from) in self.bytes[self.length..].iter_mut().zip(&text.as_bytes()[..end]) {
            *to = if *from == 0 { b'?' } else { *from };
        }
        self.end(self.length + end);
    }

    /// Keeps a rate as Exim prints it: `%.1f`.
    pub(in crate::exim) fn keep_rate(&mut self, rate: f64) {
        let tenths = rate * 10.0;
        let whole = tenths.round();
        // The fast path, for every rate that is not close to half a tenth.
        if (0.0..1e9).contains(&rate) && ((tenths - whole).abs() - 0.5).abs() > 1e-6 {
            self.keep_tenths(whole as u64);
            return;
        }
        let mut rest = &mut self.bytes[..ROOM - 1];
        // Cannot fail: there is room for every f64.
        let _ = if rate.is_nan() { write!(rest, "nan") } else { write!(rest, "{rate:.1}") };
        let left = rest.len();
        self.end(ROOM - 1 - left);
    }

    fn keep_tenths(&mut self, tenths: u64) {
        let mut digits = [0; 24];
        let mut start = digits.len();
        let mut push = |digit| {
            start -= 1;
            digits[start] = digit;
        };
        push(b'0' + (tenths % 10) as u8);
        push(b'.');
        let mut whole = tenths / 10;
        loop {
            push(b'0' + (whole % 10) as u8);
            whole /= 10;
            if whole == 0 {
                break;
            }
        }
        let length = digits.len() - start;
        self.bytes[..length].copy_from_slice(&digits[start..]);
        self.end(length);
    }

    fn end(&mut self, length: usize) {
        self.bytes[length] = 0;
        self.length = length;
    }
}

/// Tainted memory of Exim's for one C string, obtained when it is first needed
/// and never given back.
#[derive(Default)]
pub(in crate::exim) struct TaintedBuffer {
    memory: Option<NonNull<Uschar>>,
    room: usize,
}

impl TaintedBuffer {
    /// Keeps `text` and returns it, NUL-terminated; `None` if Exim has no tainted
    /// memory.
    pub(in crate::exim) fn keep(&mut self, host: &Host, text: &[u8]) -> Option<*const Uschar> {
        let size = text.len() + 1;
        if size > self.room {
            let room = size.max(ROOM);
            self.memory = host.permanent_tainted(room);
            self.room = self.memory.map_or(0, |_| room);
        }
        let memory = self.memory?.as_ptr();
        // SAFETY: `memory` has `room` bytes, at least `size`, and nothing else
        // writes there. `text` is not in it: it is a copy of Exim's arguments.
        unsafe {
            std::ptr::copy(text.as_ptr().cast(), memory, text.len());
            *memory.add(text.len()) = 0;
        }
        Some(memory.cast_const())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kit::quickcheck;

    fn kept(rate: f64) -> String {
        let mut buffer = Buffer::new();
        buffer.keep_some(&"9".repeat(ROOM - 1));
        buffer.keep_rate(rate);
        assert_eq!(buffer.bytes[buffer.length], 0);
        String::from_utf8(buffer.text().to_vec()).unwrap()
    }

    #[test]
    fn rates_are_printed_as_exim_prints_them() {
        for (rate, text) in [
            (0.0, "0.0"),
            (0.04, "0.0"),
            (0.05, "0.1"),
            (0.25, "0.2"),
            (0.35, "0.3"),
            (2.999_999, "3.0"),
            (99.949_999_999, "99.9"),
            (1e9 - 0.1, "999999999.9"),
            (1e15, "1000000000000000.0"),
            (f64::INFINITY, "inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(kept(rate), text);
        }
        assert_eq!(kept(f64::MAX).len(), 311);
    }

    quickcheck! {
        fn the_fast_path_prints_the_same(units: u32, parts: u16) -> bool {
            let rate = f64::from(units) / 7.0 + f64::from(parts) / 20.0;
            kept(rate) == format!("{rate:.1}")
        }
    }

    #[test]
    fn numbers_times_and_words_are_plain() {
        for text in ["0", "100", "2.5", "1.5G", "0x1p3", "1w2d", "inf", "per_rcpt", "yes", "a"] {
            assert!(is_plain(text.as_bytes()), "{text:?}");
        }
        for text in ["", "-1", "+1", ".5", "..", "1/2", "1 2", "1\n", "a@b", "${x}", "%s", "\u{e9}"]
        {
            assert!(!is_plain(text.as_bytes()), "{text:?}");
        }
    }

    #[test]
    fn only_what_fits_is_kept() {
        let mut buffer = Buffer::new();
        assert!(buffer.keep(b"1h"));
        assert!(!buffer.keep(b"a\0b") && !buffer.keep(&[b'1'; LONGEST_PLAIN + 1]));
        assert_eq!(buffer.text(), b"1h");
        buffer.keep_some(&"é".repeat(ROOM));
        assert_eq!(buffer.text().len(), ROOM - 2);
        buffer.keep_some("a\0b");
        buffer.keep_more("cd");
        assert_eq!(buffer.text(), b"a?bcd");
        buffer.keep_more(&"é".repeat(ROOM));
        assert_eq!(buffer.text().len(), ROOM - 1 - (ROOM - 1 - 5) % 2);
    }
}
