//! Formatting of results.

use std::time::Duration;

/// The median of some measurements.
pub fn middle(mut of: Vec<Duration>) -> Duration {
    of.sort_unstable();
    let n = of.len() / 2;
    if of.len() % 2 == 1 { of[n] } else { (of[n - 1] + of[n]) / 2 }
}

/// The median of some measurements, in microseconds.
pub fn median(of: Vec<Duration>) -> f64 {
    middle(of).as_secs_f64() * 1e6
}

/// The median of some numbers.
pub fn middle_of(mut of: Vec<f64>) -> f64 {
    of.sort_unstable_by(f64::total_cmp);
    let n = of.len() / 2;
    if of.len() % 2 == 1 { of[n] } else { (of[n - 1] + of[n]) / 2.0 }
}

/// A headline, underlined.
pub fn head(text: &str) {
    println!("\n{text}\n{}", "-".repeat(text.chars().count()));
}

/// A table in Markdown, with the first column aligned to the left, and the
/// others to the right.
pub fn print(rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|r| r.get(column)).map(|c| c.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for (n, row) in rows.iter().enumerate() {
        let cells: Vec<String> = widths
            .iter()
            .enumerate()
            .map(|(i, &w)| {
                let cell = row.get(i).map_or("", String::as_str);
                if i == 0 { format!("{cell:<w$}") } else { format!("{cell:>w$}") }
            })
            .collect();
        println!("| {} |", cells.join(" | "));
        if n == 0 {
            let rules: Vec<String> = widths
                .iter()
                .enumerate()
                .map(|(i, &w)| if i == 0 { "-".repeat(w) } else { "-".repeat(w - 1) + ":" })
                .collect();
            println!("| {} |", rules.join(" | "));
        }
    }
}

/// Cells of a row.
pub fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// Microseconds, with the significant digits.
pub fn micros(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0} µs") } else { format!("{value:.2} µs") }
}

/// The ratio of `other` to `one`, with two decimals.
pub fn ratio(other: f64, one: f64) -> String {
    if one > 0.0 { format!("{:.2}", other / one) } else { "-".to_owned() }
}

/// The ratio of `theirs` to `ours`, rounded.
pub fn times(theirs: f64, ours: f64) -> String {
    if ours > 0.0 { format!("{:.0}×", theirs / ours) } else { "-".to_owned() }
}
