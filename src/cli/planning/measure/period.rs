//! The periods to measure.

use crate::cli::shared::keys;

/// A period, as it was written.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Period {
    pub(in crate::cli) seconds: f64,
    pub(in crate::cli) text: String,
}

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
