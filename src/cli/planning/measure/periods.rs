//! The periods to measure, as arguments.

use crate::cli::shared::keys;
use crate::history::measure::Period;

/// One or several.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Periods(pub(in crate::cli) Vec<Period>);

impl Periods {
    /// Reads periods such as `1h,1d`, each as a spec has it.
    pub(in crate::cli) fn parse(text: &str) -> Result<Self, String> {
        let one = |text: &str| Ok(Period { seconds: keys::period(text)?, text: text.to_owned() });
        text.split(',').map(one).collect::<Result<_, String>>().map(Self)
    }
}
