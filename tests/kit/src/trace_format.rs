//! A reader and a writer for the files of the trace store that are based on
//! `src/trace/FORMAT.md` only.

use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::sync::LazyLock;

use chacha20::XChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use siphasher::sip::SipHasher24;

use crate::fields;

/// The version that these are of.
pub const VERSION: u8 = 5;

/// What the document says.
pub const DOCUMENT: &str = include_str!("../../../src/trace/FORMAT.md");

/// Every field in the tables of the document: offset and size.
pub fn documented() -> BTreeMap<String, (usize, usize)> {
    fields::documented(DOCUMENT)
}

static DOCUMENTED: LazyLock<BTreeMap<String, (usize, usize)>> = LazyLock::new(documented);

/// The bytes of a documented field.
pub fn field<'a>(bytes: &'a [u8], name: &str) -> &'a [u8] {
    let (offset, size) = DOCUMENTED[name];
    &bytes[offset..offset + size]
}

/// A little-endian number of any width up to 8 bytes.
pub fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

/// The number in a documented field.
pub fn value(bytes: &[u8], name: &str) -> u64 {
    number(field(bytes, name))
}

/// The numbers of a documented field that has several, of so many bytes each.
pub fn values(bytes: &[u8], name: &str, each: usize) -> Vec<u64> {
    field(bytes, name).chunks(each).map(number).collect()
}

/// The checksum of `bytes`.
pub fn crc(bytes: &[u8]) -> u64 {
    crc32fast::hash(bytes).into()
}

/// What follows from the key.
pub struct Key {
    pub cipher: [u8; 32],
    pub tagger: [u8; 16],
    pub number: u64,
}

impl Key {
    /// Of the content of the file `key`.
    pub fn of(file: &[u8]) -> Self {
        assert_eq!(field(file, "key.magic"), b"EXIRATEK");
        assert_eq!(value(file, "key.version"), u64::from(VERSION));
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
            tagger: k(b"exirate trace tagger key")[..16].try_into().unwrap(),
            number: number(&k(b"exirate trace key number")[..8]),
        }
    }

    /// Enciphers or deciphers "at" an offset.
    pub fn apply(&self, nonce: &[u8], at: u64, bytes: &mut [u8]) {
        let nonce: [u8; 24] = nonce.try_into().unwrap();
        let mut cipher = XChaCha20::new(&self.cipher.into(), &nonce.into());
        cipher.seek(at);
        cipher.apply_keystream(bytes);
    }

    /// The tag of bytes at an offset of the file with a nonce.
    fn tag(&self, nonce: &[u8], at: usize, bytes: &[u8]) -> [u8; TAG] {
        let mut hasher = SipHasher24::new_with_key(&self.tagger);
        hasher.write(&[nonce, &(at as u64).to_le_bytes(), bytes].concat());
        hasher.finish().to_le_bytes()
    }

    /// Bytes that end with their tag, which must be right, without it.
    fn untagged<'a>(&self, nonce: &[u8], at: usize, bytes: &'a [u8]) -> &'a [u8] {
        let (bytes, tag) = bytes.split_at(bytes.len() - TAG);
        assert_eq!(tag, self.tag(nonce, at, bytes), "the tag of the bytes at {at}");
        bytes
    }

    /// Enciphers a part of a segment and appends it to its file, with its tag.
    fn push(&self, nonce: &[u8], plain: &[u8], file: &mut Vec<u8>) {
        let at = file.len();
        file.extend(plain);
        self.apply(nonce, at as u64, &mut file[at..]);
        let tag = self.tag(nonce, at, &file[at..]);
        file.extend(tag);
    }
}

/// The size of a segment's head.
pub const HEAD: usize = 228;
/// The size of what of it is in plain.
pub const START: usize = 48;
/// The size of a tag.
pub const TAG: usize = 8;
/// The size of a block of a body.
const BLOCK: usize = 1024;

/// A segment, deciphered. Nothing of it has tags.
#[derive(Clone)]
pub struct Segment {
    pub head: Vec<u8>,
    pub tables: [Vec<u8>; 2],
    /// The blocks of each section.
    pub sections: Vec<Vec<Vec<u8>>>,
    pub body: Vec<u8>,
}

/// The numbers of blocks of the sections that a table is about, from the counts in the head.
fn blocks(head: &[u8], table: usize) -> Vec<u64> {
    let count = |name: &str| value(head, &format!("segment.{name}"));
    match table {
        0 => {
            let kinds = ["domains", "addresses", "names", "fours", "sixes"];
            kinds.iter().map(|name| count(name).div_ceil(128)).collect()
        }
        _ => {
            let (clients, addresses) = (count("fours") + count("sixes") + 1, count("addresses"));
            let symbols = [count("names") + 3, clients, addresses, addresses];
            let lengths = symbols.into_iter().map(|symbols| symbols.div_ceil(2048)).sum();
            let messages = count("messages");
            let thousands = messages.div_ceil(1024);
            vec![lengths, messages.div_ceil(128), thousands, thousands, thousands]
        }
    }
}

/// The sizes of blocks at the start of a table: each the bit length of a number in 6 bits, and
/// all its bits except the first.
fn block_sizes(table: &[u8]) -> impl Iterator<Item = u64> {
    let mut bits =
        table.iter().flat_map(|byte| (0..8).rev().map(move |bit| u64::from(byte >> bit & 1)));
    std::iter::from_fn(move || {
        let mut take = |first: u64, count: u64| {
            bits.by_ref().take(count as usize).fold(first, |sum, bit| sum << 1 | bit)
        };
        match take(0, 6) {
            0 => Some(0),
            length => Some(take(1, length - 1)),
        }
    })
}

impl Segment {
    /// Deciphers a sound one.
    pub fn read(bytes: &[u8], key: &Key) -> Self {
        assert_eq!(field(bytes, "start.magic"), b"EXIRATEG");
        assert_eq!(value(bytes, "start.version"), u64::from(VERSION));
        assert_eq!(value(bytes, "start.key"), key.number);
        let (rest, expected) = bytes.split_at(bytes.len() - 4);
        assert_eq!(number(expected), crc(rest));
        let nonce = field(bytes, "start.nonce");
        let second = rest.len() - HEAD;
        let head = |at: usize| {
            let mut head = key.untagged(nonce, at, &rest[at..at + HEAD]).to_vec();
            key.apply(nonce, (at + START) as u64, &mut head[START..]);
            head
        };
        let (head, copy) = (head(0), head(second));
        assert_eq!(head, copy, "the second head");
        let mut at = HEAD;
        // The next part, whose size includes its tag.
        let mut next = |size: u64| {
            let start = at;
            at += size as usize;
            let mut plain = key.untagged(nonce, start, &rest[start..at]).to_vec();
            key.apply(nonce, start as u64, &mut plain);
            plain
        };
        let sizes = values(&head, "segment.tables", 4);
        let tables = [next(sizes[0]), next(sizes[1])];
        let mut sections = Vec::new();
        for (number, table) in tables.iter().enumerate() {
            let mut sizes = block_sizes(table);
            for count in blocks(&head, number) {
                let sizes = sizes.by_ref().take(count as usize);
                sections.push(sizes.map(|size| next(size + TAG as u64)).collect::<Vec<_>>());
            }
        }
        assert_eq!(section_sizes(&sections), values(&head, "segment.sections", 4));
        let mut body = Vec::new();
        let size = value(&head, "segment.body") as usize;
        while body.len() < size {
            let block = (size - body.len()).min(BLOCK) + TAG;
            body.extend(next(block as u64));
        }
        assert_eq!([next(sizes[0]), next(sizes[1])], tables, "the second tables");
        assert_eq!(at, second);
        Self { head, tables, sections, body }
    }

    /// The same as a file, with sizes, tags and a checksum that fit.
    pub fn write(&self, key: &Key) -> Vec<u8> {
        let mut head = self.head.clone();
        let mut set = |name: &str, values: &[u64], each: usize| {
            let (offset, _) = DOCUMENTED[name];
            for (n, value) in values.iter().enumerate() {
                let at = offset + n * each;
                head[at..at + each].copy_from_slice(&value.to_le_bytes()[..each]);
            }
        };
        let tables: Vec<u64> = self.tables.iter().map(|table| (table.len() + TAG) as u64).collect();
        set("segment.tables", &tables, 4);
        set("segment.sections", &section_sizes(&self.sections), 4);
        set("segment.body", &[self.body.len() as u64], 8);
        let nonce = field(&head, "start.nonce").to_vec();
        let enciphered = |at: usize| {
            let mut head = head.clone();
            key.apply(&nonce, (at + START) as u64, &mut head[START..]);
            let tag = key.tag(&nonce, at, &head);
            [&head[..], &tag].concat()
        };
        let mut file = enciphered(0);
        let blocks = self.sections.iter().flatten().map(Vec::as_slice);
        let tables = || self.tables.iter().map(Vec::as_slice);
        let parts = tables().chain(blocks).chain(self.body.chunks(BLOCK)).chain(tables());
        parts.for_each(|part| key.push(&nonce, part, &mut file));
        file.extend(enciphered(file.len()));
        let crc = crc32fast::hash(&file);
        file.extend(crc.to_le_bytes());
        file
    }
}

/// The sizes of sections with the tags of their blocks.
fn section_sizes(sections: &[Vec<Vec<u8>>]) -> Vec<u64> {
    let size = |blocks: &Vec<Vec<u8>>| blocks.iter().map(|block| (block.len() + TAG) as u64).sum();
    sections.iter().map(size).collect()
}

/// A record of these parts, with sizes and a checksum that fit, and without a tag.
fn record(envelope: &[u8], digest: &[u8], nonce: [u8; 24], key: &Key) -> Vec<u8> {
    let mut bytes = nonce.to_vec();
    bytes.extend((envelope.len() as u32).to_le_bytes());
    bytes.extend((digest.len() as u32).to_le_bytes());
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes.extend(envelope);
    bytes.extend(digest);
    bytes.resize((bytes.len() + TAG).next_multiple_of(8) - TAG, 0);
    key.apply(&nonce, 0, &mut bytes[24..]);
    bytes
}

/// A log, deciphered: its head, and of each record the envelope and the digest.
pub struct Log {
    pub head: Vec<u8>,
    pub records: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The size of a log's head.
pub const LOG_HEAD: usize = 92;
/// Where its status and its first record are.
pub const STATUS: usize = 1024;
const STATUS_BYTES: usize = 44;
pub const RECORDS: usize = 1536;

impl Log {
    /// Deciphers a sound one.
    pub fn read(bytes: &[u8], key: &Key) -> Self {
        let of_file = field(bytes, "start.nonce");
        let [mut head, copy] =
            [0, 512].map(|at| key.untagged(of_file, at, &bytes[at..at + LOG_HEAD]).to_vec());
        assert_eq!(head, copy, "the second head");
        assert_eq!(field(&head, "start.magic"), b"EXIRATEL");
        assert_eq!(value(&head, "start.version"), u64::from(VERSION));
        assert_eq!(value(&head, "start.key"), key.number);
        key.apply(of_file, 48, &mut head[48..]);
        let zeros = [
            &bytes[LOG_HEAD..512],
            &bytes[512 + LOG_HEAD..STATUS],
            &bytes[STATUS + STATUS_BYTES..RECORDS],
        ];
        assert!(zeros.concat().iter().all(|&byte| byte == 0));

        let status = &bytes[STATUS..STATUS + STATUS_BYTES];
        let mut status = key.untagged(of_file, STATUS, status).to_vec();
        let nonce = field(&status, "status.nonce").to_vec();
        key.apply(&nonce, 0, &mut status[24..]);
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
            let whole = (payload + TAG).next_multiple_of(8);
            assert!(record[payload..whole - TAG].iter().all(|&byte| byte == 0));
            key.untagged(of_file, at, &bytes[at..at + whole]);
            let (envelope, digest) = record[36..payload].split_at(sizes[0]);
            records.push((envelope.to_vec(), digest.to_vec()));
            at += whole;
        }
        assert_eq!((at, records.len() as u64), (end, value(&status, "status.messages")));
        Self { head, records }
    }

    /// The same as a file, with sizes, checksums and tags that fit.
    pub fn write(&self, key: &Key) -> Vec<u8> {
        let mut head = self.head.clone();
        let of_file = field(&head, "start.nonce").to_vec();
        key.apply(&of_file, START as u64, &mut head[START..]);
        let mut file = vec![0; RECORDS];
        for at in [0, 512] {
            let tag = key.tag(&of_file, at, &head);
            file[at..at + LOG_HEAD].copy_from_slice(&[&head[..], &tag].concat());
        }
        for (n, (envelope, digest)) in (0_u32..).zip(&self.records) {
            let mut nonce = [0; 24];
            nonce[..4].copy_from_slice(&n.to_le_bytes());
            let record = record(envelope, digest, nonce, key);
            let tag = key.tag(&of_file, file.len(), &record);
            file.extend([&record[..], &tag].concat());
        }
        let mut status = vec![0xFF; 24];
        status.extend((file.len() as u64).to_le_bytes());
        status.extend((self.records.len() as u32).to_le_bytes());
        key.apply(&[0xFF; 24], 0, &mut status[24..]);
        status.extend(key.tag(&of_file, STATUS, &status));
        file[STATUS..STATUS + STATUS_BYTES].copy_from_slice(&status);
        file
    }
}
