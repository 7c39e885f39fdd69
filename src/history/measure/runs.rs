//! The events of logs in the order of time, in bounded memory: what is too much is sorted and
//! written to temporary files, which are merged.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

use super::{EVENTS_MAX, MeasureError, RECORD};
use crate::rate::Timestamp;

/// Of each file, so many bytes are read at a time.
const BUFFER: usize = 128 << 10;

/// An event of a log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// When, in microseconds since 1970.
    pub at: i64,
    /// Which key, by its number.
    pub key: u32,
    /// The first one of its message. The others follow it.
    pub is_first: bool,
    /// How much it counts.
    pub count: f64,
    /// The hash of what counts once a period, or 0.
    pub unique: u64,
}

/// Events, to be read in the order of time, as often as needed.
pub struct Runs {
    /// Those that were added last; sorted once all are known.
    recent: Vec<Event>,
    files: Vec<File>,
    len: u64,
    recent_max: usize,
    is_sorted: bool,
}

impl Event {
    fn bytes(self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        let fields = self.at.to_le_bytes().into_iter().chain(self.key.to_le_bytes());
        let fields = fields.chain([u8::from(self.is_first)]).chain(self.count.to_le_bytes());
        for (byte, field) in bytes.iter_mut().zip(fields.chain(self.unique.to_le_bytes())) {
            *byte = field;
        }
        bytes
    }

    fn read(input: &mut impl io::Read) -> io::Result<Option<Self>> {
        let mut bytes = [0; RECORD];
        match input.read_exact(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let mut rest = &bytes[..];
        let mut next = [0; 8];
        let mut long = |rest: &mut &[u8]| rest.read_exact(&mut next).map(|()| next);
        let at = i64::from_le_bytes(long(&mut rest)?);
        let mut key = [0; 4];
        rest.read_exact(&mut key)?;
        let mut first = [0];
        rest.read_exact(&mut first)?;
        let count = f64::from_le_bytes(long(&mut rest)?);
        let unique = u64::from_le_bytes(long(&mut rest)?);
        let key = u32::from_le_bytes(key);
        Ok(Some(Self { at, key, is_first: first == [1], count, unique }))
    }

    /// When.
    pub fn time(&self) -> Timestamp {
        Timestamp::from_micros(self.at)
    }
}

impl Runs {
    /// One of so many that share the memory.
    pub fn one_of(number: usize) -> Self {
        Self::with_memory(EVENTS_MAX / number.max(1))
    }

    fn with_memory(recent_max: usize) -> Self {
        Self { recent: Vec::new(), files: Vec::new(), len: 0, recent_max, is_sorted: true }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Adds an event. Of those at the same time, the order is kept.
    pub fn push(&mut self, event: Event) -> Result<(), MeasureError> {
        if self.recent.len() >= self.recent_max {
            self.spill().map_err(MeasureError::Write)?;
        }
        self.is_sorted &= self.recent.last().is_none_or(|last| last.at <= event.at);
        self.recent.push(event);
        self.len += 1;
        Ok(())
    }

    /// Calls `visit` with each event in the order of time.
    pub fn each(&mut self, mut visit: impl FnMut(&Event)) -> Result<(), MeasureError> {
        self.sort();
        if self.files.is_empty() {
            self.recent.iter().for_each(visit);
            return Ok(());
        }
        let failed = MeasureError::Read;
        let mut inputs = Vec::with_capacity(self.files.len());
        let mut heap = BinaryHeap::with_capacity(self.files.len() + 1);
        for (number, file) in self.files.iter_mut().enumerate() {
            file.rewind().map_err(failed)?;
            let mut input = BufReader::with_capacity(BUFFER, file);
            if let Some(event) = Event::read(&mut input).map_err(failed)? {
                heap.push(Reverse(Next { number, event }));
            }
            inputs.push(input);
        }
        let mut recent = self.recent.iter();
        let last = inputs.len();
        if let Some(event) = recent.next() {
            heap.push(Reverse(Next { number: last, event: *event }));
        }
        while let Some(Reverse(Next { number, event })) = heap.pop() {
            visit(&event);
            let next = match inputs.get_mut(number) {
                Some(input) => Event::read(input).map_err(failed)?,
                None => recent.next().copied(),
            };
            if let Some(event) = next {
                heap.push(Reverse(Next { number, event }));
            }
        }
        Ok(())
    }

    fn sort(&mut self) {
        if !self.is_sorted {
            self.recent.sort_by_key(|event| event.at);
            self.is_sorted = true;
        }
    }

    fn spill(&mut self) -> io::Result<()> {
        self.sort();
        let mut output = BufWriter::with_capacity(BUFFER, temporary()?);
        for event in &self.recent {
            output.write_all(&event.bytes())?;
        }
        let file = output.into_inner().map_err(io::IntoInnerError::into_error)?;
        self.files.push(file);
        self.recent.clear();
        self.is_sorted = true;
        Ok(())
    }
}

/// The next event of a file; of those at the same time, that of the earlier file comes first.
struct Next {
    number: usize,
    event: Event,
}

impl Next {
    fn order(&self) -> (i64, usize) {
        (self.event.at, self.number)
    }
}

impl Ord for Next {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Next {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Next {}

/// A file without a name, which ends with the program.
fn temporary() -> io::Result<File> {
    let path = env::temp_dir().join(format!("exirate-measure-{:016x}", rand::random::<u64>()));
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kit::quickcheck;

    quickcheck! {
        /// However little is kept in memory, they come as from a stable sort.
        fn events_are_merged_in_the_order_of_time(times: Vec<u8>, memory: u8) -> bool {
            let event = |(at, key): (&u8, u32)| Event {
                at: i64::from(*at) - 128,
                key,
                is_first: key.is_multiple_of(3),
                count: f64::from(key) / 3.0,
                unique: u64::from(key) << 40,
            };
            let mut expected: Vec<Event> = times.iter().zip(0..).map(event).collect();
            let mut runs = Runs::with_memory(1 + usize::from(memory) % 20);
            for event in &expected {
                runs.push(*event).unwrap_or_else(|_| panic!());
            }
            expected.sort_by_key(|event| event.at);
            // As often as needed.
            (0..2).all(|_| {
                let mut found = Vec::new();
                runs.each(|event| found.push(*event)).unwrap_or_else(|_| panic!());
                found == expected && runs.len() == expected.len() as u64
            })
        }
    }
}
