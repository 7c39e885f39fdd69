//! For the tests of both schemes: bodies of which parts cannot be read.

use super::{Body, ContentQuery, Damage, Part, Scheme, Sealed, Unsearched};

/// Whether a search in a body of which `length + 1` bytes from `from` on cannot be read finds
/// what a search in the whole body does, but for as many messages as it says that it did not
/// search.
///
/// # Panics
/// The sound body is not searched, or the other one has hits that the sound one lacks.
pub(super) fn loses_only_what_it_says(
    scheme: &dyn Scheme,
    digests: &[Vec<u8>],
    parts: Vec<Part>,
    from: u16,
    length: u8,
) -> bool {
    let digests: Vec<&[u8]> = digests.iter().map(Vec::as_slice).collect();
    let Sealed { order, body } = scheme.seal(&digests);
    let question = ContentQuery { parts, min_share: 1.0 };
    let from = usize::from(from) % body.len();
    let unreadable = from..from + 1 + usize::from(length);
    let read = |offset: usize, into: &mut [u8]| {
        let end = offset + into.len();
        if offset < unreadable.end && unreadable.start < end {
            return Err(Damage("it cannot be read"));
        }
        into.copy_from_slice(&body[offset..end]);
        Ok(())
    };
    let ask = |body: &Body<'_>| {
        let mut hits = Vec::new();
        let mut search = scheme.search(&question).unwrap();
        let searched = search.sealed(body, order.len() as u32, &mut |hit| hits.push(hit.message));
        (hits, searched)
    };
    let (all, sound) = ask(&Body::plain(&body));
    let (hits, searched) = ask(&Body::stored(body.len(), &read));
    let lost = all.iter().filter(|hit| !hits.contains(hit)).count();
    assert!(sound.is_ok() && hits.iter().all(|hit| all.contains(hit)));
    match searched {
        Ok(()) => lost == 0,
        Err(Unsearched { messages, .. }) => {
            messages > 0 && messages as usize <= order.len() && lost <= messages as usize
        }
    }
}
