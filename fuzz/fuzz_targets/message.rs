//! Any bytes as a message, as a file and as text: no panic, the usual limits cut nothing
//! that is so short, normalising twice changes nothing, and an excerpt is found in the
//! text it was cut from.
#![no_main]

use exirate::trace::Fragment;
use exirate::trace::decode::{Limits, decode, decode_file, excerpt, normalise};
use libfuzzer_sys::fuzz_target;

fn check(piece: Fragment<'_>) {
    match piece {
        Fragment::Text(text) => {
            assert!(!text.is_empty());
            assert_eq!(normalise(text), text);
        }
        Fragment::File(bytes) | Fragment::Bytes(bytes) => assert!(!bytes.is_empty()),
    }
}

/// The normal form of an excerpt is part of that of the whole, if it was cut
/// between ASCII characters.
fn excerpts(text: &str) {
    let whole = normalise(text);
    let is_plain = |at: usize| text.as_bytes().get(at).is_none_or(|byte| matches!(byte, 32..127));
    let mut cuts = (0..=text.len()).filter(|&at| is_plain(at) && is_plain(at.saturating_sub(1)));
    if let (Some(from), Some(to)) = (cuts.next(), cuts.next_back()) {
        assert!(whole.contains(&normalise(&text[from..to])));
        assert!(whole.contains(&excerpt(&text[from..to])));
    }
}

fuzz_target!(|data: &[u8]| {
    let all = decode(data, &Limits::default(), &mut check);
    let small = Limits { depth: 2, parts: 3, text: 50, attachments: 50, composed: 50 };
    let some = decode(data, &small, &mut check);
    // What small limits leave whole is decoded the same with larger ones.
    assert!(!all.is_cut && (some.is_cut || some == all));
    assert!(!decode_file(data, &Limits::default(), &mut check).is_cut);
    let text = String::from_utf8_lossy(data);
    assert_eq!(normalise(&normalise(&text)), normalise(&text));
    excerpts(&text);
});
