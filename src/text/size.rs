//! Sizes in bytes, printed and parsed. Units are 1024-based.

/// Bytes for people: `1.5 MiB`.
#[cfg(feature = "cli")]
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64, "B");
    for name in UNITS {
        (value, unit) = (value / 1024.0, name);
        // What would be shown as 1024 is 1 of the next.
        if value < 1023.95 {
            break;
        }
    }
    format!("{} {unit}", (value * 10.0).round() / 10.0)
}

/// A size as an argument: see [`byte_size`].
#[cfg(feature = "cli")]
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    byte_size(text.as_bytes()).ok_or_else(|| {
        "expected a number and its unit, such as 512M or 2G (1024-based; B for bytes)".to_owned()
    })
}

/// A size in bytes: a decimal number and its unit, `B`, `k`, `M`, `G` or `T` in
/// either case (1024-based), as in `512M`, `1.5G` or `2GiB`. The unit is required:
/// `5` is more often meant as 5 GiB than as 5 bytes.
#[must_use]
pub(crate) fn byte_size(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at_checked(end)?;
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return None,
    };
    let bytes = number.parse::<f64>().ok()? * factor as f64;
    // Up to where an f64 represents every whole number.
    (bytes <= (1_u64 << 53) as f64).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_printed_and_parsed() {
        for (number, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (1_048_575, "1 MiB"),
            (1 << 30, "1 GiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
        assert_eq!(parse_bytes("2G"), Ok(2 << 30));
        assert_eq!(parse_bytes("512MiB"), Ok(512 << 20));
        assert_eq!(parse_bytes("1.5g"), Ok(3 << 29));
        assert_eq!(parse_bytes("16777216B"), Ok(16 << 20));
        for text in ["", "5", "16777216", "G", "-1", "2X", "1.2.3M", "nanM", "99999999999T"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
