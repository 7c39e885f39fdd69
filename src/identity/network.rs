//! Networks of IP addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network: an address and the number of its leading bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cidr {
    address: IpAddr,
    bits: u8,
}

/// Why a text is not a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCidr {
    /// It is not an address, with or without `/bits`.
    Malformed,
    /// The prefix has more bits than the address.
    TooManyBits(u8),
    /// The address has bits set beyond the prefix; the network is this one.
    HostBits(Cidr),
}

impl Cidr {
    /// The network of `bits` bits around `address`. An IPv4 address that is
    /// written as IPv6 (`::ffff:192.0.2.1`) is an IPv4 address. More bits than
    /// the address has are all of its bits.
    #[must_use]
    pub fn around(address: IpAddr, bits: u8) -> Self {
        let address = address.to_canonical();
        let bits = bits.min(width(address));
        let address = match address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
            }
        };
        Self { address, bits }
    }

    /// Its address; the bits beyond the prefix are 0.
    #[must_use]
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// The number of leading bits that count.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// The network of one address.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        Self::around(address, u8::MAX)
    }

    /// Parses `192.0.2.0/24`, `2001:db8::/32`, or an address alone.
    ///
    /// # Errors
    /// What is wrong with `text`.
    pub fn parse(text: &str) -> Result<Self, NoCidr> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let written: IpAddr = address.parse().map_err(|_| NoCidr::Malformed)?;
        let Some(bits) = bits else { return Ok(Self::host(written)) };
        let digits = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
        let bits: u8 = bits.parse().ok().filter(|_| digits).ok_or(NoCidr::Malformed)?;
        if bits > width(written) {
            return Err(NoCidr::TooManyBits(width(written)));
        }
        // The bits of ::ffff:192.0.2.0/120 are those of IPv6.
        let mapped = width(written) - width(written.to_canonical());
        let network = Self::around(written, bits.saturating_sub(mapped));
        if network.address == written.to_canonical() {
            Ok(network)
        } else {
            Err(NoCidr::HostBits(network))
        }
    }

    /// Whether `address` is in it.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        width(address) == width(self.address) && Self::around(address, self.bits) == self
    }

    /// Whether all of `other` is in it.
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        self.bits <= other.bits && self.contains(other.address)
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if self.bits < width(self.address) { write!(f, "/{}", self.bits) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_and_written() {
        for (text, shown) in [
            ("192.0.2.0/24", "192.0.2.0/24"),
            ("192.0.2.7", "192.0.2.7"),
            ("192.0.2.7/32", "192.0.2.7"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("::/0", "::/0"),
            ("2001:DB8::/32", "2001:db8::/32"),
            ("::1", "::1"),
            ("::ffff:192.0.2.0/120", "192.0.2.0/24"),
        ] {
            assert_eq!(Cidr::parse(text).map(|n| n.to_string()), Ok(shown.to_owned()), "{text}");
        }
        for text in ["", "/", "x", "192.0.2", "192.0.2.0/", "192.0.2.0/+8", "192.0.2.0/2 4", "1/8"]
        {
            assert_eq!(Cidr::parse(text), Err(NoCidr::Malformed), "{text}");
        }
        assert_eq!(Cidr::parse("192.0.2.0/33"), Err(NoCidr::TooManyBits(32)));
        assert_eq!(Cidr::parse("::/129"), Err(NoCidr::TooManyBits(128)));
        let network = Cidr::parse("192.0.2.0/24").unwrap();
        assert_eq!(Cidr::parse("192.0.2.9/24"), Err(NoCidr::HostBits(network)));
    }

    kit::quickcheck! {
        fn a_network_is_around_its_addresses(one: u32, other: u32, bits: u8) -> bool {
            let bits = bits % 33;
            let network = Cidr::around(Ipv4Addr::from_bits(one).into(), bits);
            let same = (one ^ other).leading_zeros() >= u32::from(bits);
            network.contains(Ipv4Addr::from_bits(one).into())
                && network.contains(Ipv4Addr::from_bits(other).into()) == same
                && network.covers(Cidr::host(Ipv4Addr::from_bits(other).into())) == same
                && !network.contains(Ipv6Addr::from_bits(u128::from(one) << 80).into())
        }
    }
}
