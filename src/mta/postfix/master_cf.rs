//! The services in `master.cf` that receive mail by SMTP.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::text::{inside, lines, split};

/// A service that receives mail by SMTP.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Service {
    /// As `postconf -P` has it: `submission/inet`.
    pub(crate) name: String,
    /// It runs in a chroot, the queue directory.
    pub(crate) chroot: bool,
    /// The settings that it does not take from `main.cf`.
    pub(super) own: BTreeMap<String, String>,
    /// It takes back what a content filter has seen: another service has received it.
    pub(crate) reinjects: bool,
}

/// The settings that hand mail to a content filter.
const FILTERS: [&str; 2] = ["content_filter", "smtpd_proxy_filter"];

impl Service {
    /// Whether it has a setting of its own.
    pub(crate) fn replaces(&self, name: &str) -> bool {
        self.own.contains_key(name)
    }
}

/// The services in `master.cf` that receive mail by SMTP, with the settings of `main.cf`.
/// `default_chroot` is what `-` stands for in the column for the chroot.
pub(super) fn services(
    text: &str,
    main: &BTreeMap<String, String>,
    default_chroot: bool,
) -> Vec<Service> {
    let service = |line: &String| {
        let words = split(line, char::is_whitespace);
        let [name, kind, _, _, chroot, _, _, program, arguments @ ..] = &words[..] else {
            return None;
        };
        if program != "smtpd" || !matches!(&**kind, "inet" | "pass" | "unix") {
            return None;
        }
        let mut own = BTreeMap::new();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            // `-o name=value`, or `-oname=value`.
            let setting = match argument.strip_prefix("-o") {
                Some("") => arguments.next().map(String::as_str),
                setting => setting,
            };
            let setting = setting.map(|text| inside(text).unwrap_or(text));
            if let Some((name, value)) = setting.and_then(|text| text.split_once('=')) {
                own.insert(name.trim().to_owned(), value.trim().to_owned());
            }
        }
        let chroot = chroot == "y" || chroot == "-" && default_chroot;
        Some(Service { name: format!("{name}/{kind}"), chroot, own, reinjects: false })
    };
    let mut services: Vec<Service> = lines(text).iter().filter_map(service).collect();
    let filters = |service: &Service, name: &str| {
        let value = service.own.get(name).or_else(|| main.get(name));
        value.is_some_and(|value| !value.is_empty())
    };
    let is_filtered =
        services.iter().any(|service| FILTERS.iter().any(|name| filters(service, name)));
    for service in &mut services {
        let is_emptied =
            FILTERS.iter().any(|name| service.own.get(*name).is_some_and(String::is_empty));
        let is_unfiltered = !FILTERS.iter().any(|name| filters(service, name));
        service.reinjects =
            is_loopback(&service.name) && (is_emptied || is_filtered && is_unfiltered);
    }
    services
}

/// Whether a service listens on this machine only: `127.0.0.1:10025`, `[::1]:10026`.
fn is_loopback(name: &str) -> bool {
    let (name, _) = name.rsplit_once('/').unwrap_or((name, ""));
    let host = name.rsplit_once(':').map_or("", |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_that_takes_back_filtered_mail_is_known() {
        let read = |text: &str| services(text, &BTreeMap::new(), true);
        let is = |line: &str| read(line)[0].reinjects;
        assert!(is("127.0.0.1:10025 inet n - n - - smtpd -o content_filter=\n"));
        assert!(is("[::1]:10025 inet n - n - - smtpd -o smtpd_proxy_filter=\n"));
        assert!(!is("127.0.0.1:10025 inet n - n - - smtpd\n"));
        assert!(!is("10025 inet n - n - - smtpd -o content_filter=\n"));
        assert!(!is("192.0.2.1:25 inet n - n - - smtpd -o content_filter=\n"));
        // It has no filter of its own, and another service has one.
        let back = "localhost:10026 inet n - n - - smtpd\n";
        assert!(is(&format!("{back}smtp inet n - n - - smtpd -o smtpd_proxy_filter=:10025\n")));
        assert!(!is(&format!("{back}smtp inet n - n - - smtpd -o smtpd_proxy_filter=\n")));
        let main = [("content_filter".to_owned(), "scan:[::1]:10024".to_owned())].into();
        assert!(!services(back, &main, true)[0].reinjects);
    }
}
