//! What identifies a whole attachment: the SHA-256 of its bytes.
//!
//! Digests depend on an attachment only through it, so that a hash that was published, of
//! malware or of a document, is enough for a query.

use sha2::{Digest, Sha256};

/// The SHA-256 of a file.
pub type FileHash = [u8; 32];

/// The SHA-256 of `content`.
#[must_use]
pub fn file_hash(content: &[u8]) -> FileHash {
    Sha256::digest(content).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_sha_256_that_others_publish() {
        // FIPS 180-2, B.1, and the file of 68 bytes that virus scanners are tested with.
        let eicar = concat!(
            r"X5O!P%@AP[4\PZX54(P^)7CC)7}",
            "$EICAR-STANDARD-",
            "ANTIVIRUS-TEST-FILE!$H+H*"
        );
        for (content, hash) in [
            ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (eicar, "275a021bbfb6489e54d471899f7db9d1663fc695ec2fe2a2c4538aabf651fd0f"),
        ] {
            let found: String =
                file_hash(content.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(found, hash);
        }
    }
}
