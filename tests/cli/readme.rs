//! What README.md and the pages in `docs` show is what there is, and works.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const README: &str = include_str!("../../README.md");
const TRACE: &str = include_str!("../../docs/trace.md");
const RECORDING: &str = include_str!("../../docs/recording.md");
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The README, its neighbours and all pages in `docs`: the directory of each, and its text.
fn pages() -> Vec<(PathBuf, String)> {
    let mut pages = Vec::new();
    for folder in [PathBuf::from(ROOT), Path::new(ROOT).join("docs")] {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                pages.push((folder.clone(), std::fs::read_to_string(path).unwrap()));
            }
        }
    }
    assert!(pages.len() >= 8, "{}", pages.len());
    pages
}

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

/// The commands in all shell blocks of all pages, without comments.
fn commands() -> Vec<String> {
    let blocks: Vec<String> = pages().iter().flat_map(|(_, text)| blocks_of(text, "sh")).collect();
    let lines = blocks.iter().flat_map(|block| block.lines());
    let lines = lines.flat_map(|line| line.split("  #").next().unwrap().split(" | "));
    lines.map(|command| command.trim().to_owned()).collect()
}

/// The lines of a shipped file, without comments and directives.
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
    let mut acl = shipped("acl_check_rcpt.conf");
    for name in ["RATELIMIT_USER", "RATELIMIT_LOGIN"] {
        acl = acl.replace(name, &default_of(name));
    }
    let expected = format!("EXIRATE = /usr/lib/exim4/exirate.so\n\nacl_check_rcpt:\n{acl}");
    assert!(blocks("").contains(&expected), "the README lacks:\n{expected}");
}

#[test]
fn the_acl_works_as_it_is_copied() {
    let acl = blocks("").into_iter().find(|b| b.starts_with("EXIRATE = ")).unwrap();
    // The test's Exim has the library elsewhere.
    let acl = acl.split_once('\n').unwrap().1;
    let exim = kit::Setup::new()
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
fn the_policy_is_decided_as_it_says() {
    let [policy] = &blocks("toml")[..] else { panic!("one policy") };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("policy.toml");
    std::fs::write(&file, policy).unwrap();
    let check = |auth: &str| {
        let mut exirate = Command::new(env!("CARGO_BIN_EXE_exirate"));
        exirate.args(["check", "outbound", "--auth", auth, "--policy"]).arg(&file);
        exirate.args(["--recipient", "bob@example.net", "--json", "--spool"]).arg(dir.path());
        let output = exirate.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let windows = json["windows"].as_array().unwrap().clone();
        windows.iter().map(|one| one["window"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(check("alice@example.org"), ["300/1h", "1000/1d", "100/1h"]);
    assert_eq!(check("news@example.org"), ["100/1h"]);
}

#[test]
fn what_the_lines_for_the_trace_store_record_is_found() {
    for (text, path) in [(RECORDING, None), (TRACE, Some("/usr/lib/exim4/exirate-trace.so"))] {
        let blocks = blocks_of(text, "");
        let acl = blocks.iter().find(|block| block.starts_with("acl_check_data:")).unwrap();
        let acl = acl.replace("  …\n", "");
        // The test's Exim has the library elsewhere.
        let acl = path.map_or(acl.clone(), |path| acl.replace(path, "EXIRATE_TRACE"));
        let exim =
            kit::Setup::new().library().main("acl_smtp_data = acl_check_data").acls(&acl).build();
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
    let page = include_str!("../../docs/exim.md");
    let listed: Vec<&str> =
        page.lines().filter_map(|l| l.strip_prefix("| `exim/")?.split('`').next()).collect();
    for entry in std::fs::read_dir(Path::new(ROOT).join("exim")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            listed.contains(&name.as_str())
                || README.contains(&format!("(`exim/{name}`)"))
                || page.contains(&format!("(`exim/{name}`)")),
            "{name}"
        );
    }
    for name in listed {
        assert!(Path::new(ROOT).join("exim").join(name).exists(), "{name}");
    }
    for (folder, text) in pages() {
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            if file.starts_with("https://") {
                continue;
            }
            let path = folder.join(file);
            if file.ends_with(".png") {
                assert!(path.exists(), "{link}");
                continue;
            }
            let target = match file {
                "" => text.clone(),
                _ => std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{link}: {e}")),
            };
            assert!(heading.is_empty() || headings(&target).any(|h| h == heading), "{link}");
        }
    }
}

#[test]
fn the_index_names_every_page() {
    let index = include_str!("../../docs/README.md");
    for entry in std::fs::read_dir(Path::new(ROOT).join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") && name != "README.md" {
            assert!(index.contains(&format!("]({name})")), "docs/README.md lacks {name}");
        }
    }
    assert!(README.lines().count() < 200, "the README is meant to be short");
}

#[test]
fn the_sessions_it_shows_are_real() {
    // tests/cli/transcripts.rs writes and checks these.
    let mut seen = 0;
    for block in blocks("console") {
        let command = block.lines().next().unwrap().strip_prefix("$ exirate ").unwrap();
        let name = command.split_whitespace().next().unwrap();
        let path = Path::new(ROOT).join(format!("docs/transcripts/{name}.txt"));
        let transcript = std::fs::read_to_string(&path).unwrap();
        assert!(
            transcript.contains(&block),
            "README.md shows another output of `exirate {command}` than {}",
            path.display()
        );
        seen += 1;
    }
    assert!(seen > 0);
}

/// The headings of `text`, in the form that links use.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let titles = text.lines().filter(|line| line.starts_with('#'));
    titles.map(|title| {
        let title = title.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        title.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
    })
}

#[test]
fn the_commands_it_shows_exist() {
    let mut seen = 0;
    let mut helps: HashMap<String, String> = HashMap::new();
    let all = crate::prepared::commands();
    for command in commands() {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words[..] {
            [script, ..] if script.starts_with("scripts/") => {
                let path = Path::new(ROOT).join(script);
                let status = Command::new("test").arg("-e").arg(path).status();
                assert!(status.unwrap().success(), "{script}");
            }
            ["exirate", subcommand, ..] => {
                // A command of a command has its own options.
                let is_command = |below: &&&str| all.contains(&format!("{subcommand} {below}"));
                let below = words.get(2).filter(is_command);
                let key = format!("{subcommand} {}", below.unwrap_or(&""));
                let help = helps.entry(key).or_insert_with(|| {
                    let mut help = Command::new(env!("CARGO_BIN_EXE_exirate"));
                    let output = help.arg(subcommand).args(below).arg("--help").output().unwrap();
                    assert!(output.status.success(), "{command}");
                    String::from_utf8(output.stdout).unwrap()
                });
                for option in words.iter().filter(|w| w.starts_with("--")) {
                    assert!(help.contains(option), "{command}: {option}");
                }
            }
            _ => continue,
        }
        seen += 1;
    }
    assert!(seen >= 20, "only {seen} commands were found");
}
