//! What is missing in Debian's configuration of Exim.
//!
//! One switch has exirate's own ACLs used, which ask the policies and then call Debian's. Where
//! an option names an ACL of the administrator's, the lines are inserted in that, before
//! everything else.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::candidate::Candidate;
use super::front_end::{FrontEnd, SOCKET};
use super::stages::{STAGES, Stage, missing};
use crate::mta::exim::debian::Debian;
use crate::mta::exim::{Exim, Rules};
use crate::policy::source::{FILE, read};
use crate::setup::files::{line_at, lines_of};
use crate::setup::plan::Plan;
use crate::setup::{BEGIN, END, SetupError};
use crate::sys::child;

/// The switch.
const SWITCH: &str = "RATELIMIT_POLICIES";
/// The files of the split configuration that setup creates: the switch comes before everything
/// else, the rest after the administrator's macros and before the defaults of Debian's. With the
/// package `exirate-exim`, its own files are the rest.
const SPLIT_SWITCH: &str = "conf.d/main/000_exirate";
const SPLIT_MACROS: &str = "conf.d/main/01_zzz_exirate_setup";
const SPLIT_ACLS: &str = "conf.d/acl/25_exirate_setup";

/// Of mail that is sent later: the section, the file of the split configuration, and the one to be
/// included.
pub(super) const ROUTERS: [(&str, &str, &str); 2] = [
    ("routers", "conf.d/router/050_exirate_setup", "router_later"),
    ("retry", "conf.d/retry/10_exirate_setup", "retry_later"),
];

/// Whether a policy is evaluated at delivery, and no router asks.
pub(super) fn needs_routers(rules: &Rules) -> bool {
    let written = || read(Path::new(FILE)).ok().and_then(|compiled| compiled.policies);
    !rules.ask_at_delivery()
        && written().is_some_and(|policies| policies.at_delivery().next().is_some())
}

/// The planner.
pub(super) struct Planner<'a> {
    pub(super) exim: &'a Exim,
    pub(super) debian: &'a Debian,
    pub(super) front_end: &'a FrontEnd,
}

impl Planner<'_> {
    /// Adds what is missing to the plan; `generated` is the file that Exim reads.
    pub(super) fn add(&self, plan: &mut Plan, generated: &Path) -> Result<(), SetupError> {
        let now = self.candidate(plan)?;
        plan.outdated = match crate::setup::files::read(generated)? {
            Some(text) => !now.is_same(&text)?,
            None => true,
        };
        let rules = now.rules(self.exim)?;
        if needs_routers(&rules) {
            self.routers(plan)?;
        }
        if missing(&rules).is_empty() {
            return Ok(());
        }
        self.switch(plan, &rules)?;
        let rules = self.candidate(plan)?.rules(self.exim)?;
        let mut lines = Vec::new();
        for stage in missing(&rules) {
            self.own_acl(plan, &rules, stage, &mut lines)?;
        }
        if lines.is_empty() {
            for stage in missing(&self.candidate(plan)?.rules(self.exim)?) {
                lines.push(self.by_hand(stage, "the ACL that this option names"));
            }
        }
        if lines.is_empty() {
            return Ok(());
        }
        Err(SetupError::Unfit(format!(
            "setup cannot add all lines safely; add these, and run it again:\n  {}\nnothing was \
             changed",
            lines.join("\n  ")
        )))
    }

    /// The configuration with the plan, which Exim accepts.
    fn candidate(&self, plan: &Plan) -> Result<Candidate, SetupError> {
        let candidate = Candidate::of(self.debian, &plan.contents())?;
        candidate.check(self.exim)?;
        Ok(candidate)
    }

    /// Adds the switch, and what it needs.
    fn switch(&self, plan: &mut Plan, rules: &Rules) -> Result<(), SetupError> {
        let mut lines = String::new();
        let mut define = |name: &str, value: &str| {
            if rules.source.macro_named(name).is_none() {
                lines += &format!("{name} = {value}\n");
            }
        };
        for stage in STAGES {
            if let Some(own) = stage.own.filter(|_| stage.is_own(rules)) {
                define(own, "yes");
            }
        }
        define(SWITCH, "yes");
        if self.front_end.socket {
            define("RATELIMIT_SOCKET", SOCKET);
        }
        let reads = |name: &str| rules.source.files.contains(&self.front_end.file(name));
        let (has_macros, has_acls) = (reads("exirate"), reads("acls"));
        if self.debian.split {
            self.add_text(plan, &self.debian.etc.join(SPLIT_SWITCH), &lines)?;
            if !has_macros {
                let macros = self.debian.etc.join(SPLIT_MACROS);
                self.add_text(plan, &macros, &self.front_end.include("exirate"))?;
            }
            if !has_acls {
                let acls = self.debian.etc.join(SPLIT_ACLS);
                self.add_text(plan, &acls, &self.front_end.include("acls"))?;
            }
            return Ok(());
        }
        if !has_acls {
            self.below_begin(plan, "acl", "acls")?;
        }
        let macros = self.debian.local_macros();
        if has_macros {
            // The switch has to be above the line that is there.
            let at = self.line_of(plan, &macros, "exirate.conf")?;
            plan.insert(&macros, at, block(&lines));
            return Ok(());
        }
        self.add_text(plan, &macros, &(lines + &self.front_end.include("exirate")))
    }

    /// Adds these lines at the end of a file, or a file with them.
    fn add_text(&self, plan: &mut Plan, file: &Path, lines: &str) -> Result<(), SetupError> {
        if lines.is_empty() {
            return Ok(());
        }
        match plan.read(file)? {
            None => {
                let head = "# Written by `exirate setup`: Exim asks the policies of exirate.\n# \
                            `exirate setup --undo` removes it.\n";
                plan.create(file, format!("{head}{lines}"), 0o644);
            }
            Some(_) => plan.append(file, block(lines)),
        }
        Ok(())
    }

    /// Adds the routers for mail that is sent later, before all others, and their retry rule.
    fn routers(&self, plan: &mut Plan) -> Result<(), SetupError> {
        for (section, split, file) in ROUTERS {
            match self.debian.split {
                true => self.add_text(
                    plan,
                    &self.debian.etc.join(split),
                    &self.front_end.include(file),
                )?,
                false => self.below_begin(plan, section, file)?,
            }
        }
        Ok(())
    }

    /// Adds the line that includes a file at the start of a section.
    fn below_begin(&self, plan: &mut Plan, section: &str, file: &str) -> Result<(), SetupError> {
        let template = self.debian.template();
        let text = plan.read(&template)?.unwrap_or_default();
        let at = after_lines(text, |line| {
            let words: Vec<String> = line.split_whitespace().map(str::to_ascii_lowercase).collect();
            words == ["begin", section]
        });
        let [at] = at[..] else {
            return Err(SetupError::Unfit(format!(
                "{} has {} lines `begin {section}`, and setup needs one",
                template.display(),
                at.len()
            )));
        };
        plan.insert(&template, at, self.front_end.include(file));
        Ok(())
    }

    /// Where the line begins that has `word` in it.
    fn line_of(&self, plan: &mut Plan, file: &Path, word: &str) -> Result<usize, SetupError> {
        let text = plan.read(file)?.unwrap_or_default();
        let has_word = |line: &[u8]| {
            let line = String::from_utf8_lossy(line);
            line.contains(word) && !line.trim_start().starts_with('#')
        };
        line_at(text, has_word).ok_or_else(|| {
            SetupError::Unfit(format!(
                "Exim reads {word}, but not by a line of {}: write `{SWITCH} = yes` above that \
                 line",
                file.display()
            ))
        })
    }

    /// Adds the lines to the administrator's own ACL at a stage, or says where they go.
    fn own_acl(
        &self,
        plan: &mut Plan,
        rules: &Rules,
        stage: Stage,
        lines: &mut Vec<String>,
    ) -> Result<(), SetupError> {
        let acls = stage.acls(rules);
        if acls.is_empty() {
            lines.push(self.by_hand(stage, "an ACL with a name, as the value of this option"));
        }
        let text = block(&format!("  {}", self.front_end.include(stage.file)));
        for acl in acls {
            let places = self.labels(plan, rules, &acl)?;
            let is_safe = !places.is_empty()
                && !places.iter().any(|(file, _)| self.debian.split && is_packaged(file));
            if !is_safe {
                lines.push(self.by_hand(stage, &format!("the line `{acl}:`")));
                continue;
            }
            for (file, at) in places {
                if !plan.insertions(&file).contains(&(at, &*text)) {
                    plan.insert(&file, at, text.clone());
                }
            }
        }
        Ok(())
    }

    /// The places below the label of an ACL.
    fn labels(
        &self,
        plan: &mut Plan,
        rules: &Rules,
        acl: &str,
    ) -> Result<Vec<(PathBuf, usize)>, SetupError> {
        let mut files = self.debian.sources();
        files.extend(rules.source.files.iter().skip(1).cloned());
        let mut places = Vec::new();
        for file in files {
            let text = plan.read(&file)?.unwrap_or_default();
            let is_label = |line: &str| {
                let name = line.trim().strip_suffix(':').map(str::trim);
                name.is_some_and(|name| name.trim_matches('"') == acl)
            };
            places.extend(after_lines(text, is_label).into_iter().map(|at| (file.clone(), at)));
        }
        Ok(places)
    }

    fn by_hand(&self, stage: Stage, below: &str) -> String {
        let include = self.front_end.include(stage.file);
        format!("{} ({}): below {below}", include.trim_end(), stage.option)
    }
}

/// Lines between markers.
fn block(lines: &str) -> String {
    format!("{BEGIN}\n{lines}{END}\n")
}

/// The places behind the lines that `is_wanted`.
fn after_lines(text: &[u8], is_wanted: impl Fn(&str) -> bool) -> Vec<usize> {
    let whole = lines_of(text).filter(|(_, line)| line.ends_with(b"\n"));
    let wanted = whole.filter(|(_, line)| is_wanted(&String::from_utf8_lossy(line)));
    wanted.map(|(start, line)| start + line.len()).collect()
}

/// Whether a package of Debian's has put the file there.
fn is_packaged(file: &Path) -> bool {
    let mut command = child::command("dpkg-query".as_ref());
    command.arg("-S").arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests;
