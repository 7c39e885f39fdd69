//! Encryption with XChaCha20, tags by SipHash-2-4, and key derivation.
//!
//! Poly1305 is the usual companion of ChaCha20, but it needs a key of its own for each tag: with
//! the `poly1305` crate, checking a block of a KiB takes 1.7 µs, and SipHash 0.45. A query checks
//! thousands of blocks.

use std::cell::RefCell;
use std::hash::Hasher as _;

use chacha20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use chacha20::{ChaCha20, R20, hchacha};
use rand::TryRng;
use rand::rngs::SysRng;
use siphasher::sip::SipHasher24;

use super::TraceError;

/// The size of a nonce: large enough that random ones never collide.
pub(super) const NONCE_BYTES: usize = 24;
/// A number used only once with a key.
pub(super) type Nonce = [u8; NONCE_BYTES];

/// The size of a block of the keystream.
const BLOCK: usize = 64;
/// So much of the keystream is computed at once: with AVX2, four blocks take as long as one, and
/// most reads begin and end within a block.
const AT_ONCE: usize = 4 * BLOCK;

/// The keystream of one key and one nonce.
#[derive(Debug)]
pub(super) struct Stream {
    key: [u8; 32],
    nonce: [u8; 12],
    /// To make it takes longer than to move it.
    cipher: RefCell<ChaCha20>,
}

impl Clone for Stream {
    fn clone(&self) -> Self {
        Self::with(self.key, self.nonce)
    }
}

impl Stream {
    /// XChaCha20 is ChaCha20 with a key derived from the key and the first 16
    /// bytes of the nonce. The derivation is done once here, for many reads.
    pub(super) fn new(key: &[u8; 32], nonce: &Nonce) -> Self {
        let (first, last) = nonce.split_at(16);
        let mut head = [0; 16];
        head.copy_from_slice(first);
        let mut tail = [0; 12];
        tail.iter_mut().skip(4).zip(last).for_each(|(to, from)| *to = *from);
        Self::with(hchacha::<R20>(&(*key).into(), &head.into()).into(), tail)
    }

    fn with(key: [u8; 32], nonce: [u8; 12]) -> Self {
        Self { key, nonce, cipher: RefCell::new(ChaCha20::new(&key.into(), &nonce.into())) }
    }

    /// Encrypts or decrypts bytes at `offset` of the stream.
    pub(super) fn apply(&self, offset: u64, bytes: &mut [u8]) {
        let skipped = (offset % BLOCK as u64) as usize;
        let mut cipher = self.cipher.borrow_mut();
        let mut done = cipher.try_seek(offset - skipped as u64).is_ok();
        let (mut rest, mut skipped) = (&mut *bytes, skipped);
        while !rest.is_empty() {
            let mut keystream = [0; AT_ONCE];
            done &= cipher.try_apply_keystream(&mut keystream).is_ok();
            let these = keystream.get(skipped..).unwrap_or_default();
            let (part, after) = rest.split_at_mut(these.len().min(rest.len()));
            part.iter_mut().zip(these).for_each(|(byte, key)| *byte ^= key);
            (rest, skipped) = (after, 0);
        }
        // There is no keystream beyond 256 GiB; plaintext must not remain.
        if !done {
            bytes.fill(0);
        }
    }
}

/// The size of a tag.
pub(super) const TAG_BYTES: usize = 8;
/// Shows that bytes were written by someone with the key, at this place of this file.
type Tag = [u8; TAG_BYTES];

/// Makes and checks the tags of one file: SipHash-2-4, with 64 bits, of the file's nonce, of
/// the offset of the bytes in the file, and of the bytes as they are in the file, encrypted.
#[derive(Clone, Debug)]
pub(super) struct Tagger(SipHasher24);

impl Tagger {
    /// That of the file with this nonce.
    pub(super) fn new(key: &[u8; 16], nonce: &Nonce) -> Self {
        let mut hasher = SipHasher24::new_with_key(key);
        hasher.write(nonce);
        Self(hasher)
    }

    fn tag(&self, offset: u64, bytes: &[u8]) -> Tag {
        let mut hasher = self.0;
        hasher.write(&offset.to_le_bytes());
        hasher.write(bytes);
        hasher.finish().to_le_bytes()
    }

    /// Sets the last bytes to the tag of all bytes before them.
    pub(super) fn set(&self, offset: u64, bytes: &mut [u8]) {
        if let Some((tagged, tag)) = bytes.split_last_chunk_mut() {
            *tag = self.tag(offset, tagged);
        }
    }

    /// The bytes before the tag at their end; `None` if it is not theirs.
    pub(super) fn check<'a>(&self, offset: u64, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let (tagged, tag) = bytes.split_last_chunk()?;
        // As one number, so that the time does not depend on how many bytes are equal.
        let [is, should] = [*tag, self.tag(offset, tagged)].map(u64::from_le_bytes);
        (is == should).then_some(tagged)
    }
}

/// Cryptographically secure random bytes.
pub(super) fn random<const N: usize>() -> Result<[u8; N], TraceError> {
    let mut bytes = [0; N];
    SysRng.try_fill_bytes(&mut bytes).map_err(|source| TraceError::Random { source })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use chacha20::XChaCha20;

    #[test]
    fn the_stream_is_that_of_xchacha20_at_every_offset() {
        let (key, nonce) = ([7; 32], std::array::from_fn(|n| n as u8));
        let mut whole = [0; 1000];
        XChaCha20::new(&key.into(), &nonce.into()).apply_keystream(&mut whole);
        let stream = Stream::new(&key, &nonce);
        for (start, end) in [(0, 1000), (1, 2), (63, 65), (64, 128), (100, 777), (999, 1000)] {
            let mut part = vec![0; end - start];
            stream.apply(start as u64, &mut part);
            assert_eq!(part, whole[start..end]);
        }
    }

    /// The standard library contains another implementation.
    #[test]
    #[expect(deprecated)]
    fn tags_are_those_of_siphash_2_4() {
        let key = std::array::from_fn(|n| n as u8);
        let [k0, k1] = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        for length in 0..40 {
            let bytes: Vec<u8> = (0..length).map(|n: u8| n.wrapping_mul(n)).collect();
            let mut hasher = std::hash::SipHasher::new_with_keys(k0, k1);
            hasher.write(&[7; NONCE_BYTES]);
            hasher.write(&300_u64.to_le_bytes());
            hasher.write(&bytes);
            let tag = Tagger::new(&key, &[7; NONCE_BYTES]).tag(300, &bytes);
            assert_eq!(tag, hasher.finish().to_le_bytes());
        }
    }

    #[test]
    fn a_tag_is_that_of_one_file_one_place_and_all_bytes() {
        let tagger = Tagger::new(&[7; 16], &[1; NONCE_BYTES]);
        let mut bytes = (0..100).collect::<Vec<u8>>();
        tagger.set(8, &mut bytes);
        assert_eq!(tagger.check(8, &bytes), Some(&bytes[..92]));
        assert_eq!(tagger.check(9, &bytes), None);
        assert_eq!(Tagger::new(&[7; 16], &[2; NONCE_BYTES]).check(8, &bytes), None);
        assert_eq!(Tagger::new(&[8; 16], &[1; NONCE_BYTES]).check(8, &bytes), None);
        for bit in 0..800 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(tagger.check(8, &changed), None, "{bit}");
        }
        for length in 0..100 {
            assert_eq!(tagger.check(8, &bytes[..length]), None, "{length}");
        }
    }

    #[test]
    fn bytes_without_keystream_are_cleared() {
        let mut bytes = *b"secret";
        Stream::new(&[7; 32], &[1; 24]).apply(u64::MAX - 3, &mut bytes);
        assert_eq!(bytes, [0; 6]);
    }
}
