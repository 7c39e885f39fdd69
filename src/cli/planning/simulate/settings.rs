//! The ACLs that evaluate policies, and how refused clients try again.

use crate::cli::shared::keys;
use crate::event::AclStage;
use crate::history::simulate::Schedule;

/// The stages that a log can show, as arguments name them.
const STAGES: [(&str, AclStage); 7] = [
    ("connect", AclStage::Connect),
    ("auth", AclStage::Auth),
    ("mail", AclStage::Mail),
    ("rcpt", AclStage::Rcpt),
    ("predata", AclStage::Predata),
    ("data", AclStage::Data),
    ("not-smtp", AclStage::NotSmtp),
];
/// The longest wait in seconds: longer than any mail server keeps a message.
const WAIT_MAX: f64 = 4.0 * 7.0 * 86_400.0;
/// The most waits.
const WAITS_MAX: usize = 100;

/// The stages at which policies are evaluated.
#[derive(Clone, Debug)]
pub(super) struct Stages(pub(super) Vec<AclStage>);

impl Stages {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let one = |name: &str| {
            let found = STAGES.iter().find(|(known, _)| *known == name.trim());
            found.map(|(_, stage)| *stage).ok_or_else(|| {
                let names = STAGES.map(|(name, _)| name).join(", ");
                format!("{:?} is not a stage that a log shows: these are {names}", name.trim())
            })
        };
        text.split(',').map(one).collect::<Result<_, String>>().map(Self)
    }
}

/// How other mail servers try again.
#[derive(Clone, Debug)]
pub(super) struct Retry {
    /// As it was given.
    pub(super) text: String,
    pub(super) schedule: Schedule,
}

impl Retry {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let schedule = match text.trim() {
            "exim" => Schedule::default(),
            "never" => Schedule::new(Vec::new()),
            waits => {
                let waits: Result<Vec<f64>, String> =
                    waits.split(',').map(|wait| keys::period(wait.trim())).collect();
                let waits = waits.map_err(|error| {
                    format!("{error}; expected exim, never, or waits such as 5m,15m,1h")
                })?;
                if waits.len() > WAITS_MAX || waits.iter().any(|wait| *wait > WAIT_MAX) {
                    return Err(format!("at most {WAITS_MAX} waits, of 4w each"));
                }
                Schedule::new(waits)
            }
        };
        Ok(Self { text: text.trim().to_owned(), schedule })
    }

    /// What is assumed of other servers, in words.
    pub(super) fn describe(&self) -> String {
        match (self.text.as_str(), self.schedule.waits().len()) {
            ("exim", _) => "after 15 minutes, eight times, and then at growing intervals until \
                            16 hours have passed"
                .to_owned(),
            (_, 0) => "never".to_owned(),
            (waits, _) => format!("after {}", waits.replace(',', ", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_and_waits_are_read_or_explained() {
        assert_eq!(Stages::parse("rcpt, data").unwrap().0, [AclStage::Rcpt, AclStage::Data]);
        let error = Stages::parse("rcpt,helo").unwrap_err();
        assert!(error.contains("\"helo\" is not a stage that a log shows"), "{error}");
        assert_eq!(Retry::parse("5m, 1h").unwrap().schedule.waits(), [300.0, 3600.0]);
        assert_eq!(Retry::parse("never").unwrap().schedule.waits().len(), 0);
        assert_eq!(Retry::parse("exim").unwrap().schedule, Schedule::default());
        assert!(Retry::parse("soon").unwrap_err().contains("expected exim, never, or waits"));
        assert!(Retry::parse("5w").is_err());
        assert!(Retry::parse(&vec!["1s"; 101].join(",")).is_err());
    }
}
