//! Configurations as nobody writes them, read by the Exim of this machine and by ours: each line
//! that `exim -bP config` prints has a place in the files, and each of theirs is printed; the options that name ACLs, and the ACLs that there are.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use kit::exim::PROGRAM;
use kit::random::Random;

use super::*;
use crate::mta::exim::Acls;

const OPTIONS: [&str; 4] = ["acl_smtp_connect", "acl_smtp_data", "acl_smtp_mail", "acl_smtp_rcpt"];
const ACLS: [&str; 4] = ["check", "check_rcpt", "c2", "Upper"];

/// A configuration in the making.
struct Writer {
    random: Random,
    macros: Vec<String>,
    files: Vec<(String, String)>,
}

impl Writer {
    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.random.below(of.len())]
    }

    /// A word, or a macro.
    fn word(&mut self) -> String {
        if !self.macros.is_empty() && self.random.chance(40) {
            let at = self.random.below(self.macros.len());
            return self.macros[at].clone();
        }
        self.one(&["x", "a b", "$domain", "# no", "10.0.0.1 : *", "\\", "\"q\"", "é", "a\\\\b"])
            .to_owned()
    }

    fn macro_line(&mut self) -> String {
        let again = !self.macros.is_empty() && self.random.chance(20);
        let (name, sign) = if again {
            let at = self.random.below(self.macros.len());
            (self.macros[at].clone(), "==")
        } else {
            let name = format!("{}{}_", self.one(&["M", "NA", "Opt_M"]), self.macros.len());
            self.macros.push(name.clone());
            (name, "=")
        };
        let value = match self.random.below(6) {
            0 => String::new(),
            1 => "#".to_owned(),
            2 => format!("{} {}", self.word(), self.word()),
            _ => self.word(),
        };
        format!("{name}{}{sign}{}{value}", self.one(&["", " ", "\t"]), self.one(&["", " ", " \t"]))
    }

    fn value(&mut self) -> String {
        let acl = self.one(&ACLS).to_owned();
        match self.random.below(8) {
            0 => format!("\"{acl}\""),
            1 => format!("\"{}\\{}{}\"", &acl[..1], &acl[1..2].replace('t', "T"), &acl[2..]),
            2 => format!("${{if eq{{a}}{{b}}{{{acl}}}{{c2}}}}"),
            3 => self.word(),
            4 => format!("accept hosts = {}", self.word()),
            _ => acl,
        }
    }

    /// The lines of the main section.
    fn main(&mut self) -> Vec<String> {
        let mut options: Vec<&str> = OPTIONS.to_vec();
        let mut lines = Vec::new();
        for _ in 0..self.random.within(1, 8) {
            let line = match self.random.below(6) {
                0 | 1 => self.macro_line(),
                2 => format!("hostlist h{} = {}", lines.len(), self.word()),
                _ if options.is_empty() => continue,
                _ => {
                    let at = self.random.below(options.len());
                    let name = options.swap_remove(at);
                    let hide = self.one(&["", "", "hide ", "hide\t", "hide  "]);
                    let sign = self.one(&["=", " = ", "\t=\t", " ="]);
                    format!("{hide}{name}{sign}{}", self.value())
                }
            };
            lines.push(line);
        }
        lines
    }

    /// Those of the section of ACLs.
    fn acls(&mut self) -> Vec<String> {
        let begin =
            self.one(&["begin acl", "Begin ACL", "BEGIN  acl", "begin \tAcl", "begin acls"]);
        let mut lines = vec![begin.to_owned()];
        for name in ACLS {
            if self.random.chance(70) {
                let blank = self.one(&["", " ", "\t"]);
                let rest = self.one(&["", "", " accept", "  # x"]);
                lines.push(format!("{name}{blank}:{rest}"));
                let count = self.random.below(4);
                for n in 0..count {
                    let line = match self.random.below(if n == 0 { 4 } else { 6 }) {
                        0 => format!("warn condition = {}", self.word()),
                        1 => format!("accept acl = {}", self.one(&ACLS)),
                        2 => format!("warn hosts = {}", self.word()),
                        3 => "deny".to_owned(),
                        4 => self.macro_line(),
                        _ => format!("set acl_c_x = {}", self.word()),
                    };
                    lines.push(line);
                }
            }
        }
        if self.random.chance(50) {
            lines.push(self.one(&["begin routers", "begin Router", "BEGIN transports"]).to_owned());
        }
        lines
    }

    /// Logical lines, as lines of files.
    fn written(&mut self, lines: Vec<String>) -> Vec<String> {
        let mut out = Vec::new();
        for line in lines {
            let wrapped = self.random.chance(15);
            if wrapped {
                let macro_name = self.word();
                let test = match self.random.below(4) {
                    0 => ".ifdef _HAVE_TLS".to_owned(),
                    1 => ".ifndef NONE".to_owned(),
                    2 => format!(".ifdef {macro_name}"),
                    _ => format!("  .ifdef NONE\n  no such\n.elifdef {macro_name}"),
                };
                out.extend(test.lines().map(str::to_owned));
            }
            let mut rest = line.as_str();
            while rest.len() > 3 && self.random.chance(25) {
                let mut at = self.random.within(1, rest.len() - 1);
                while !rest.is_char_boundary(at) {
                    at += 1;
                }
                let (head, tail) = rest.split_at(at);
                out.push(format!("{head}\\{}", self.one(&["", " ", "\t", "  \t"])));
                match self.random.below(8) {
                    0 => out.push("  # a comment \\".to_owned()),
                    1 => out.extend([".ifdef NONE", "no", ".endif"].map(str::to_owned)),
                    2 => out.push("\\".to_owned()),
                    3 => out.push(String::new()),
                    _ => {}
                }
                out.push(format!("{}{}", self.one(&["", " ", "\t"]), ""));
                let last = out.len() - 1;
                if out[last].trim().is_empty() {
                    out.pop();
                }
                rest = tail;
            }
            out.push(format!("{}{rest}{}", self.one(&["", "  "]), self.one(&["", " ", "\r"])));
            if wrapped {
                if self.random.chance(40) {
                    out.push(".else".to_owned());
                    out.push(self.one(&["", "# x", "hostlist other = x"]).to_owned());
                }
                out.push(self.one(&[".endif", " .endif", ".endif # x"]).to_owned());
            }
            if self.random.chance(10) {
                out.push(self.one(&["", "# x", "  # y \\"]).to_owned());
            }
        }
        out
    }

    /// Moves lines to files of their own; files are in `folder`.
    fn spread(&mut self, mut lines: Vec<String>, folder: &Path, depth: u32) -> String {
        while depth < 3 && !lines.is_empty() && self.random.chance(40) {
            let from = self.random.below(lines.len());
            let to = self.random.within(from, lines.len() - 1);
            let moved: Vec<String> = lines.drain(from..=to).collect();
            let name = format!("{}f{}", self.one(&["", "sub/"]), self.files.len());
            self.files.push((name.clone(), String::new()));
            let index = self.files.len() - 1;
            let mut text = self.spread(moved, folder, depth + 1);
            if self.random.chance(20) {
                text.truncate(text.trim_end_matches('\n').len());
            }
            self.files[index].1 = text;
            let path = format!("{}/{name}", folder.display());
            let directive = self.one(&[".include ", ".include_if_exists ", "  .include\t"]);
            let line = if self.random.chance(20) {
                format!("{directive}\"{path}\"")
            } else {
                format!("{directive}{path} ")
            };
            lines.insert(from, line);
        }
        if self.random.chance(10) {
            lines.push(format!(".include_if_exists {}/none", folder.display()));
        }
        lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

fn exim(config: &Path, arguments: &[&str]) -> (bool, String) {
    let output =
        Command::new(PROGRAM).arg("-C").arg(config).args(arguments).current_dir("/").output();
    let output = output.unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// As Exim prints a value.
fn shown(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'\n' => "\\n".to_owned(),
        b'\r' => "\\r".to_owned(),
        b'\t' => "\\t".to_owned(),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\{byte:03o}"),
    };
    text.bytes().map(byte).collect()
}

#[test]
fn exim_and_we_read_the_same() {
    let rounds = std::env::var("ROUNDS").map_or(150, |rounds| rounds.parse().unwrap());
    let (_, own) = exim(Path::new("/dev/null"), &["-bP", "macros"]);
    let own: Vec<(String, String)> = own
        .lines()
        .filter(|line| line.starts_with('_'))
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let (mut read, mut differ) = (0, Vec::new());
    for seed in 1..=rounds {
        let folder = tempfile::tempdir().unwrap();
        let mut writer =
            Writer { random: Random::new(seed), macros: Vec::new(), files: Vec::new() };
        let mut lines = writer.main();
        lines.extend(writer.acls());
        let mut lines = writer.written(lines);
        // At the end of a file within a continued line, Exim reads what it has skipped.
        lines.push("begin retry".to_owned());
        let text = writer.spread(lines, folder.path(), 0);
        fs::create_dir(folder.path().join("sub")).unwrap();
        for (name, text) in &writer.files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let config = folder.path().join("conf");
        fs::write(&config, &text).unwrap();
        let (valid, printed) = exim(&config, &["-bP", "config"]);
        if !valid {
            continue;
        }
        read += 1;
        let all = || {
            let files: Vec<_> = writer.files.iter().map(|(n, t)| format!("== {n}\n{t}")).collect();
            format!("seed {seed}\n{text}{}\n== Exim\n{printed}", files.concat())
        };
        let source = Source::read(&config, own.clone(), Some(&printed)).unwrap();
        let unasked = Source::read(&config, own.clone(), None).unwrap();
        let places = |source: &Source| -> Vec<_> {
            source.texts.iter().map(|line| line.position.clone()).collect()
        };
        if source.unplaced || places(&source) != places(&unasked) {
            differ.push(format!("{}\n{:#?}", all(), unasked.texts));
            continue;
        }
        let (_, values) = exim(&config, &[&["-bP"][..], &OPTIONS].concat());
        for (name, value) in values.lines().filter_map(|line| line.split_once(" = ")) {
            let ours = source.main_options().find(|(known, ..)| *known == name);
            let ours = ours.map_or_else(String::new, |(_, value, _)| shown(&value));
            if ours != value {
                differ.push(format!("{name} is {ours:?}, not {value:?}: {}", all()));
            }
        }
        let acls = Acls::of(&source);
        let ours: BTreeSet<&str> = acls.defined.keys().map(|name| &**name).collect();
        let calls = ACLS.map(|name| format!("${{acl{{{name}}}}}"));
        let mut command = Command::new(PROGRAM);
        command.args(["-d-all+acl", "-C"]).arg(&config).arg("-be").args(calls).current_dir("/");
        let debug = String::from_utf8_lossy(&command.output().unwrap().stderr).into_owned();
        let is_known = |name: &&str| debug.contains(&format!("ACL \"{name}\""));
        let theirs: BTreeSet<&str> = ACLS.into_iter().filter(is_known).collect();
        if ours != theirs {
            differ.push(format!("{ours:?} are {theirs:?}: {}", all()));
        }
    }
    assert!(differ.is_empty(), "{} of {read}:\n{}", differ.len(), differ.join("\n----\n"));
    assert!(read * 3 > rounds, "Exim reads only {read} of {rounds}");
}
