//! Encryption with XChaCha20, and key derivation.

use chacha20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use chacha20::{ChaCha20, R20, hchacha};
use rand::TryRng;
use rand::rngs::SysRng;

use super::TraceError;

/// The size of a nonce: large enough that random ones never collide.
pub(super) const NONCE_BYTES: usize = 24;
/// A number used only once with a key.
pub(super) type Nonce = [u8; NONCE_BYTES];

/// The keystream of one key and one nonce.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    key: [u8; 32],
    nonce: [u8; 12],
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
        Self { key: hchacha::<R20>(&(*key).into(), &head.into()).into(), nonce: tail }
    }

    /// Encrypts or decrypts bytes at `offset` of the stream.
    pub(super) fn apply(&self, offset: u64, bytes: &mut [u8]) {
        let mut cipher = ChaCha20::new(&self.key.into(), &self.nonce.into());
        let done = cipher.try_seek(offset).is_ok() && cipher.try_apply_keystream(bytes).is_ok();
        // There is no keystream beyond 256 GiB; plaintext must not remain.
        if !done {
            bytes.fill(0);
        }
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

    #[test]
    fn bytes_without_keystream_are_cleared() {
        let mut bytes = *b"secret";
        Stream::new(&[7; 32], &[1; 24]).apply(u64::MAX - 3, &mut bytes);
        assert_eq!(bytes, [0; 6]);
    }
}
