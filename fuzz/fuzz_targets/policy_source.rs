//! Any text as a policy file: no panic, every error has a place in the text, and what is
//! accepted is compiled and read back as it was.
//!
//! What follows the first 0 byte is the text of each file that the policy file names.
#![no_main]

use std::path::Path;

use exirate::policy::changes::settings;
use exirate::policy::image::{Image, build_with};
use exirate::policy::lint::lint;
use exirate::policy::source::{Compiled, compile};
use exirate::toml_file::diagnostic::place;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(data) = std::str::from_utf8(data) else { return };
    let (text, other) = data.split_once('\0').unwrap_or((data, ""));
    let load = |_: &Path| Ok(other.to_owned());
    let mut compiled = compile(Path::new("policy.toml"), text, &load);
    let Compiled { policies, diagnostics } = &compiled;
    assert_eq!(policies.is_none(), diagnostics.has_errors(), "{diagnostics:?}");
    for one in diagnostics.clone().sorted() {
        let file = usize::from(one.at.file);
        assert!(file < diagnostics.files.len(), "{one:?}");
        let lines = if file == 0 { text } else { other }.split('\n').count();
        assert!((1..=lines).contains(&(one.at.line as usize)), "{one:?}");
        assert!(one.at.column > 0 && !one.message.is_empty(), "{one:?}");
        assert!(place(&diagnostics.files, one.at).contains(':'), "{one:?}");
    }
    let Some(policies) = compiled.policies else { return };
    lint(&policies, 0, &mut compiled.diagnostics);
    assert!(!compiled.diagnostics.has_errors(), "lint found an error");
    let image = Image::from_bytes(build_with(&policies, [7; 16])).unwrap();
    assert_eq!(settings(&image.policies().unwrap()), settings(&policies));
});
