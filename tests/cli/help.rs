//! What the program says of itself: help, manual pages, completions.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::prepared::{Prepared, ROOT, commands, source};
use crate::{exirate, run, stderr, stdout};

/// The help of a command.
fn help(command: &str) -> String {
    let output = exirate().args(command.split(' ')).arg("--help").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    stdout(&output)
}

/// The lines of `text` that are commands to type, indented by `indent`.
fn examples<'a>(text: &'a str, indent: &str) -> Vec<&'a str> {
    text.lines()
        .filter_map(|line| line.strip_prefix(indent))
        .filter(|line| line.starts_with("exirate ") || line.contains("| exirate "))
        .collect()
}

/// Whether an example changes the machine of [`Prepared`] at most. `exirate setup` changes a whole
/// system, and `--health` needs a front end: scripts/try-setup and scripts/try-image run them.
fn is_harmless(example: &&str) -> bool {
    !example.starts_with("exirate setup") && !example.contains("--health")
}

/// A machine with policies and habits.
fn in_use() -> Prepared {
    static FIRST: OnceLock<Vec<u8>> = OnceLock::new();
    Prepared::copy_of(FIRST.get_or_init(|| {
        let machine = Prepared::new();
        let setup = "mkdir -p bash-completion/completions zsh/vendor-completions \
                     fish/vendor_completions.d";
        assert!(machine.run(setup).status.success());
        let apply = "exirate policy apply /etc/exirate/policy.toml";
        assert!(machine.run(apply).status.success());
        // An alarm was raised, as exit code 1 says.
        let learn = "exirate habits learn /var/log/exim4/month.log";
        assert_eq!(machine.run(learn).status.code(), Some(1));
        machine.archive()
    }))
}

/// Runs an example on a machine of its own; it must do what it says.
fn try_out(example: &str) {
    let machine = in_use();
    // What would be installed on the real machine.
    let line = example
        .replace("/etc/exim4/exim4.conf", "../exim.conf")
        .replace("/usr/share/", "./")
        .replace("/usr/local/share/", "./")
        .replace("cluster join", "cluster join --agent-user daemon")
        .replace("web token add", "web token add --file web.tokens")
        .replace("web token list", "web token list --file web.tokens")
        .replace("web token remove", "web token remove --file web.tokens")
        // man's sandbox lets the clock's library open no file.
        .replace("| man -l -", "| env -u LD_PRELOAD man -l - >/dev/null");
    if let Some(deny) = example.strip_suffix(" --end").filter(|one| one.contains(" deny ")) {
        assert!(machine.run(deny).status.success());
    }
    if example.contains("--by customer") {
        let customer = "echo '[policy.outbound.customer.acme]\nusers = [\"alice\"]' >> policy.toml";
        assert!(machine.run(customer).status.success());
    }
    if example.contains("exirate usage") {
        machine.count_usage();
    }
    if example.contains("web token remove") {
        let add = "exirate web token add desk --role help --until 90d --file web.tokens";
        assert!(machine.run(add).status.success());
    }
    let output = machine.run(&line);
    let said = stderr(&output);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{example}: {said}");
    let notes = said.lines().all(|line| line.starts_with("exirate: note: "));
    assert!(notes, "{example}: {said}");
    let written = ["> ", "--dir ", "--prometheus ", "held decide"]
        .iter()
        .any(|option| example.contains(option));
    assert!(written || example.contains("man -l") || !output.stdout.is_empty(), "{example}");
}

#[test]
fn every_example_of_every_help_works() {
    let mut tried = 0;
    for command in commands() {
        let help = help(&command);
        assert!(help.contains("\nExamples:\n"), "{help}");
        assert!(!help.contains("\nJSON: "), "{help}");
        let (_, text) = help.split_once("\nOptions:\n").unwrap();
        assert!(text.lines().all(|l| l.chars().count() <= 100), "{help}");
        let page = format!("man exirate-{} has the details", command.replace(' ', "-"));
        assert!(help.contains(&page), "{help}");
        assert!(help.contains("\nExit status: "), "{help}");
        let examples = examples(&help, "    ");
        assert!(!examples.is_empty(), "{help}");
        let harmless = examples.into_iter().filter(is_harmless);
        for example in harmless {
            try_out(example);
            tried += 1;
        }
    }
    assert!(tried >= 15, "only {tried} examples were found");
}

#[test]
fn a_help_begins_with_a_session_and_what_it_prints() {
    let mut seen = 0;
    for command in commands() {
        let help = help(&command);
        let path = format!("docs/transcripts/{}.txt", command.replace(' ', "-"));
        let Ok(transcript) = std::fs::read_to_string(format!("{ROOT}/{path}")) else { continue };
        let (about, rest) = help.split_once("\n\n").unwrap();
        assert!(!about.contains('\n') && rest.starts_with("$ "), "{help}");
        let (session, _) = rest.split_once("\n\nExamples:\n").unwrap();
        // A test runs the transcript, and compares what it prints.
        assert!(transcript.contains(session), "{path} has another session than\n{help}");
        assert!(session.lines().next().unwrap().contains(&format!("exirate {command}")), "{help}");
        seen += 1;
    }
    assert!(seen >= 40, "{seen}");
}

#[test]
fn every_example_of_the_readme_works() {
    let readme = source("README.md");
    let blocks = readme.split("```sh\n").skip(1);
    let shell: String = blocks.map(|block| block.split("```").next().unwrap()).collect();
    let examples = examples(&shell, "");
    assert!(examples.len() >= 2, "{examples:?}");
    examples.into_iter().filter(is_harmless).for_each(try_out);
}

#[test]
fn the_help_of_the_program_names_its_commands_and_exit_codes() {
    let output = exirate().arg("--help").output().unwrap();
    let help = stdout(&output);
    assert!(help.contains("Exit status: 0 success; 1"));
    let groups = help.split("\nOptions:").next().unwrap();
    let long = groups.lines().find(|line| line.chars().count() > 80);
    assert_eq!(long, None, "a terminal of 80 columns breaks it");
    let output = exirate().output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("Usage: exirate"), "{}", stderr(&output));
}

#[test]
fn manual_pages_are_written_and_well_formed() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("pages");
    let output = exirate().args(["man", "--dir"]).arg(&dir).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let mut pages = vec!["exirate.8".to_owned(), "exirate-functions.7".to_owned()];
    pages.extend(
        commands().iter().map(|command| format!("exirate-{}.8", command.replace(' ', "-"))),
    );
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), pages.len());
    for page in pages {
        let formatted = Command::new("groff")
            .args(["-man", "-Tutf8", "-ww", "-P-cbou"])
            .arg(dir.join(&page))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(stderr(&formatted), "", "{page}");
        let text = stdout(&formatted);
        let lint = Command::new("mandoc")
            .args(["-T", "lint", "-W", "error"])
            .arg(dir.join(&page))
            .output()
            .unwrap();
        assert_eq!((stdout(&lint).as_str(), lint.status.code()), ("", Some(0)), "{page}");
        let parts: &[&str] = match page.ends_with(".7") {
            true => &["NAME", "SYNOPSIS", "RATELIMIT_INFO", "RECORDED_OR_NO", "SEE ALSO"],
            false => &["NAME", "SYNOPSIS", "OPTIONS", "EXIT STATUS", "SEE ALSO"],
        };
        for part in parts {
            assert!(text.contains(&format!("\n{part}\n")), "{page} lacks {part}:\n{text}");
        }
        // Each line of a transcript is one of the page.
        let command = page.strip_prefix("exirate-").and_then(|name| name.strip_suffix(".8"));
        let shown = command.map(|command| format!("docs/transcripts/{command}.txt"));
        if let Some(path) = shown.filter(|path| std::path::Path::new(path).exists()) {
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            for line in source(path).lines() {
                assert!(lines.contains(&line.trim()), "{page} lacks {line:?}:\n{text}");
            }
        }
    }
    let synopsis = stdout(&exirate().args(["man", "export"]).output().unwrap());
    assert!(synopsis.contains(r"[\fB\-\-output\fR \fIFILE\fR]"), "{synopsis}");
    assert_eq!(stdout(&exirate().arg("man").output().unwrap()).lines().count(), {
        std::fs::read_to_string(dir.join("exirate.8")).unwrap().lines().count()
    });
    let page = |arguments: &[&str]| {
        let output = exirate().arg("man").args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output)
    };
    let query = std::fs::read_to_string(dir.join("exirate-trace-query.8")).unwrap();
    for name in [&["trace", "query"][..], &["trace-query"], &["exirate-trace-query"]] {
        assert!(page(name) == query, "{name:?}");
    }
    let output = exirate().args(["man", "lst"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no command lst; the commands are"), "{}", stderr(&output));
    let output = exirate().args(["man", "--dir", "/dev/null/x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("/dev/null/x"), "{}", stderr(&output));
}

/// What bash offers at the end of `line`, as a user with the script sees it.
fn offered(machine: &Prepared, line: &str, word: &str) -> Vec<String> {
    let script = format!(
        ". <(exirate completions bash)\nCOMP_LINE='{line}'\nCOMP_POINT=${{#COMP_LINE}}\n\
         _exirate exirate '{word}' x\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
    );
    let output = machine.run(&format!("bash <<'END'\n{script}END"));
    assert_eq!(stderr(&output), "", "{line}");
    stdout(&output).lines().map(str::to_owned).collect()
}

#[test]
fn completions_offer_commands_keys_modes_and_periods() {
    let machine = Prepared::new();
    for key in ["alice$(touch hacked)", "alice;x", "alice x", "alice*"] {
        let check = format!("exirate check --count '9 / 1h / strict' --key '{key}' >out");
        assert_eq!(stderr(&machine.run(&check)), "");
    }
    let spool = machine.spool().display().to_string();
    for (line, word, expected) in [
        ("exirate sh", "sh", &["show", "shadow"][..]),
        ("exirate list --so", "--so", &["--sort"]),
        ("exirate show al", "al", &["alice", "alice@example.org"]),
        // bash takes @ and : for the ends of words.
        ("exirate show alice@ex", "ex", &["example.org"]),
        ("exirate unblock 2001:", "", &["db8::1"]),
        ("exirate list --mode per_r", "per_r", &["per_rcpt"]),
        ("exirate list --period 1", "1", &["10m", "1d", "1h"]),
    ] {
        assert_eq!(offered(&machine, line, word), expected, "{line}");
    }
    // By the names under which a policy counts: with the domain that is added to the login.
    let counted = r#"printf 'version = 1\n[identity]\nqualify = "q.test"\n[policy.a]\ndefault.recipients = "5/1h"\n' >p.toml &&
        exirate policy apply p.toml >out &&
        sed 's/alice@example.org/zoe/g' /var/log/exim4/month.log >log && exirate habits learn log >out"#;
    assert_eq!(stderr(&machine.run(counted)), "");
    for (line, word, expected) in [
        ("exirate show zoe", "zoe", "zoe@q.test"),
        ("exirate deny zoe@", "", "q.test"),
        ("exirate deny auth:zo", "zo", "zoe@q.test"),
    ] {
        assert_eq!(offered(&machine, line, word), [expected], "{line}");
    }
    let empty = tempfile::tempdir().unwrap();
    let line = format!("exirate show --spool {} al", empty.path().display());
    assert_eq!(offered(&machine, &line, "al"), [""]);
    let line = format!("exirate show --spool {spool} bob");
    assert_eq!(offered(&machine, &line, "bob"), ["bob@example.net"]);
    for (shell, check) in [("zsh", "zsh -n"), ("fish", "fish --no-execute")] {
        let output = machine.run(&format!("exirate completions {shell} > x && {check} x"));
        assert!(output.status.success(), "{shell}: {}", stderr(&output));
        let ask =
            format!("EXIRATE_COMPLETE={shell} _CLAP_COMPLETE_INDEX=2 exirate -- exirate show al");
        let output = stdout(&machine.run(&ask));
        assert!(output.contains("alice@example.org"), "{shell}: {output}");
        assert!(!output.contains("touch"), "{shell}: {output}");
    }
    for shell in ["elvish", "powershell"] {
        let output = exirate().args(["completions", shell]).output().unwrap();
        assert!(stdout(&output).contains("exirate"), "{shell}");
    }
    let output = run(empty.path(), &["completions"]);
    assert_eq!(output.status.code(), Some(2));
}
