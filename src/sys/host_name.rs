//! The name of this machine.

use std::sync::OnceLock;

/// The name of this machine, as it was when it was first asked for.
#[must_use]
pub fn host_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name: String = name.trim().chars().filter(char::is_ascii_graphic).take(64).collect();
        if name.is_empty() { "localhost".to_owned() } else { name }
    })
}
