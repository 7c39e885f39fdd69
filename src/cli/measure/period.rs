//! The periods to measure.

use crate::cli::keys;

/// A period, as it was written.
#[derive(Clone, Debug)]
pub(super) struct Period {
    pub(super) seconds: f64,
    pub(super) text: String,
}

/// One or several.
#[derive(Clone, Debug)]
pub(super) struct Periods(pub(super) Vec<Period>);

impl Periods {
    /// Reads periods such as `1h,1d`, each as a spec has it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let one = |text: &str| Ok(Period { seconds: keys::period(text)?, text: text.to_owned() });
        text.split(',').map(one).collect::<Result<_, String>>().map(Self)
    }
}
