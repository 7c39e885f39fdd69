//! The sessions that the manual pages show, `docs/transcripts/COMMAND.txt`.
//!
//! Such a file is what a terminal would show: lines that begin with `$ ` are
//! commands, one each, run by a shell on the machine of `prepared.rs`, one
//! after the other; the lines that follow are what they print, on both outputs.
//! An empty line before a command belongs to neither. The clock stands still
//! there, so times, rates and waits are the same each time. Compared are all
//! characters but the fill of filters, percentages with a decimal such as
//! `1.5%`, and sizes in KiB, for what is on disk depends on the file system;
//! and the chances that a message is false, which are measured in its neighbours,
//! and what follows from them.
//!
//! To write the outputs again (and then look at what git says has changed):
//!
//! ```sh
//! WRITE_TRANSCRIPTS=1 cargo test --test cli transcripts
//! ```
//!
//! Blocks of the README, docs/alerts.md and docs/trace.md that are marked `console` are
//! compared with a machine in the same way: one for each page.
//!
//! A new command needs a file there and a line in `src/cli/shell/transcripts.rs`.

use crate::prepared::{Prepared, commands, source};
use crate::{exirate, stdout};

/// Commands that have nothing to show, and `setup`, which changes a whole system:
/// scripts/try-setup runs it.
const WITHOUT: [&str; 3] = ["completions", "man", "setup"];

/// The commands of a transcript.
fn inputs(transcript: &str) -> Vec<&str> {
    transcript.lines().filter_map(|line| line.strip_prefix("$ ")).collect()
}

/// The transcript of a session that has these commands.
fn session(machine: &Prepared, inputs: &[&str]) -> String {
    let parts: Vec<String> =
        inputs.iter().map(|input| format!("$ {input}\n{}", machine.show(input))).collect();
    parts.join("\n")
}

/// The text with each `1.5%` as `#.#%`, each `24 KiB` as `# KiB`, and each `1 in
/// 20 million` as `1 in #`, whatever room it takes.
fn without_fill(text: &str) -> String {
    let text: Vec<String> = text.lines().map(without_chance).collect();
    let mut words: Vec<String> = Vec::new();
    for word in text.join("\n").split(' ') {
        let number = word.strip_suffix('%').filter(|number| number.contains('.'));
        words.push(match number {
            Some(number) => format!("{}%", number.replace(|c: char| c.is_ascii_digit(), "#")),
            None => word.to_owned(),
        });
        if word.starts_with("KiB")
            && let Some(size) = words.iter_mut().nth_back(1)
        {
            *size =
                size.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.').to_owned() + "#";
        }
    }
    words.join(" ")
}

/// A line without its chances.
fn without_chance(line: &str) -> String {
    const UNITS: [&str; 4] = ["thousand", "million", "billion", "trillion"];
    if let Some((before, _)) = line.split_once("expected false results: ") {
        return format!("{before}expected false results: #");
    }
    if let Some((before, _)) = line.split_once(", and with about ") {
        return before.to_owned();
    }
    if let Some((before, after)) = line.split_once("FALSE ") {
        return format!("{before}FALSE {}", after.trim_start());
    }
    let Some((before, after)) = line.split_once("1 in ") else { return line.to_owned() };
    let (_, after) = after.split_once(' ').unwrap_or_default();
    let unit = UNITS.iter().find_map(|unit| after.strip_prefix(unit));
    format!("{before}1 in # {}", unit.unwrap_or(after).trim_start())
}

fn path_of(command: &str) -> String {
    format!("docs/transcripts/{}.txt", command.replace(' ', "-"))
}

#[test]
fn a_session_is_as_the_manual_shows_it() {
    let mut seen = 0;
    for command in commands().iter().filter(|command| !WITHOUT.contains(&&***command)) {
        let shown = source(path_of(command));
        let inputs = inputs(&shown);
        let own = inputs.iter().filter(|input| input.contains(&format!("exirate {command}")));
        assert!(own.count() > 0, "{} does not show exirate {command}", path_of(command));
        let machine = Prepared::with_callers();
        if *command == "usage" {
            machine.count_usage();
        }
        let real = session(&machine, &inputs);
        if std::env::var_os("WRITE_TRANSCRIPTS").is_some() {
            std::fs::write(path_of(command), real).unwrap();
        } else {
            assert!(
                without_fill(&real) == without_fill(&shown),
                "{} shows\n{shown}\nand there is\n{real}",
                path_of(command)
            );
        }
        seen += inputs.len();
    }
    assert!(seen >= 8, "only {seen} commands were run");
}

#[test]
fn a_session_is_as_the_readme_and_the_documentation_show_it() {
    for page in ["README.md", "docs/alerts.md", "docs/trace.md"] {
        let mut text = source(page);
        let blocks: Vec<String> = text
            .split("\n```console\n")
            .skip(1)
            .map(|block| block.split("```").next().unwrap().to_owned())
            .collect();
        assert!(!blocks.is_empty(), "{page}");
        let machine = Prepared::with_callers();
        for shown in blocks {
            let real = session(&machine, &inputs(&shown));
            if std::env::var_os("WRITE_TRANSCRIPTS").is_some() {
                text = text.replace(&shown, &real);
                std::fs::write(page, &text).unwrap();
            } else {
                let same = without_fill(&real) == without_fill(&shown);
                assert!(same, "{page} shows\n{shown}\nand there is\n{real}");
            }
        }
    }
}

#[test]
fn every_transcript_is_in_its_manual_page() {
    for entry in std::fs::read_dir(format!("{}/docs/transcripts", crate::prepared::ROOT)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let command = name.strip_suffix(".txt").unwrap();
        let page = stdout(&exirate().args(["man", command]).output().unwrap());
        let transcript = source(path_of(command));
        // As roff has them.
        let input = inputs(&transcript)[0].replace('-', r"\-").replace('\'', r"\*(Aq");
        assert!(page.contains(&input), "{command}: {input}\n{page}");
    }
}
