//! Images of policies.
//!
//! If the input up to its first 0 byte is a sound policy file, its image agrees with the
//! plain evaluator for the identities, packages and addresses that follow, separated by
//! 1 bytes; and with bytes of it changed as the rest of the input says, the image is in
//! error or still agrees.
//!
//! Any other input is the rows of an image: whatever they are, nothing panics. Their
//! checksums are put right first, so that what they say is read.
#![no_main]

use std::net::IpAddr;
use std::path::Path;

use exirate::policy::image::{Image, build_with};
use exirate::policy::limit::Subject;
use exirate::policy::model::Policies;
use exirate::policy::resolve::resolve;
use exirate::policy::source::compile;
use libfuzzer_sys::fuzz_target;

/// The size of the header.
const HEADER: usize = 72;

fuzz_target!(|data: &[u8]| {
    let end = data.iter().position(|&byte| byte == 0).unwrap_or(data.len());
    let (text, rest) = data.split_at(end);
    let none = |_: &Path| Err("there is none".to_owned());
    let text = std::str::from_utf8(text).ok();
    let compiled = text.and_then(|text| compile(Path::new("p"), text, &none).policies);
    match compiled {
        Some(policies) => agrees(&policies, rest.get(1..).unwrap_or_default()),
        None => any_rows(data),
    }
});

fn crc(seed: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    hasher.update(bytes);
    hasher.finalize()
}

/// Compares an image with the evaluator, for subjects of these texts.
fn compare(image: &Image, policies: &Policies, texts: &[&str], sound: bool) {
    let text = |at: usize| texts.get(at % texts.len().max(1)).copied();
    for (name, policy) in &policies.policies {
        let compiled = match image.policy(name) {
            Ok(compiled) => compiled.unwrap(),
            Err(error) => {
                assert!(!sound, "{error}");
                continue;
            }
        };
        assert_eq!(
            format!("{:?}", compiled.settings().when),
            format!("{:?}", policy.settings.when)
        );
        let mut limits = Vec::new();
        for at in 0..texts.len() {
            let client = text(at + 3).and_then(|text| text.parse::<IpAddr>().ok());
            let subject = Subject {
                identity: text(at).unwrap_or_default(),
                package: text(at + 1),
                client,
                recipient: text(at + 2),
                is_ambiguous: at % 2 == 1,
            };
            let now = 100;
            let effective = resolve(policy, &subject, now);
            match compiled.limits(&subject, &mut limits) {
                Ok(()) => assert_eq!(limits, effective.limits(), "{subject:?}"),
                Err(error) => assert!(!sound && limits.is_empty(), "{error}"),
            }
            match compiled.exemption(&subject, now) {
                Ok(exemption) => assert_eq!(exemption, effective.exemption(), "{subject:?}"),
                Err(error) => assert!(!sound, "{error}"),
            }
            match compiled.package(&subject) {
                Ok(package) => assert_eq!(package, effective.package, "{subject:?}"),
                Err(error) => assert!(!sound, "{error}"),
            }
            match compiled.customer(&subject) {
                Ok(customer) => assert_eq!(customer, effective.customer, "{subject:?}"),
                Err(error) => assert!(!sound, "{error}"),
            }
        }
    }
}

fn agrees(policies: &Policies, rest: &[u8]) {
    let bytes = build_with(policies, [7; 16]);
    let texts: Vec<&str> =
        rest.split(|&byte| byte == 1).filter_map(|text| std::str::from_utf8(text).ok()).collect();
    compare(&Image::from_bytes(bytes.clone()).unwrap(), policies, &texts, true);
    let mut damaged = bytes.clone();
    for edit in rest.chunks_exact(3).take(4) {
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % damaged.len();
        damaged[at] ^= edit[2];
    }
    if let Ok(image) = Image::from_bytes(damaged) {
        compare(&image, policies, &texts, false);
    }
    let cut = rest.iter().map(|&byte| usize::from(byte)).sum::<usize>() % bytes.len();
    assert!(Image::from_bytes(bytes[..cut].to_vec()).is_err(), "cut after {cut} bytes");
}

/// An image with these rows, and checksums that are right.
fn any_rows(data: &[u8]) {
    let Some((mask, rest)) = data.split_first_chunk::<8>() else { return };
    let Some((positions, rows)) = rest.split_first_chunk::<3>() else { return };
    let mask = u64::from_le_bytes(*mask);
    let mut image = vec![0; HEADER];
    image.extend_from_slice(rows);
    image[..8].copy_from_slice(b"EXIRATEP");
    image[8..12].copy_from_slice(&build_with(&Policies::default(), [0; 16])[8..12]);
    let length = image.len() as u64;
    image[32..40].copy_from_slice(&length.to_le_bytes());
    for (field, position) in [40, 44, 48].into_iter().zip(positions) {
        image[field..field + 4].copy_from_slice(&u32::from(*position).to_le_bytes());
    }
    let header = crc(0, &image[..56]);
    image[56..60].copy_from_slice(&header.to_le_bytes());
    // Rows and slots follow one another. Of a position whose checksum is not right, as it is
    // in the seeds, the mask says which it is.
    let seed = crc(0, &[0; 16]);
    let mut position = HEADER / 8;
    while position < image.len() / 8 {
        let start = position * 8;
        let [first, stored] = [start, start + 4].map(|at| {
            let bytes: Option<[u8; 4]> = image.get(at..at + 4).and_then(|b| b.try_into().ok());
            bytes.unwrap_or_default()
        });
        let length = u32::from_le_bytes(first) as usize;
        let slot = crc(seed ^ position as u32, &first);
        let row = image
            .get(start + 8..start.saturating_add(8 + length))
            .map(|contents| crc(slot, contents));
        let stored = u32::from_le_bytes(stored);
        let is_slot = stored == slot && row != Some(stored)
            || row != Some(stored) && mask >> (position % 64) & 1 == 1;
        let sum = if is_slot { Some(slot) } else { row };
        if let Some(sum) = sum {
            image[start + 4..start + 8].copy_from_slice(&sum.to_le_bytes());
        }
        position += if is_slot || row.is_none() { 1 } else { 1 + length.div_ceil(8) };
    }
    let Ok(image) = Image::from_bytes(image) else { return };
    let _ = (image.identity().is_ok(), image.on_crossing().is_ok(), image.policies().is_ok());
    for name in image.names() {
        let Ok(Some(policy)) = image.policy(name) else { continue };
        let mut limits = Vec::new();
        for identity in ["", "a", "a@b", "a@b.c", "192.0.2.1", "::1"] {
            let client = identity.parse().ok();
            for package in [None, Some("a"), Some("")] {
                let is_ambiguous = package.is_none();
                let subject =
                    Subject { identity, package, client, recipient: package, is_ambiguous };
                let _ = policy.limits(&subject, &mut limits).map_err(|error| error.to_string());
                let _ = policy.exemption(&subject, 0).map_err(|error| error.to_string());
                let _ = policy.package(&subject).map_err(|error| error.to_string());
                let _ = policy.customer(&subject).map_err(|error| error.to_string());
                let _ = policy.customer_limits(identity).map_err(|error| error.to_string());
            }
        }
    }
}
