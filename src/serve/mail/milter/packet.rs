//! The packets of the protocol: a length of four bytes, a byte for the command, and data.
//!
//! Headers and bodies are handed on as they arrive, and never held as a whole. Of any other
//! command, the data is held until it is complete, up to [`DATA_MAX`].

/// The most data of a command other than a header or a part of a body. Mail servers cut
/// lines far below it.
pub const DATA_MAX: usize = 32 << 10;
/// The longest header, and the most that a mail server sends of a body at a time: the
/// largest size that the protocol knows.
pub const PART_MAX: usize = 1 << 20;
/// The length and the command.
const HEAD_BYTES: usize = 5;

/// `SMFIC_ABORT`: the message ends here.
pub const ABORT: u8 = b'A';
/// `SMFIC_BODY`: a part of the body.
pub const BODY: u8 = b'B';
/// `SMFIC_CONNECT`: a client has connected.
pub const CONNECT: u8 = b'C';
/// `SMFIC_MACRO`: values that belong to the next command.
pub const MACRO: u8 = b'D';
/// `SMFIC_BODYEOB`: the end of the message.
pub const END: u8 = b'E';
/// `SMFIC_HELO`
pub const HELO: u8 = b'H';
/// `SMFIC_QUIT_NC`: the SMTP connection ends, and this one serves another.
pub const NEXT: u8 = b'K';
/// `SMFIC_HEADER`
pub const HEADER: u8 = b'L';
/// `SMFIC_MAIL`
pub const MAIL: u8 = b'M';
/// `SMFIC_EOH`: the end of the headers.
pub const END_OF_HEADERS: u8 = b'N';
/// `SMFIC_OPTNEG`: what both sides can do.
pub const NEGOTIATE: u8 = b'O';
/// `SMFIC_QUIT`: the connection ends.
pub const QUIT: u8 = b'Q';
/// `SMFIC_RCPT`
pub const RCPT: u8 = b'R';
/// `SMFIC_DATA`
pub const DATA: u8 = b'T';
/// `SMFIC_UNKNOWN`: an SMTP command that is not known.
pub const UNKNOWN: u8 = b'U';

/// What has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A command with all of its data.
    Whole(u8, &'a [u8]),
    /// Data of a header or a body, which may be empty.
    Part {
        /// The command.
        command: u8,
        /// What has arrived of its data since the piece before.
        data: &'a [u8],
        /// The command has no more data.
        last: bool,
    },
}

/// Why nothing that follows can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketFault {
    /// A packet without a command.
    #[error("a packet without a command")]
    Empty,
    /// A length above what its command may have.
    #[error("a packet {:?} with {bytes} bytes", char::from(*.command))]
    Long {
        /// The command.
        command: u8,
        /// The length of its data.
        bytes: usize,
    },
}

/// Tells packets apart in a stream of bytes.
#[derive(Debug, Default)]
pub struct Packets {
    /// What has arrived of a length and a command.
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    /// The command whose data arrives, and how much of it is to come.
    current: Option<(u8, usize)>,
    /// What has arrived of it.
    data: Vec<u8>,
}

impl Packets {
    /// Takes the next piece from the start of `input`; `None` if more must arrive, and all of
    /// `input` was taken.
    ///
    /// # Errors
    /// Nothing that follows can be read.
    pub fn next<'a, 'i: 'a>(
        &'a mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<Piece<'a>>, PacketFault> {
        let (command, left) = match self.current {
            Some(current) => {
                if input.is_empty() {
                    return Ok(None);
                }
                current
            }
            None => {
                self.data = Vec::new();
                match self.head(input)? {
                    Some(head) => head,
                    None => return Ok(None),
                }
            }
        };
        let taken;
        (taken, *input) = input.split_at_checked(left).unwrap_or((*input, &[]));
        let left = left - taken.len();
        let last = left == 0;
        self.current = if last { None } else { Some((command, left)) };
        if is_in_parts(command) {
            return Ok(Some(Piece::Part { command, data: taken, last }));
        }
        if last && self.data.is_empty() {
            return Ok(Some(Piece::Whole(command, taken)));
        }
        self.data.extend_from_slice(taken);
        Ok(last.then_some(Piece::Whole(command, &self.data)))
    }

    /// Whether a packet has begun, and has not ended.
    #[must_use]
    pub fn is_within(&self) -> bool {
        self.head_bytes > 0 || self.current.is_some()
    }

    /// How many bytes are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.data.capacity()
    }

    /// Takes a length and a command, and returns the command and the length of its data.
    fn head(&mut self, input: &mut &[u8]) -> Result<Option<(u8, usize)>, PacketFault> {
        for to in self.head.iter_mut().skip(self.head_bytes) {
            let Some((first, rest)) = input.split_first() else { break };
            (*to, *input) = (*first, rest);
            self.head_bytes += 1;
        }
        let [a, b, c, d, command] = self.head;
        // A packet without a command may be the last one.
        if self.head_bytes >= 4 && [a, b, c, d] == [0; 4] {
            return Err(PacketFault::Empty);
        }
        if self.head_bytes < HEAD_BYTES {
            return Ok(None);
        }
        self.head_bytes = 0;
        let bytes = u32::from_be_bytes([a, b, c, d]) as usize - 1;
        let most = if is_in_parts(command) { PART_MAX } else { DATA_MAX };
        if bytes > most {
            return Err(PacketFault::Long { command, bytes });
        }
        Ok(Some((command, bytes)))
    }
}

fn is_in_parts(command: u8) -> bool {
    matches!(command, HEADER | BODY | END)
}

/// Appends a packet to `bytes`.
pub fn write(bytes: &mut Vec<u8>, command: u8, data: &[u8]) {
    let length = u32::try_from(data.len() + 1).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.push(command);
    bytes.extend_from_slice(data);
}

/// The texts in `data`, each of which ends in a zero byte; the last may end without one.
pub fn texts(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let data = data.strip_suffix(b"\0").unwrap_or(data);
    data.split(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kit::quickcheck;

    /// What is read of `bytes`, when they arrive in pieces of these lengths: parts of one
    /// command are joined.
    fn read(bytes: &[u8], lengths: &[usize]) -> Result<Vec<(u8, Vec<u8>)>, PacketFault> {
        let mut packets = Packets::default();
        let (mut all, mut joined) = (Vec::new(), Vec::new());
        let mut lengths = lengths.iter().copied().chain(std::iter::repeat(usize::MAX));
        let mut rest = bytes;
        while !rest.is_empty() {
            let length = lengths.next().unwrap_or(usize::MAX).clamp(1, rest.len());
            let (mut input, after) = rest.split_at(length);
            rest = after;
            while let Some(piece) = packets.next(&mut input)? {
                match piece {
                    Piece::Whole(command, data) => all.push((command, data.to_vec())),
                    Piece::Part { command, data, last } => {
                        joined.extend_from_slice(data);
                        if last {
                            all.push((command, std::mem::take(&mut joined)));
                        }
                    }
                }
            }
            assert!(input.is_empty());
            assert!(packets.held() <= 2 * DATA_MAX);
        }
        Ok(all)
    }

    quickcheck! {
        fn packets_are_read_however_they_arrive(
            packets: Vec<(u8, Vec<u8>)>,
            lengths: Vec<usize>
        ) -> bool {
            let mut bytes = Vec::new();
            packets.iter().for_each(|(command, data)| write(&mut bytes, *command, data));
            let lengths: Vec<usize> = lengths.iter().map(|length| length % 9).collect();
            read(&bytes, &lengths) == Ok(packets)
        }
    }

    #[test]
    fn lengths_that_cannot_be_are_refused_before_the_data_arrives() {
        let head = |length: usize, command| {
            let mut bytes = (length as u32).to_be_bytes().to_vec();
            bytes.push(command);
            bytes
        };
        assert_eq!(read(&[0; 4], &[]), Err(PacketFault::Empty));
        for (command, most) in [(MAIL, DATA_MAX), (MACRO, DATA_MAX), (BODY, PART_MAX)] {
            assert_eq!(read(&head(most + 1, command), &[]), Ok(vec![]));
            let long = PacketFault::Long { command, bytes: most + 1 };
            assert_eq!(read(&head(most + 2, command), &[1, 1, 1]), Err(long));
        }
        let long = PacketFault::Long { command: b'H', bytes: u32::MAX as usize - 1 };
        assert_eq!(read(&[255, 255, 255, 255, b'H'], &[]), Err(long));
        assert_eq!(long.to_string(), "a packet 'H' with 4294967294 bytes");
    }

    #[test]
    fn a_body_is_not_held() {
        let mut bytes = Vec::new();
        write(&mut bytes, BODY, &vec![b'x'; PART_MAX]);
        let mut packets = Packets::default();
        let mut length = 0;
        for chunk in bytes.chunks(1000) {
            let mut input = chunk;
            while let Some(Piece::Part { data, .. }) = packets.next(&mut input).unwrap() {
                length += data.len();
            }
            assert_eq!(packets.held(), 0);
        }
        assert_eq!(length, PART_MAX);
        assert!(!packets.is_within());
    }

    #[test]
    fn texts_end_in_a_zero_byte() {
        let all = |data| texts(data).collect::<Vec<_>>();
        assert_eq!(all(b"a\0b c\0"), [&b"a"[..], b"b c"]);
        assert_eq!(all(b"a\0\0c"), [&b"a"[..], b"", b"c"]);
        assert_eq!(all(b""), [b""]);
    }
}
