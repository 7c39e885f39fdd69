//! What the README shows is what there is, and what docs/trace.md shows.

#![cfg(feature = "cli")]
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::path::Path;
use std::process::Command;

const README: &str = include_str!("../README.md");
const TRACE: &str = include_str!("../docs/trace.md");
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The contents of the fenced blocks of `text` that are marked with `language`.
fn blocks_of(text: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(marked) = line.strip_prefix("```") {
            let block: Vec<&str> = lines.by_ref().take_while(|l| *l != "```").collect();
            if marked == language {
                blocks.push(block.join("\n"));
            }
        }
    }
    blocks
}

/// Those of the README.
fn blocks(language: &str) -> Vec<String> {
    blocks_of(README, language)
}

/// The lines of all shell blocks, without comments.
fn commands() -> Vec<String> {
    let blocks = [blocks("sh"), blocks_of(TRACE, "sh")].concat().join("\n");
    blocks.lines().map(|l| l.split("  #").next().unwrap().trim().to_owned()).collect()
}

/// The lines of a shipped file that are no comments.
fn shipped(name: &str) -> String {
    let text = std::fs::read_to_string(Path::new(ROOT).join("exim").join(name)).unwrap();
    let lines = text.lines().filter(|l| !l.is_empty() && !l.starts_with(['#', '.']));
    lines.collect::<Vec<_>>().join("\n")
}

/// What `exirate.conf` defines `name` as.
fn default_of(name: &str) -> String {
    let conf = shipped("exirate.conf");
    let start = format!("{name} = ");
    conf.lines().find_map(|l| l.strip_prefix(&start)).unwrap().to_owned()
}

#[test]
fn the_acl_is_the_shipped_one() {
    let acl =
        shipped("acl_check_rcpt.conf").replace("RATELIMIT_USER", &default_of("RATELIMIT_USER"));
    let expected = format!("EXIRATE = /usr/lib/exim4/exirate.so\n\nacl_check_rcpt:\n{acl}");
    assert!(blocks("").contains(&expected), "the README lacks:\n{expected}");
}

#[test]
fn the_acl_works_as_it_is_copied() {
    let acl = blocks("").into_iter().find(|b| b.starts_with("EXIRATE = ")).unwrap();
    // The test's Exim has the library elsewhere.
    let acl = acl.split_once('\n').unwrap().1;
    let exim = common::Setup::new()
        .library()
        .auth()
        .main("acl_smtp_rcpt = acl_check_rcpt")
        .acls(&format!("{acl}\n  accept message = rate $sender_rate"))
        .build();
    let (mut client, _) = exim.pipe(&["-bs"]);
    assert_eq!(client.expect().code, 220);
    client.command("EHLO client.test");
    assert_eq!(client.command("AUTH PLAIN AGFsaWNlAGdvb2Q=").code, 235); // alice, good
    client.command("MAIL FROM:<alice@client.test>");
    let replies: Vec<String> =
        (0..102).map(|n| client.command(format!("RCPT TO:<u{n}@private.test>")).text).collect();
    assert_eq!(replies[0], "250 rate 1.0");
    assert!(replies[98].starts_with("250 rate "), "{}", replies[98]);
    assert!(replies[101].starts_with("451 Sender rate 10"), "{}", replies[101]);
    assert!(replies[101].contains(" / 1h is over 100; try again in "), "{}", replies[101]);
}

#[test]
fn what_the_lines_for_the_trace_store_record_is_found() {
    for (text, path) in [(README, None), (TRACE, Some("/usr/lib/exim4/exirate.so"))] {
        let blocks = blocks_of(text, "");
        let acl = blocks.iter().find(|block| block.starts_with("acl_check_data:")).unwrap();
        let acl = acl.replace("  …\n", "");
        // The test's Exim has the library elsewhere.
        let acl = path.map_or(acl.clone(), |path| acl.replace(path, "EXIRATE"));
        let exim = common::Setup::new()
            .library()
            .main("acl_smtp_data = acl_check_data")
            .acls(&acl)
            .build();
        let (mut client, _) = exim.pipe(&["-bs"]);
        assert_eq!(client.expect().code, 220);
        client.command("EHLO client.test");
        client.command("MAIL FROM:<alice@client.test>");
        assert_eq!(client.command("RCPT TO:<bob@private.test>").code, 250);
        assert_eq!(client.command("DATA").code, 354);
        client.send_line("Subject: news\r\n\r\nThe margin of the northern branch");
        client.send_line("fell to four percent in the third quarter.");
        assert_eq!(client.command(".").code, 250);
        let ask = |text: &str| {
            let mut exirate = Command::new(env!("CARGO_BIN_EXE_exirate"));
            exirate.args(["trace", "query", "--text", text, "--spool"]).arg(exim.spool());
            exirate.output().unwrap()
        };
        let found = ask("margin of the northern branch fell to four percent in the third");
        let shown = String::from_utf8(found.stdout).unwrap();
        assert_eq!(found.status.code(), Some(0), "{shown}");
        assert!(shown.contains("alice@client.test  bob@private.test"), "{shown}");
        let other = ask("nobody has ever sent a text like this one through any server here");
        assert_eq!(other.status.code(), Some(1));
    }
}

#[test]
fn the_files_it_names_are_there() {
    let listed: Vec<&str> =
        README.lines().filter_map(|l| l.strip_prefix("| `exim/")?.split('`').next()).collect();
    for entry in std::fs::read_dir(Path::new(ROOT).join("exim")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            listed.contains(&name.as_str()) || README.contains(&format!("(`exim/{name}`)")),
            "{name}"
        );
    }
    for name in listed {
        assert!(Path::new(ROOT).join("exim").join(name).exists(), "{name}");
    }
    let docs = Path::new(ROOT).join("docs");
    for (text, folder) in [(README, Path::new(ROOT)), (TRACE, docs.as_path())] {
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            let there = match link.strip_prefix('#') {
                Some(heading) => headings(text).any(|found| found == heading),
                None => link.starts_with("https://") || folder.join(link).exists(),
            };
            assert!(there, "{link}");
        }
    }
}

/// The headings of `text`, as links to them are written.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let titles = text.lines().filter(|line| line.starts_with('#'));
    titles.map(|title| {
        let title = title.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        title.chars().filter(|c| c.is_alphanumeric() || *c == '-').collect()
    })
}

#[test]
fn the_commands_it_shows_exist() {
    let mut seen = 0;
    for command in commands() {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words[..] {
            [script, ..] if script.starts_with("scripts/") => {
                let status =
                    Command::new("test").arg("-x").arg(Path::new(ROOT).join(script)).status();
                assert!(status.unwrap().success(), "{script}");
            }
            ["exirate", subcommand, ..] => {
                let mut help = Command::new(env!("CARGO_BIN_EXE_exirate"));
                // A command of a command has its own options.
                let below = (subcommand == "trace").then(|| words.get(2)).flatten();
                let output = help.arg(subcommand).args(below).arg("--help").output().unwrap();
                assert!(output.status.success(), "{command}");
                let help = String::from_utf8(output.stdout).unwrap();
                for option in words.iter().filter(|w| w.starts_with("--")) {
                    assert!(help.contains(option), "{command}: {option}");
                }
            }
            _ => continue,
        }
        seen += 1;
    }
    assert!(seen >= 4, "only {seen} commands were found in the README");
}
