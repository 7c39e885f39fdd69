//! A reader and a writer for the files of the trace store that are based on
//! `src/trace/FORMAT.md` only.
#![allow(dead_code)] // each test uses some of it

#[path = "../../src/spool/fields.rs"]
mod fields;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use chacha20::XChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};

pub(crate) const DOCUMENT: &str = include_str!("../../src/trace/FORMAT.md");

/// Every field in the tables of the document: offset and size.
pub(crate) fn documented() -> BTreeMap<String, (usize, usize)> {
    fields::documented(DOCUMENT)
}

static DOCUMENTED: LazyLock<BTreeMap<String, (usize, usize)>> = LazyLock::new(documented);

/// The bytes of a documented field.
pub(crate) fn field<'a>(bytes: &'a [u8], name: &str) -> &'a [u8] {
    let (offset, size) = DOCUMENTED[name];
    &bytes[offset..offset + size]
}

/// A little-endian number of any width up to 8 bytes.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

/// The number in a documented field.
pub(crate) fn value(bytes: &[u8], name: &str) -> u64 {
    number(field(bytes, name))
}

/// The numbers of a documented field that has several, of so many bytes each.
pub(crate) fn values(bytes: &[u8], name: &str, each: usize) -> Vec<u64> {
    field(bytes, name).chunks(each).map(number).collect()
}

/// The checksum of `bytes`.
pub(crate) fn crc(bytes: &[u8]) -> u64 {
    crc32fast::hash(bytes).into()
}

/// What follows from the key.
pub(crate) struct Key {
    pub(crate) cipher: [u8; 32],
    pub(crate) number: u64,
}

impl Key {
    /// Of the content of the file `key`.
    pub(crate) fn of(file: &[u8]) -> Self {
        assert_eq!(field(file, "key.magic"), b"EXIRATEK");
        assert_eq!(value(file, "key.version"), 3);
        assert_eq!(file.len(), 1024);
        assert_eq!(file[..52], file[512..564]);
        assert!(file[52..512].iter().chain(&file[564..]).all(|&byte| byte == 0));
        assert_eq!(value(file, "key.crc"), crc(&file[..48]));
        let key: [u8; 32] = field(file, "key.key").try_into().unwrap();
        let k = |nonce: &[u8; 24]| {
            assert!(DOCUMENT.contains(std::str::from_utf8(nonce).unwrap()));
            let mut bytes = [0; 32];
            XChaCha20::new(&key.into(), &(*nonce).into()).apply_keystream(&mut bytes);
            bytes
        };
        Self {
            cipher: k(b"exirate trace cipher key"),
            number: number(&k(b"exirate trace key number")[..8]),
        }
    }

    /// Enciphers or deciphers "at" an offset.
    pub(crate) fn apply(&self, nonce: &[u8], at: u64, bytes: &mut [u8]) {
        let nonce: [u8; 24] = nonce.try_into().unwrap();
        let mut cipher = XChaCha20::new(&self.cipher.into(), &nonce.into());
        cipher.seek(at);
        cipher.apply_keystream(bytes);
    }
}

/// The size of a segment's head.
pub(crate) const HEAD: usize = 212;
/// The size of what of it is in plain.
pub(crate) const START: usize = 48;

/// A segment, deciphered.
#[derive(Clone)]
pub(crate) struct Segment {
    pub(crate) head: Vec<u8>,
    pub(crate) tables: [Vec<u8>; 2],
    pub(crate) sections: Vec<Vec<u8>>,
    pub(crate) body: Vec<u8>,
}

impl Segment {
    /// Deciphers a sound one.
    pub(crate) fn read(bytes: &[u8], key: &Key) -> Self {
        assert_eq!(field(bytes, "start.magic"), b"EXIRATEG");
        assert_eq!(value(bytes, "start.version"), 3);
        assert_eq!(value(bytes, "start.key"), key.number);
        let (rest, expected) = bytes.split_at(bytes.len() - 4);
        assert_eq!(number(expected), crc(rest));
        let nonce = field(bytes, "start.nonce");
        let second = rest.len() - HEAD;
        let mut plain = rest.to_vec();
        key.apply(nonce, START as u64, &mut plain[START..second]);
        key.apply(nonce, (second + START) as u64, &mut plain[second + START..]);
        let head = plain[..HEAD].to_vec();
        assert_eq!(head, plain[second..], "the second head");
        assert_eq!(value(&head, "segment.crc"), crc(&head[..HEAD - 4]));
        let mut at = HEAD;
        let mut next = |size: u64| {
            at += size as usize;
            plain[at - size as usize..at].to_vec()
        };
        let sizes = values(&head, "segment.tables", 4);
        let tables = [next(sizes[0]), next(sizes[1])];
        let sections = values(&head, "segment.sections", 4).into_iter().map(&mut next).collect();
        let body = next(value(&head, "segment.body"));
        assert_eq!([next(sizes[0]), next(sizes[1])], tables, "the second tables");
        assert_eq!(at, second);
        Self { head, tables, sections, body }
    }

    /// The same as a file, with sizes and checksums that fit.
    pub(crate) fn write(&self, key: &Key) -> Vec<u8> {
        let mut head = self.head.clone();
        let mut set = |name: &str, values: &[u64], each: usize| {
            let (offset, _) = DOCUMENTED[name];
            for (n, value) in values.iter().enumerate() {
                let at = offset + n * each;
                head[at..at + each].copy_from_slice(&value.to_le_bytes()[..each]);
            }
        };
        let sizes = |parts: &[Vec<u8>]| parts.iter().map(|p| p.len() as u64).collect::<Vec<_>>();
        set("segment.tables", &sizes(&self.tables), 4);
        set("segment.sections", &sizes(&self.sections), 4);
        set("segment.body", &[self.body.len() as u64], 8);
        let crc = crc32fast::hash(&head[..HEAD - 4]);
        head[HEAD - 4..].copy_from_slice(&crc.to_le_bytes());
        let mut tables = self.tables.clone();
        for table in &mut tables {
            if let Some(end) = table.len().checked_sub(4) {
                let crc = crc32fast::hash(&table[..end]);
                table[end..].copy_from_slice(&crc.to_le_bytes());
            }
        }
        let sections = self.sections.concat();
        let tables = tables.concat();
        let mut file = [&head[..], &tables, &sections, &self.body, &tables, &head].concat();
        let (nonce, second) = (field(&head, "start.nonce").to_vec(), file.len() - HEAD);
        key.apply(&nonce, START as u64, &mut file[START..second]);
        key.apply(&nonce, (second + START) as u64, &mut file[second + START..]);
        let crc = crc32fast::hash(&file);
        file.extend(crc.to_le_bytes());
        file
    }
}

/// A record of these parts, with sizes and checksums that fit.
pub(crate) fn record(envelope: &[u8], digest: &[u8], nonce: [u8; 24], key: &Key) -> Vec<u8> {
    let mut bytes = nonce.to_vec();
    bytes.extend((envelope.len() as u32).to_le_bytes());
    bytes.extend((digest.len() as u32).to_le_bytes());
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes.extend(envelope);
    bytes.extend(digest);
    bytes.resize((bytes.len() + 4).next_multiple_of(8) - 4, 0);
    let before = number(&bytes[32..36]) as u32;
    let mut crc = crc32fast::Hasher::new_with_initial(before);
    crc.update(&bytes[36..]);
    bytes.extend(crc.finalize().to_le_bytes());
    key.apply(&nonce, 0, &mut bytes[24..]);
    bytes
}

/// A log, deciphered: its head, and of each record the envelope and the digest.
pub(crate) struct Log {
    pub(crate) head: Vec<u8>,
    pub(crate) records: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The size of a log's head.
pub(crate) const LOG_HEAD: usize = 88;
/// Where its status and its first record are.
pub(crate) const STATUS: usize = 1024;
pub(crate) const RECORDS: usize = 1536;

impl Log {
    /// Deciphers a sound one.
    pub(crate) fn read(bytes: &[u8], key: &Key) -> Self {
        assert_eq!(bytes[..LOG_HEAD], bytes[512..512 + LOG_HEAD]);
        let mut head = bytes[..LOG_HEAD].to_vec();
        assert_eq!(field(&head, "start.magic"), b"EXIRATEL");
        assert_eq!(value(&head, "start.key"), key.number);
        let nonce = field(&head, "start.nonce").to_vec();
        key.apply(&nonce, 48, &mut head[48..]);
        assert_eq!(value(&head, "log.crc"), crc(&head[..84]));
        let zeros =
            [&bytes[LOG_HEAD..512], &bytes[512 + LOG_HEAD..STATUS], &bytes[STATUS + 40..RECORDS]];
        assert!(zeros.concat().iter().all(|&byte| byte == 0));

        let mut status = bytes[STATUS..STATUS + 40].to_vec();
        let nonce = field(&status, "status.nonce").to_vec();
        key.apply(&nonce, 0, &mut status[24..]);
        assert_eq!(value(&status, "status.crc"), crc(&status[..36]));
        let end = value(&status, "status.end") as usize;
        let (mut records, mut at) = (Vec::new(), RECORDS);
        while at < end {
            let mut record = bytes[at..end].to_vec();
            let nonce = field(&record, "record.nonce").to_vec();
            key.apply(&nonce, 0, &mut record[24..]);
            assert_eq!(value(&record, "record.crc"), crc(&record[..32]));
            let sizes =
                ["record.envelope", "record.digest"].map(|name| value(&record, name) as usize);
            let payload = 36 + sizes[0] + sizes[1];
            let whole = (payload + 4).next_multiple_of(8);
            assert!(record[payload..whole - 4].iter().all(|&byte| byte == 0));
            // Going on from that of the head.
            let mut crc = crc32fast::Hasher::new_with_initial(value(&record, "record.crc") as u32);
            crc.update(&record[36..whole - 4]);
            assert_eq!(number(&record[whole - 4..whole]), u64::from(crc.finalize()));
            let (envelope, digest) = record[36..payload].split_at(sizes[0]);
            records.push((envelope.to_vec(), digest.to_vec()));
            at += whole;
        }
        assert_eq!((at, records.len() as u64), (end, value(&status, "status.messages")));
        Self { head, records }
    }

    /// The same as a file, with sizes and checksums that fit.
    pub(crate) fn write(&self, key: &Key) -> Vec<u8> {
        let mut head = self.head.clone();
        let crc = crc32fast::hash(&head[..LOG_HEAD - 4]);
        head[LOG_HEAD - 4..].copy_from_slice(&crc.to_le_bytes());
        let nonce = field(&head, "start.nonce").to_vec();
        key.apply(&nonce, START as u64, &mut head[START..]);
        let mut file = vec![0; RECORDS];
        for at in [0, 512] {
            file[at..at + LOG_HEAD].copy_from_slice(&head);
        }
        for (n, (envelope, digest)) in (0_u32..).zip(&self.records) {
            let mut nonce = [0; 24];
            nonce[..4].copy_from_slice(&n.to_le_bytes());
            file.extend(record(envelope, digest, nonce, key));
        }
        let mut status = vec![0xFF; 24];
        status.extend((file.len() as u64).to_le_bytes());
        status.extend((self.records.len() as u32).to_le_bytes());
        status.extend(crc32fast::hash(&status).to_le_bytes());
        key.apply(&[0xFF; 24], 0, &mut status[24..]);
        file[STATUS..STATUS + 40].copy_from_slice(&status);
        file
    }
}
