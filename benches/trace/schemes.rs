//! The schemes and settings that are compared.

use exirate::trace::{GramOrder, Settings, WinnowSettings};

/// The measured settings and their names: the default, and `others` or the
/// usual others.
pub(crate) fn winnows(others: &[WinnowSettings]) -> Vec<(String, Settings)> {
    let default = WinnowSettings::default();
    let usual = [
        // About the same space in a random order; `curves` compares more of them.
        WinnowSettings { order: GramOrder::Random, centibits: 107, ..default },
        WinnowSettings { centibits: 150, ..default },
        // The same shortest excerpt, with more elements.
        WinnowSettings { gram: 8, window: 8, centibits: 103, ..default },
        WinnowSettings { gram: 8, window: 8, centibits: 140, ..default },
        WinnowSettings { window: 16, ..default },
        WinnowSettings { bytes_window: 64, ..default },
    ];
    let others = if others.is_empty() { &usual[..] } else { others };
    let all = std::iter::once(&default).chain(others);
    all.map(|settings| (name(*settings), Settings::Winnow(*settings))).collect()
}

fn name(settings: WinnowSettings) -> String {
    let WinnowSettings { gram, window, bytes_gram, bytes_window, centibits, order } = settings;
    let bits = f64::from(centibits) / 100.0;
    let default = if settings == WinnowSettings::default() { ", the default" } else { "" };
    format!(
        "winnow {gram}/{window}, {bytes_gram}/{bytes_window}, {bits:.2} bits, {order:?}{default}"
    )
}
