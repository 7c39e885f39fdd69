//! The programs of panels in docs/desk.md, as they are there.

use std::process::Command;

use super::desk::Desk;

/// The program of this language in the documentation, with the socket of the desk.
fn documented(desk: &Desk, language: &str) -> String {
    let text = include_str!("../../docs/desk.md");
    let start = format!("\n```{language}\n");
    let (_, rest) = text.split_once(&start).expect(language);
    let (program, _) = rest.split_once("\n```\n").unwrap();
    let socket = "/run/exirate-web/web";
    assert_eq!(program.matches(socket).count(), 1, "{program}");
    program.replace(socket, desk.path("web").to_str().unwrap())
}

#[test]
fn the_documented_programs_show_and_unblock_a_mailbox() {
    for (language, program) in [("php", "php"), ("python", "python3")] {
        let desk = Desk::new("");
        let (_broker, _web) = desk.both();
        let file = desk.path(&format!("panel.{language}"));
        std::fs::write(&file, documented(&desk, language)).unwrap();
        let run = || {
            let mut command = Command::new(program);
            command.arg(&file).arg("alice@example.org").env("EXIRATE_TOKEN", &desk.help);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let shown = "alice@example.org: 2 of 2\nalice@example.org can send again now\n";
        assert_eq!(run(), shown, "{language}");
        assert!(desk.audit_log().contains("web=token:desk unblock rate="));
    }
}
