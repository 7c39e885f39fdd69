//! The units of exirate: which run, which are to, and whether they can run on this machine.

use std::path::Path;
use std::process::Command;

use schemars::JsonSchema;
use serde::Serialize;

use super::finding::Findings;
use crate::mta::command;
use crate::place;
use crate::sys::users::id_of;

/// A unit of exirate's.
struct Unit {
    /// Its name, `@` at the end if it has an instance for the user of the database, or that of a
    /// timer.
    name: &'static str,
    /// The file that it needs to start.
    needs: Option<&'static str>,
}

/// All of them.
const UNITS: [Unit; 12] = [
    Unit { name: "exirate-mail", needs: Some(place::FILE) },
    Unit { name: "exirate-mail@", needs: None },
    Unit { name: "exirate-undecided.timer", needs: None },
    Unit { name: WAITING, needs: None },
    Unit { name: "exirate-agent", needs: Some(place::FILE) },
    Unit { name: ALERTS, needs: None },
    Unit { name: "exirate-follow@", needs: None },
    Unit { name: "exirate-web@", needs: None },
    Unit { name: "exirate-broker@", needs: None },
    Unit { name: "exirate-held", needs: None },
    Unit { name: "exirate-stats.timer", needs: None },
    Unit { name: "exirate-verify.timer", needs: None },
];
/// What releases mail that waits in Postfix or Sendmail.
const WAITING: &str = "exirate-waiting.timer";
/// The same without systemd.
const CRON: &str = "/etc/cron.d/exirate";
/// The daemon that sends alerts.
pub(super) const ALERTS: &str = "exirate-alerts";

/// The command that has mail released that waits in Postfix or Sendmail, if nothing does.
pub(super) fn without_release() -> Option<String> {
    if has_systemd() {
        if systemctl(&["is-active", WAITING]) != "active" {
            return Some(start(WAITING));
        }
        let service = WAITING.replace(".timer", ".service");
        let result = systemctl(&["show", "--property=Result", "--value", &service]);
        return (result != "success").then(|| format!("systemctl status {service}"));
    }
    let cron = std::fs::read_to_string(CRON).unwrap_or_default();
    let is_run = |line: &str| {
        !line.starts_with('#') && line.contains(" held decide") && !line.contains("--server exim")
    };
    let install = format!("install -m 644 /usr/local/share/exirate/exirate.cron {CRON}");
    (!cron.lines().any(is_run)).then_some(install)
}

/// How a unit is, as this machine says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct UnitState {
    pub(crate) name: String,
    /// It starts at each boot, by itself or with a unit that does.
    pub(crate) enabled: bool,
    /// It runs, or waits for its time.
    pub(crate) active: bool,
    /// When it was started, or last was; of a timer, when it last ran.
    pub(crate) last: Option<String>,
    /// Why it cannot run here, or did not the last time.
    pub(crate) fault: Option<String>,
}

impl UnitState {
    /// In words.
    pub(crate) fn shown(&self) -> String {
        let Self { name, enabled, active, last, fault } = self;
        let is_timer = name.ends_with(".timer");
        let state = match (active, is_timer) {
            (true, true) => "is active",
            (true, false) => "runs",
            (false, _) => "does not run",
        };
        let last = match (last, is_timer, active) {
            (Some(last), true, _) => format!(", last ran {last}"),
            (None, true, _) => ", and has not run yet".to_owned(),
            (Some(last), false, true) => format!(" since {last}"),
            (Some(last), false, false) => format!(" since it was started {last}"),
            (None, false, _) => String::new(),
        };
        let boot = match (active, enabled) {
            (true, false) => ", and does not start at boot",
            _ => "",
        };
        let fault = fault.as_ref().map(|fault| format!(": {fault}")).unwrap_or_default();
        format!("{name} {state}{last}{boot}{fault}")
    }

    /// Whether somebody wants it to run.
    fn is_wanted(&self) -> bool {
        self.enabled || self.active || self.fault.is_some()
    }
}

/// The units that somebody wants to run, for the database in `spool`.
pub(crate) fn states(spool: &Path) -> Vec<UnitState> {
    let owner = place::owner_name(spool);
    let mut found = if has_systemd() { by_systemd(&owner) } else { by_scripts() };
    found.retain(UnitState::is_wanted);
    found
}

/// Adds what is to be said of these units.
pub(super) fn look(units: &[UnitState], findings: &mut Findings) {
    for one in units {
        match (&one.fault, one.active) {
            (None, true) => findings.ok(one.shown()),
            (None, false) => drop(findings.problem(one.shown()).fix(start(&one.name))),
            (Some(_), true) => drop(findings.warning(one.shown())),
            (Some(_), false) => drop(findings.problem(one.shown())),
        }
    }
}

pub(super) fn has_systemd() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

const PROPERTIES: &str = "--property=Id,User,UnitFileState,ActiveState,SubState,Result,WantedBy,\
                          ConditionResult,ExecMainStartTimestamp,LastTriggerUSec";

fn by_systemd(owner: &str) -> Vec<UnitState> {
    let mut names: Vec<String> = Vec::new();
    for unit in &UNITS {
        match unit.name.strip_suffix('@') {
            // Also those of other users, who cannot read this database.
            Some(_) => {
                let own = format!("{}{owner}.service", unit.name);
                names.extend(instances(unit.name).into_iter().filter(|one| *one != own));
                names.push(own);
            }
            None if unit.name.ends_with(".timer") => {
                names.push(unit.name.to_owned());
                names.push(unit.name.replace(".timer", ".service"));
            }
            None => names.push(format!("{}.service", unit.name)),
        }
    }
    let said = systemctl(&[&["show", PROPERTIES], &*refs(&names)].concat());
    let all: Vec<ShownUnit<'_>> = said.split("\n\n").map(ShownUnit).collect();
    let of = |name: &str| all.iter().find(|one| one.get("Id") == name);
    let states = names.iter().filter_map(|name| {
        let shown = of(name)?;
        if UNITS.iter().any(|one| one.name.replace(".timer", ".service") == *name) {
            return None;
        }
        // What a timer starts is what can fail.
        let runs = name.strip_suffix(".timer").and_then(|one| of(&format!("{one}.service")));
        let mut state = shown.state(runs.unwrap_or(shown), owner);
        // One that does not run may be masked.
        state.enabled |= state.active && is_started(shown, &all, names.len());
        Some(state)
    });
    states.collect()
}

/// Whether a unit of `all` that starts at each boot starts this one, over at most `steps` others.
fn is_started(shown: &ShownUnit<'_>, all: &[ShownUnit<'_>], steps: usize) -> bool {
    let Some(left) = steps.checked_sub(1) else { return false };
    shown.get("WantedBy").split_whitespace().any(|name| {
        let by = all.iter().find(|one| one.get("Id") == name);
        by.is_some_and(|by| by.is_enabled() || is_started(by, all, left))
    })
}

fn refs(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// The instances of a template that are enabled, run or have failed.
fn instances(template: &str) -> Vec<String> {
    let said =
        systemctl(&["list-units", "--all", "--plain", "--no-legend", &format!("{template}*")]);
    let running = said.lines().filter_map(|line| line.split_whitespace().next());
    let enabled = Path::new("/etc/systemd/system/multi-user.target.wants").read_dir();
    let enabled = enabled.into_iter().flatten().flatten();
    let enabled = enabled.filter_map(|entry| entry.file_name().into_string().ok());
    let mut all: Vec<String> = running.map(str::to_owned).chain(enabled).collect();
    all.retain(|name| name.starts_with(template) && name.ends_with(".service"));
    all.sort();
    all.dedup();
    all
}

/// What `systemctl show` prints of a unit.
struct ShownUnit<'a>(&'a str);

impl<'a> ShownUnit<'a> {
    fn get(&self, name: &str) -> &'a str {
        let mut lines = self.0.lines().filter_map(|line| line.split_once('='));
        lines.find(|(key, _)| *key == name).map_or("", |(_, value)| value)
    }

    fn is_enabled(&self) -> bool {
        matches!(self.get("UnitFileState"), "enabled" | "enabled-runtime")
    }

    fn time(&self, name: &str) -> Option<String> {
        Some(self.get(name)).filter(|time| !time.is_empty() && *time != "n/a").map(str::to_owned)
    }

    /// How it is, where `runs` is what it starts, or itself.
    fn state(&self, runs: &ShownUnit<'_>, owner: &str) -> UnitState {
        let id = self.get("Id");
        let name = id.strip_suffix(".service").unwrap_or(id).to_owned();
        let enabled = self.is_enabled();
        let active = matches!(self.get("ActiveState"), "active" | "reloading");
        let last = match id.ends_with(".timer") {
            true => self.time("LastTriggerUSec"),
            false => self.time("ExecMainStartTimestamp"),
        };
        let mut state = UnitState { name, enabled, active, last, fault: None };
        if enabled || active || self.get("ActiveState") == "failed" {
            state.fault = self.fault(&state, runs, owner);
        }
        state
    }

    fn fault(&self, state: &UnitState, runs: &ShownUnit<'_>, owner: &str) -> Option<String> {
        let (name, user) = (&state.name, runs.get("User"));
        let is_of = |unit: &&Unit| match name.strip_prefix(unit.name) {
            Some(instance) => instance.is_empty() != unit.name.ends_with('@'),
            None => false,
        };
        let unit = UNITS.iter().find(is_of)?;
        if let Some(instance) = name.strip_prefix(unit.name).filter(|_| unit.name.ends_with('@'))
            && instance != owner
        {
            return Some(format!(
                "the database belongs to {owner}, so it cannot read it: systemctl disable --now \
                 {name} && systemctl enable --now {}{owner}",
                unit.name
            ));
        }
        if !user.is_empty() && id_of(user.as_ref()).is_none() {
            return Some(format!("there is no user {user}: systemd-sysusers"));
        }
        let missing = unit.needs.filter(|path| !Path::new(path).exists());
        if let Some(path) = missing.filter(|_| !state.active) {
            return Some(format!("it needs {path}, which does not exist"));
        }
        let result = runs.get("Result");
        if !matches!(result, "" | "success" | "exec-condition") {
            let log = format!("see `journalctl -u {}`", runs.get("Id"));
            return Some(format!("the last run has failed ({result}): {log}"));
        }
        let never = !state.active && runs.get("ConditionResult") == "no" && state.last.is_some();
        never.then(|| "a condition of the unit does not hold".to_owned())
    }
}

/// Without systemd: the init scripts.
fn by_scripts() -> Vec<UnitState> {
    let scripts = UNITS.iter().filter(|one| Path::new("/etc/init.d").join(one.name).exists());
    let state = |unit: &Unit| {
        let pid = std::fs::read_to_string(format!("/run/{}.pid", unit.name)).ok();
        let pid = pid.and_then(|pid| pid.trim().parse::<u32>().ok());
        let active = pid.is_some_and(|pid| Path::new(&format!("/proc/{pid}/exe")).is_symlink());
        let enabled = is_in_runlevels(unit.name);
        // As the daemon for local accounts it needs no configuration.
        let defaults = std::fs::read_to_string(Path::new("/etc/default").join(unit.name));
        let is_configured =
            defaults.is_ok_and(|text| text.lines().any(|line| line.starts_with("callers=")));
        let is_needed = enabled && !active && !is_configured;
        let missing = unit.needs.filter(|path| is_needed && !Path::new(path).exists());
        let fault = missing.map(|path| format!("it needs {path}, which does not exist"));
        UnitState { name: unit.name.to_owned(), enabled, active, last: None, fault }
    };
    scripts.map(state).collect()
}

/// Whether an init script is started at boot.
fn is_in_runlevels(name: &str) -> bool {
    crate::setup::is_in_runlevels(name)
}

/// What systemctl prints; nothing where it is not there.
fn systemctl(arguments: &[&str]) -> String {
    let mut systemctl = Command::new("/usr/bin/systemctl");
    systemctl.args(arguments);
    command::run(systemctl).map_or_else(|_| String::new(), |said| said.stdout.trim().to_owned())
}

/// The command that makes a unit run that does not.
pub(super) fn start(unit: &str) -> String {
    if !has_systemd() && Path::new("/etc/init.d").join(unit).exists() {
        return format!(
            "update-rc.d {unit} defaults && update-rc.d {unit} enable && service {unit} restart"
        );
    }
    let says = |question: &str| systemctl(&[question, unit]);
    command_for(unit, &says("is-enabled"), &says("is-active"))
}

/// A unit that was never enabled is to be enabled; one that is, has a reason not to run, or
/// runs and does not do its work.
fn command_for(unit: &str, enabled: &str, active: &str) -> String {
    match (enabled, active) {
        ("enabled" | "static" | "enabled-runtime", "active" | "activating" | "failed") => {
            format!("systemctl restart {unit}")
        }
        _ => format!("systemctl enable --now {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn a_unit_that_was_never_enabled_is_enabled() {
        for (enabled, active, expected) in [
            ("disabled", "inactive", "systemctl enable --now x.service"),
            ("not-found", "inactive", "systemctl enable --now x.service"),
            ("", "", "systemctl enable --now x.service"),
            ("enabled", "inactive", "systemctl enable --now x.service"),
            ("enabled", "failed", "systemctl restart x.service"),
            ("enabled", "active", "systemctl restart x.service"),
        ] {
            assert_eq!(command_for("x.service", enabled, active), expected, "{enabled} {active}");
        }
    }

    #[test]
    fn every_shipped_unit_is_known() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/maintenance");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let names = files.map(|name| name.into_string().unwrap());
        let units = names.filter_map(|name| match name.strip_suffix(".service") {
            // Its timer is enabled.
            Some(service) => {
                let timer = format!("{service}.timer");
                let is_timed = Path::new(folder).join(&timer).exists();
                Some(if is_timed { timer } else { service.to_owned() })
            }
            None => None,
        });
        let mut units: Vec<String> = units.collect();
        let mut known: Vec<&str> = UNITS.iter().map(|unit| unit.name).collect();
        units.sort();
        known.sort_unstable();
        assert_eq!(units, known);
    }

    #[test]
    fn what_a_unit_starts_starts_at_boot_with_it() {
        let unit = |id: &str, file: &str, by: &str| {
            format!("Id={id}\nUnitFileState={file}\nActiveState=active\nWantedBy={by}")
        };
        let texts = [
            unit("exirate-web@u.service", "enabled", "multi-user.target"),
            unit("exirate-broker@u.service", "disabled", "exirate-web@u.service"),
            unit("exirate-held.service", "disabled", "exirate-broker@u.service"),
            unit("exirate-mail.service", "disabled", ""),
            unit("exirate-undecided.timer", "disabled", "exirate-mail.service"),
        ];
        let all: Vec<ShownUnit<'_>> = texts.iter().map(|text| ShownUnit(text)).collect();
        let started: Vec<bool> = all.iter().map(|one| is_started(one, &all, 5)).collect();
        assert_eq!(started, [false, true, true, false, false]);
    }

    #[test]
    fn a_unit_that_cannot_run_says_why() {
        let of = |text: &str, owner: &str| ShownUnit(text).state(&ShownUnit(text), owner);
        let shown = |text: &str| {
            let state = of(text, "exirate-mail");
            let mut findings = Findings::default();
            look(std::slice::from_ref(&state), &mut findings);
            let one = findings.list.remove(0);
            (one.level, one.text, one.fix)
        };
        let text = "Id=exirate-alerts.service\nUser=\nUnitFileState=enabled\nActiveState=active\n\
                    Result=success\nConditionResult=yes\nExecMainStartTimestamp=TIME";
        assert_eq!(shown(text), (Level::Ok, "exirate-alerts runs since TIME".to_owned(), vec![]));
        let failed = text.replace("active\nResult=success", "failed\nResult=exit-code");
        let (level, said, _) = shown(&failed);
        assert_eq!(level, Level::Problem);
        assert!(
            said.contains("has failed (exit-code): see `journalctl -u exirate-alerts"),
            "{said}"
        );
        let wrong = text.replace("exirate-alerts", "exirate-web@Debian-exim");
        let (level, said, _) = shown(&wrong);
        assert_eq!(level, Level::Warning);
        assert!(said.contains("systemctl enable --now exirate-web@exirate-mail"), "{said}");
        let nobody = text.replace("User=", "User=no such user");
        assert!(shown(&nobody).1.contains("there is no user no such user"));
        let stopped = text.replace("=active", "=inactive");
        let (level, _, fix) = shown(&stopped);
        assert_eq!((level, fix.len()), (Level::Problem, 1));
        let off = stopped.replace("=enabled", "=disabled");
        assert!(!of(&off, "exirate-mail").is_wanted());
    }
}
