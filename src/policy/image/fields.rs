//! The fields of a row, one after the other: how they are read and written. Whatever the
//! bytes are, nothing is read beyond them, and what is allocated is bounded by their number.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::layout::Table;
use crate::calendar::Zone;
use crate::engine::BlockTime;
use crate::policy::network::Cidr;
use crate::policy::word::Word;

/// What is wrong with a row.
pub(in crate::policy) type What = &'static str;

/// The part of a row that is not read yet.
#[derive(Clone, Copy, Debug)]
pub(in crate::policy) struct Fields<'a>(pub(in crate::policy) &'a [u8]);

impl<'a> Fields<'a> {
    /// Whether nothing is left.
    #[inline]
    pub(in crate::policy) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next `length` bytes.
    #[inline]
    pub(in crate::policy) fn bytes(&mut self, length: u32) -> Result<&'a [u8], What> {
        let (taken, rest) =
            self.0.split_at_checked(length as usize).ok_or("a row ends too early")?;
        self.0 = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], What> {
        let (taken, rest) = self.0.split_first_chunk().ok_or("a row ends too early")?;
        self.0 = rest;
        Ok(*taken)
    }

    #[inline]
    pub(in crate::policy) fn u8(&mut self) -> Result<u8, What> {
        self.array().map(u8::from_le_bytes)
    }

    #[inline]
    pub(in crate::policy) fn u32(&mut self) -> Result<u32, What> {
        self.array().map(u32::from_le_bytes)
    }

    #[inline]
    pub(in crate::policy) fn i64(&mut self) -> Result<i64, What> {
        self.array().map(i64::from_le_bytes)
    }

    /// A number that is not negative.
    #[inline]
    pub(in crate::policy) fn number(&mut self) -> Result<f64, What> {
        let number = self.array().map(f64::from_le_bytes)?;
        if number.is_finite() && number >= 0.0 { Ok(number) } else { Err("a number is invalid") }
    }

    #[inline]
    pub(in crate::policy) fn flag(&mut self) -> Result<bool, What> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err("a flag is invalid"),
        }
    }

    /// A text after its length.
    #[inline]
    pub(in crate::policy) fn text(&mut self) -> Result<&'a str, What> {
        let length = self.u32()?;
        std::str::from_utf8(self.bytes(length)?).map_err(|_| "a text is not UTF-8")
    }

    /// What may be missing.
    pub(in crate::policy) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, What>,
    ) -> Result<Option<T>, What> {
        if self.flag()? { read(self).map(Some) } else { Ok(None) }
    }

    /// A list after its length. Each element has one byte or more.
    pub(in crate::policy) fn list<T>(
        &mut self,
        read: impl Fn(&mut Self) -> Result<T, What>,
    ) -> Result<Vec<T>, What> {
        let mut list = Vec::new();
        for _ in 0..self.u32()? {
            if self.is_empty() {
                return Err("a row ends too early");
            }
            list.push(read(self)?);
        }
        Ok(list)
    }

    /// Checks that nothing is left.
    pub(in crate::policy) fn end(&self) -> Result<(), What> {
        if self.is_empty() { Ok(()) } else { Err("a row is too long") }
    }
}

/// The contents of a row that is written.
#[cfg(feature = "cli")]
#[derive(Debug, Default)]
pub(in crate::policy) struct Row(pub(in crate::policy) Vec<u8>);

#[cfg(feature = "cli")]
impl Row {
    pub(in crate::policy) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(in crate::policy) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// A length. One that is too long does not pass when the image is read back.
    pub(in crate::policy) fn length(&mut self, length: usize) {
        self.u32(u32::try_from(length).unwrap_or(u32::MAX));
    }

    pub(in crate::policy) fn i64(&mut self, value: i64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(in crate::policy) fn number(&mut self, value: f64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(in crate::policy) fn flag(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// Bytes after their length.
    pub(in crate::policy) fn bytes(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub(in crate::policy) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }
}

/// What rows keep.
pub(in crate::policy) trait Stored: Sized {
    /// Reads it.
    fn read(row: &mut Fields<'_>) -> Result<Self, What>;

    /// Writes it.
    #[cfg(feature = "cli")]
    fn write(&self, row: &mut Row);
}

impl Stored for bool {
    fn read(row: &mut Fields<'_>) -> Result<Self, What> {
        row.flag()
    }

    #[cfg(feature = "cli")]
    fn write(&self, row: &mut Row) {
        row.flag(*self);
    }
}

impl Stored for u8 {
    fn read(row: &mut Fields<'_>) -> Result<Self, What> {
        row.u8()
    }

    #[cfg(feature = "cli")]
    fn write(&self, row: &mut Row) {
        row.u8(*self);
    }
}

impl Stored for u32 {
    fn read(row: &mut Fields<'_>) -> Result<Self, What> {
        row.u32()
    }

    #[cfg(feature = "cli")]
    fn write(&self, row: &mut Row) {
        row.u32(*self);
    }
}

impl Stored for Table {
    fn read(row: &mut Fields<'_>) -> Result<Self, What> {
        Ok(Self { start: row.u32()?, slots: row.u32()? })
    }

    #[cfg(feature = "cli")]
    fn write(&self, row: &mut Row) {
        row.u32(self.start);
        row.u32(self.slots);
    }
}

impl Stored for i64 {
    fn read(row: &mut Fields<'_>) -> Result<Self, What> {
        row.i64()
    }

    #[cfg(feature = "cli")]
    fn write(&self, row: &mut Row) {
        row.i64(*self);
    }
}

impl Stored for BlockTime {
    fn read(row: &mut Fields<'_>) -> Result<Self, What> {
        row.u32().map(Self::of_code)
    }

    #[cfg(feature = "cli")]
    fn write(&self, row: &mut Row) {
        row.u32(self.code());
    }
}

impl Stored for f64 {
    fn read(row: &mut Fields<'_>) -> Result<Self, What> {
        row.number()
    }

    #[cfg(feature = "cli")]
    fn write(&self, row: &mut Row) {
        row.number(*self);
    }
}

impl Stored for String {
    fn read(row: &mut Fields<'_>) -> Result<Self, What> {
        row.text().map(str::to_owned)
    }

    #[cfg(feature = "cli")]
    fn write(&self, row: &mut Row) {
        row.text(self);
    }
}

/// The changes must be in their order, and no clock further from UTC than a day.
impl Stored for Zone {
    fn read(row: &mut Fields<'_>) -> Result<Self, What> {
        let ahead = |row: &mut Fields<'_>| {
            let ahead = row.u32()?.cast_signed();
            let is_known = ahead.unsigned_abs() <= 86_400;
            is_known.then_some(ahead).ok_or("a time zone is too far from UTC")
        };
        let (name, first) = (row.text()?.into(), ahead(row)?);
        let changes = row.list(|row| Ok((row.i64()?, ahead(row)?)))?;
        match changes.is_sorted_by(|(one, _), (next, _)| one < next) {
            true => Ok(Self { name, first, changes: changes.into() }),
            false => Err("the changes of a time zone are not in order"),
        }
    }

    #[cfg(feature = "cli")]
    fn write(&self, row: &mut Row) {
        row.text(&self.name);
        row.u32(self.first.cast_unsigned());
        row.length(self.changes.len());
        for (at, ahead) in &self.changes {
            row.i64(*at);
            row.u32(ahead.cast_unsigned());
        }
    }
}

/// A word of the policy language.
impl<W: Word> Stored for W {
    fn read(row: &mut Fields<'_>) -> Result<Self, What> {
        W::of(row.text()?).ok_or("a word is unknown")
    }

    #[cfg(feature = "cli")]
    fn write(&self, row: &mut Row) {
        row.text(self.word());
    }
}

impl<T: Stored> Stored for Option<T> {
    fn read(row: &mut Fields<'_>) -> Result<Self, What> {
        row.option(T::read)
    }

    #[cfg(feature = "cli")]
    fn write(&self, row: &mut Row) {
        row.flag(self.is_some());
        self.iter().for_each(|value| value.write(row));
    }
}

impl<T: Stored> Stored for Vec<T> {
    fn read(row: &mut Fields<'_>) -> Result<Self, What> {
        row.list(T::read)
    }

    #[cfg(feature = "cli")]
    fn write(&self, row: &mut Row) {
        row.length(self.len());
        self.iter().for_each(|one| one.write(row));
    }
}

impl Stored for Cidr {
    fn read(row: &mut Fields<'_>) -> Result<Self, What> {
        let bits = row.u8()?;
        let address = if row.flag()? {
            IpAddr::V6(Ipv6Addr::from_bits(u128::from_le_bytes(row.array()?)))
        } else {
            IpAddr::V4(Ipv4Addr::from_bits(row.u32()?))
        };
        Ok(Self::around(address, bits))
    }

    #[cfg(feature = "cli")]
    fn write(&self, row: &mut Row) {
        row.u8(self.bits());
        match self.address() {
            IpAddr::V6(v6) => {
                row.flag(true);
                row.0.extend_from_slice(&v6.to_bits().to_le_bytes());
            }
            IpAddr::V4(v4) => {
                row.flag(false);
                row.u32(v4.to_bits());
            }
        }
    }
}
