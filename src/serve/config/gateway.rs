//! The gateways of this network.

use std::fs::read_to_string;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The gateways that the kernel's routes have.
pub(super) fn gateways() -> impl Iterator<Item = IpAddr> {
    let text = |path| read_to_string(path).unwrap_or_default();
    let mut found = of_routes(&text("/proc/net/route"), &text("/proc/net/ipv6_route"));
    found.sort();
    found.dedup();
    found.into_iter()
}

/// Those in the kernel's tables of routes: the third column of IPv4's, the fifth of IPv6's.
fn of_routes(v4: &str, v6: &str) -> Vec<IpAddr> {
    let of_v4 = |line: &str| {
        let number = u32::from_str_radix(line.split_whitespace().nth(2)?, 16).ok()?;
        // The bytes are in the order of the network, printed as a number of this machine.
        Some(Ipv4Addr::from(number.to_ne_bytes()).into())
    };
    let of_v6 = |line: &str| {
        let number = u128::from_str_radix(line.split_whitespace().nth(4)?, 16).ok()?;
        Some(Ipv6Addr::from_bits(number).into())
    };
    let all = v4.lines().filter_map(of_v4).chain(v6.lines().filter_map(of_v6));
    all.filter(|gateway: &IpAddr| !gateway.is_unspecified()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_are_read_from_the_kernels_tables() {
        let address = u32::from_ne_bytes([172, 22, 1, 1]);
        let v4 = format!(
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n\
             eth0\t00000000\t{address:08X}\t0003\t0\t0\t0\t00000000\n\
             eth0\t000116AC\t00000000\t0001\t0\t0\t0\t00FFFFFF\n"
        );
        let zero = "0".repeat(32);
        let v6 = format!(
            "{zero} 00 {zero} 00 20010db8000000000000000000000001 00000400 00000001 00000000 00450003 eth0\n\
             {zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200 lo\n"
        );
        let found: Vec<String> = of_routes(&v4, &v6).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["172.22.1.1", "2001:db8::1"]);
        assert_eq!(of_routes("", ""), Vec::<IpAddr>::new());
    }
}
