//! Punycode (RFC 3492): the letters of a domain's label in ASCII.

const BASE: u32 = 36;
const T_MIN: u32 = 1;
const T_MAX: u32 = 26;
const SKEW: u32 = 38;
const DAMP: u32 = 700;
const FIRST_BIAS: u32 = 72;
const FIRST_CODE: u32 = 128;

/// The most letters of a label: of a domain name, it has at most 63 bytes in ASCII.
pub(super) const LONGEST: usize = 63;

/// Appends the code of `label`, without `xn--`. Returns false, and leaves `out` as it was, if it is
/// [too long](LONGEST): a stranger may write it.
pub(super) fn encode(label: &str, out: &mut String) -> bool {
    let start = out.len();
    let is_label = label.chars().nth(LONGEST).is_none();
    let written = is_label && encode_all(label, out).is_some();
    if !written {
        out.truncate(start);
    }
    written
}

/// Section 6.3.
fn encode_all(label: &str, out: &mut String) -> Option<()> {
    let basic = label.chars().filter(char::is_ascii);
    let before = out.len();
    out.extend(basic);
    let basic = u32::try_from(out.len() - before).ok()?;
    if basic > 0 {
        out.push('-');
    }
    let all = u32::try_from(label.chars().count()).ok()?;
    let (mut code, mut delta, mut bias, mut handled) = (FIRST_CODE, 0_u32, FIRST_BIAS, basic);
    while handled < all {
        let next = label.chars().map(u32::from).filter(|one| *one >= code).min()?;
        delta = delta.checked_add((next - code).checked_mul(handled + 1)?)?;
        code = next;
        for letter in label.chars().map(u32::from) {
            if letter < code {
                delta = delta.checked_add(1)?;
            }
            if letter != code {
                continue;
            }
            let (mut rest, mut k) = (delta, BASE);
            loop {
                let t = k.saturating_sub(bias).clamp(T_MIN, T_MAX);
                if rest < t {
                    break;
                }
                out.push(digit(t + (rest - t) % (BASE - t)));
                rest = (rest - t) / (BASE - t);
                k += BASE;
            }
            out.push(digit(rest));
            bias = adapted(delta, handled + 1, handled == basic);
            delta = 0;
            handled += 1;
        }
        delta = delta.checked_add(1)?;
        code += 1;
    }
    Some(())
}

/// Section 6.1.
fn adapted(delta: u32, count: u32, is_first: bool) -> u32 {
    let mut delta = if is_first { delta / DAMP } else { delta / 2 };
    delta += delta / count;
    let mut k = 0;
    while delta > (BASE - T_MIN) * T_MAX / 2 {
        delta /= BASE - T_MIN;
        k += BASE;
    }
    k + (BASE - T_MIN + 1) * delta / (delta + SKEW)
}

/// `a` to `z`, then `0` to `9`.
fn digit(value: u32) -> char {
    let value = value as u8;
    char::from(if value < 26 { b'a' + value } else { b'0' + (value - 26) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_standard_have_their_codes() {
        // Section 7.1, in lower case, and labels as they are registered.
        for (label, code) in [
            ("ليهمابتكلموشعربي؟", "egbpdaj6bu4bxfgehfvwxn"),
            ("他们为什么不说中文", "ihqwcrb4cv8a8dqg056pqjye"),
            ("pročprostěnemluvíčesky", "proprostnemluvesky-uyb24dma41a"),
            ("почемужеонинеговорятпорусски", "b1abfaaepdrnnbgefbadotcwatmq2g4l"),
            ("3年b組金八先生", "3b-ww4c5e180e575a65lsy2b"),
            ("-> $1.00 <-", "-> $1.00 <--"),
            ("münchen", "mnchen-3ya"),
            ("ü", "tda"),
        ] {
            let mut out = "xn--".to_owned();
            assert!(encode(label, &mut out), "{label}");
            assert_eq!(out, format!("xn--{code}"), "{label}");
        }
    }

    #[test]
    fn what_is_too_long_is_left_alone() {
        let mut out = "x".to_owned();
        let letters = |count| "a".repeat(count - 1) + "\u{10ffff}";
        assert!(!encode(&letters(LONGEST + 1), &mut out));
        assert_eq!(out, "x");
        assert!(encode(&letters(LONGEST), &mut out));
    }
}
