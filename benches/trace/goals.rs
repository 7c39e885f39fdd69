//! What the trace store is to reach, and what was measured.

use kit::table::{head, print};

/// A goal, and whether it was reached.
struct Goal {
    what: String,
    wanted: String,
    measured: String,
    is_reached: bool,
    /// The larger of measured and wanted by the other.
    factor: f64,
}

/// The goals measured so far.
#[derive(Default)]
pub(crate) struct Goals(Vec<Goal>);

impl Goals {
    /// `measured` should be at least `wanted`.
    pub(crate) fn at_least(&mut self, what: &str, wanted: f64, measured: f64, unit: &str) {
        self.add(what, ("at least", wanted), measured, measured >= wanted, unit);
    }

    /// `measured` should be at most `wanted`.
    pub(crate) fn at_most(&mut self, what: &str, wanted: f64, measured: f64, unit: &str) {
        self.add(what, ("at most", wanted), measured, measured <= wanted, unit);
    }

    fn add(
        &mut self,
        what: &str,
        (bound, wanted): (&str, f64),
        measured: f64,
        is_reached: bool,
        unit: &str,
    ) {
        self.0.push(Goal {
            what: what.to_owned(),
            wanted: format!("{bound} {wanted}{unit}"),
            measured: format!("{}{unit}", significant(measured)),
            is_reached,
            factor: (measured / wanted).max(wanted / measured),
        });
    }

    /// Prints them.
    pub(crate) fn print(&self) {
        if self.0.is_empty() {
            return;
        }
        head("Goals");
        let mut rows = vec![["", "goal", "measured", ""].map(str::to_owned).to_vec()];
        for Goal { what, wanted, measured, is_reached, factor } in &self.0 {
            let reached = match is_reached {
                true => "reached".to_owned(),
                false => format!("missed by a factor of {factor:.4}"),
            };
            rows.push(vec![what.clone(), wanted.clone(), measured.clone(), reached]);
        }
        print(&rows);
    }
}

/// A number with four digits.
fn significant(number: f64) -> String {
    let digits = 3 - number.abs().max(1e-9).log10().floor().clamp(-3.0, 6.0) as i32;
    format!("{number:.0$}", digits.clamp(0, 6) as usize)
}
