//! Destinations: domains whose mail one provider receives, and which limit what they accept
//! together.

#[cfg(feature = "cli")]
use super::image::fields::Row;
use super::image::fields::{Fields, Stored, What};
use super::value::DomainPattern;

/// The domains under which large providers give addresses to the public. A domain of a customer
/// that such a provider receives mail for is not among them: only its MX records say so.
pub const SHIPPED: [(&str, &[&str]); 6] = [
    ("apple", &["icloud.com", "mac.com", "me.com"]),
    ("gmx", &["gmx.at", "gmx.ch", "gmx.com", "gmx.de", "gmx.net", "mail.com", "web.de"]),
    ("google", &["gmail.com", "googlemail.com"]),
    (
        "microsoft",
        &[
            "hotmail.ca",
            "hotmail.co.uk",
            "hotmail.com",
            "hotmail.com.au",
            "hotmail.com.br",
            "hotmail.de",
            "hotmail.es",
            "hotmail.fr",
            "hotmail.it",
            "live.at",
            "live.ca",
            "live.co.uk",
            "live.com",
            "live.de",
            "live.fr",
            "live.it",
            "live.nl",
            "msn.com",
            "outlook.com",
            "outlook.de",
            "outlook.es",
            "outlook.fr",
            "outlook.it",
            "windowslive.com",
        ],
    ),
    ("proton", &["pm.me", "proton.me", "protonmail.com"]),
    (
        "yahoo",
        &[
            "aim.com",
            "aol.com",
            "rocketmail.com",
            "verizon.net",
            "yahoo.ca",
            "yahoo.co.in",
            "yahoo.co.uk",
            "yahoo.com",
            "yahoo.com.au",
            "yahoo.com.br",
            "yahoo.de",
            "yahoo.es",
            "yahoo.fr",
            "yahoo.ie",
            "yahoo.it",
            "ymail.com",
        ],
    ),
];

/// `[destination.NAME]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// What keys have in place of its domains.
    pub name: String,
    /// The domains.
    pub domains: Vec<DomainPattern>,
}

/// The tables of a policy file. One that has the name of a shipped one replaces that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destinations(pub Vec<Destination>);

impl Destinations {
    /// The destination of mail to `domain`, which is folded: one of a table, else the domain.
    #[must_use]
    pub fn of<'a>(&'a self, domain: &'a str) -> &'a str {
        let has = |one: &&Destination| one.domains.iter().any(|pattern| pattern.matches(domain));
        if let Some(own) = self.0.iter().find(has) {
            return &own.name;
        }
        let is_kept = |name: &str| self.0.iter().all(|own| own.name != name);
        let shipped = SHIPPED.iter().find(|(_, domains)| domains.contains(&domain));
        shipped.map(|(name, _)| *name).filter(|name| is_kept(name)).unwrap_or(domain)
    }
}

impl Stored for Destination {
    fn read(row: &mut Fields<'_>) -> Result<Self, What> {
        Ok(Self { name: Stored::read(row)?, domains: Stored::read(row)? })
    }

    #[cfg(feature = "cli")]
    fn write(&self, row: &mut Row) {
        self.name.write(row);
        self.domains.write(row);
    }
}

impl Stored for Destinations {
    fn read(row: &mut Fields<'_>) -> Result<Self, What> {
        Stored::read(row).map(Self)
    }

    #[cfg(feature = "cli")]
    fn write(&self, row: &mut Row) {
        self.0.write(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_of_one_destination() {
        let mut all: Vec<&str> =
            SHIPPED.iter().flat_map(|(_, domains)| *domains).copied().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(SHIPPED.iter().all(|(_, domains)| domains.is_sorted()));
        assert!(SHIPPED.is_sorted());
    }

    #[test]
    fn a_table_replaces_the_shipped_one_of_its_name() {
        let shipped = Destinations::default();
        assert_eq!(shipped.of("googlemail.com"), "google");
        assert_eq!(shipped.of("example.org"), "example.org");
        let pattern = |domain: &str, below| DomainPattern { domain: domain.to_owned(), below };
        let own = Destinations(vec![
            Destination { name: "google".into(), domains: vec![pattern("gmail.com", false)] },
            Destination {
                name: "school".into(),
                domains: vec![pattern("school.example", true), pattern("web.de", false)],
            },
        ]);
        for (domain, destination) in [
            ("gmail.com", "google"),
            ("googlemail.com", "googlemail.com"),
            ("a.school.example", "school"),
            ("school.example", "school.example"),
            ("web.de", "school"),
            ("gmx.net", "gmx"),
        ] {
            assert_eq!(own.of(domain), destination);
        }
    }
}
