//! Reads the fields of a row one after the other. Whatever the bytes are, nothing is
//! read beyond them, and what is allocated is bounded by their number.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::policy::network::Cidr;
use crate::policy::word::Word;

/// What is wrong with a row.
pub(super) type What = &'static str;

/// The part of a row that is not read yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    /// Whether nothing is left.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next `length` bytes.
    #[inline]
    pub(super) fn bytes(&mut self, length: u32) -> Result<&'a [u8], What> {
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
    pub(super) fn u8(&mut self) -> Result<u8, What> {
        self.array().map(u8::from_le_bytes)
    }

    #[inline]
    pub(super) fn u32(&mut self) -> Result<u32, What> {
        self.array().map(u32::from_le_bytes)
    }

    #[inline]
    pub(super) fn i64(&mut self) -> Result<i64, What> {
        self.array().map(i64::from_le_bytes)
    }

    /// A number that is not negative.
    #[inline]
    pub(super) fn number(&mut self) -> Result<f64, What> {
        let number = self.array().map(f64::from_le_bytes)?;
        if number.is_finite() && number >= 0.0 { Ok(number) } else { Err("a number is invalid") }
    }

    #[inline]
    pub(super) fn flag(&mut self) -> Result<bool, What> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err("a flag is invalid"),
        }
    }

    /// A text after its length.
    #[inline]
    pub(super) fn text(&mut self) -> Result<&'a str, What> {
        let length = self.u32()?;
        std::str::from_utf8(self.bytes(length)?).map_err(|_| "a text is not UTF-8")
    }

    /// A word of the policy language.
    pub(super) fn word<T: Word>(&mut self) -> Result<T, What> {
        T::of(self.text()?).ok_or("a word is unknown")
    }

    /// What may be missing.
    pub(super) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, What>,
    ) -> Result<Option<T>, What> {
        if self.flag()? { read(self).map(Some) } else { Ok(None) }
    }

    /// A list after its length. Each element has one byte or more.
    pub(super) fn list<T>(
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

    /// A network.
    pub(super) fn network(&mut self) -> Result<Cidr, What> {
        let bits = self.u8()?;
        let address = if self.flag()? {
            IpAddr::V6(Ipv6Addr::from_bits(u128::from_le_bytes(self.array()?)))
        } else {
            IpAddr::V4(Ipv4Addr::from_bits(self.u32()?))
        };
        Ok(Cidr::around(address, bits))
    }

    /// Checks that nothing is left.
    pub(super) fn end(&self) -> Result<(), What> {
        if self.is_empty() { Ok(()) } else { Err("a row is too long") }
    }
}
