//! The periods to measure, as arguments.

use super::Period;
use crate::calendar::Zone;
use crate::policy::word::{Every, Word as _};
use crate::spec::typed_period;

/// One or several.
#[derive(Clone, Debug)]
pub struct Periods(
    /// Each.
    pub Vec<Period>,
);

impl Periods {
    /// Reads periods such as `1h,1d`, each as a spec has it, or `daily`, as a policy has it.
    ///
    /// # Errors
    /// What would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let one = |text: &str| match Every::of(text) {
            Some(every) => {
                let calendar = Some((every, Zone::default()));
                Ok(Period { seconds: every.seconds(), text: text.to_owned(), calendar })
            }
            None => {
                let seconds = typed_period(text).map_err(|error| format!("{error}; or daily"))?;
                Ok(Period { seconds, text: text.to_owned(), calendar: None })
            }
        };
        text.split(',').map(one).collect::<Result<_, String>>().map(Self)
    }

    /// Whether there is one of the calendar.
    pub fn have_calendar(&self) -> bool {
        self.0.iter().any(|period| period.calendar.is_some())
    }

    /// The same, whose windows are those of this zone.
    pub fn in_zone(&self, zone: &Zone) -> Self {
        let mut periods = self.clone();
        for (_, known) in periods.0.iter_mut().filter_map(|period| period.calendar.as_mut()) {
            *known = zone.clone();
        }
        periods
    }
}
