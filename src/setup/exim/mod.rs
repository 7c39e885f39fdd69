//! Exim: Debian's configurations, and those of one's own.

mod candidate;
mod front_end;
mod listener;
mod planner;
mod stages;

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::daemon::DaemonNeeds;
use super::files::Steps;
use super::policy_file::{Facts, qualifying};
use super::probe::comes_to_policies;
use super::service::reload;
use super::{Contents, MailServer, Plan, SetupError, run};
use crate::mta::exim::debian::{Debian, ETC, GENERATED};
use crate::mta::exim::{Exim as Program, Rules, items};
use candidate::{Candidate, GROUP, UPDATE};
use front_end::FrontEnd;
use planner::{Planner, ROUTERS, needs_routers};
use stages::{STAGES, missing};

/// Debian's spool directory.
const SPOOL: &str = "/var/spool/exim4";

/// How long Exim may take until it listens again.
const RELOAD: Duration = Duration::from_secs(20);

/// An Exim.
struct Exim {
    program: Program,
    version: String,
    /// The file that it reads.
    config: PathBuf,
    spool: PathBuf,
    /// What it says of its configuration, if it does not accept it as it is.
    fault: Option<String>,
    front_end: FrontEnd,
    /// That it asks, if it loads no library.
    daemon: Option<DaemonNeeds>,
    /// The user that it becomes.
    user: String,
    /// `None` where the configuration is the administrator's own.
    debian: Option<Debian>,
}

/// Looks at the Exim that `program` is.
pub(super) fn find(program: &Path, socket: bool) -> Result<Box<dyn MailServer>, SetupError> {
    let program = Program { program: program.to_owned(), config: None };
    let version = program.version().map_err(SetupError::Unfit)?;
    let debian = Debian::look(Path::new(ETC)).filter(|_| Path::new(UPDATE).exists());
    let (config, spool, (user, group), fault): (PathBuf, PathBuf, (String, String), _) =
        match (version.complaint, program.settings(), &debian) {
            (None, Ok(settings), _) => {
                let who = (settings.who.user, settings.who.group);
                (settings.config, settings.spool, who, None)
            }
            (Some(why), _, Some(_)) | (_, Err(why), Some(_)) => {
                let who = (GROUP.to_owned(), GROUP.to_owned());
                (GENERATED.into(), SPOOL.into(), who, Some(why))
            }
            (Some(why), _, None) | (_, Err(why), None) => {
                return Err(SetupError::unsound("Exim", &why));
            }
        };
    let debian = debian.filter(|_| config == Path::new(GENERATED));
    let front_end = FrontEnd::choose(version.dlfunc, socket, &config);
    let version = version.name.split_whitespace().nth(2).unwrap_or_default().to_owned();
    let daemon = front_end.daemon(group);
    let spool = daemon.as_ref().map_or(spool, DaemonNeeds::spool);
    Ok(Box::new(Exim { program, version, config, spool, fault, front_end, daemon, user, debian }))
}

impl MailServer for Exim {
    fn name(&self) -> String {
        let layout = match &self.debian {
            Some(Debian { split: true, .. }) => "Debian's split configuration",
            Some(_) => "Debian's unsplit configuration",
            None => "a configuration of your own",
        };
        format!("Exim {}, {layout}, {}", self.version, self.front_end.name())
    }

    fn spool(&self) -> &Path {
        &self.spool
    }

    fn plan(&self) -> Result<Plan, SetupError> {
        self.is_sound()?;
        let mut plan = Plan::default();
        match &self.daemon {
            Some(daemon) => {
                daemon.listens_there()?;
                daemon.plan(&mut plan, || self.facts())?;
            }
            None => {
                plan.policies(&self.spool, || self.facts())?;
                front_end::decide_for_callers(&mut plan, &self.spool, &self.user);
            }
        }
        match &self.debian {
            Some(debian) => {
                let planner = Planner { exim: &self.program, debian, front_end: &self.front_end };
                planner.add(&mut plan, &self.config)?;
            }
            None => self.by_hand(&mut plan)?,
        }
        Ok(plan)
    }

    fn is_running(&self) -> Result<(), SetupError> {
        self.is_sound()?;
        listener::answers(&listener::address(&self.program)?)
    }

    fn check(&self, changed: &Contents) -> Result<(), SetupError> {
        match &self.debian {
            Some(debian) => Candidate::of(debian, changed)?.check(&self.program),
            None => Ok(()),
        }
    }

    fn put_into_force(&self, steps: &Steps) -> Result<(), SetupError> {
        if self.debian.is_none() {
            return Ok(());
        }
        run("update-exim4.conf", &[])?;
        steps.step();
        reload("exim4")?;
        steps.step();
        Ok(())
    }

    fn probe(&self) -> Result<(), SetupError> {
        let rules = self.rules()?;
        if let Some(stage) = missing(&rules).first() {
            return Err(SetupError::Unfit(format!(
                "no mail reaches a line that asks the policies in the ACL of {}",
                stage.option
            )));
        }
        self.probe_session()
    }
}

impl Exim {
    /// Whether the policies are seen in an SMTP session, at AUTH if it can be tried, at RCPT and when a message has been
    /// received.
    fn probe_session(&self) -> Result<(), SetupError> {
        let facts = self.facts()?;
        let domain = facts.domains.first().unwrap_or(&facts.name);
        let recipients = ["postmaster", "exirate-probe"].map(|name| format!("{name}@{domain}"));
        let address = listener::address(&self.program)?;
        comes_to_policies(&self.spool, address, &recipients, true, RELOAD, |reply| {
            let Some((_, id)) = reply.split_once("id=") else { return Ok(()) };
            self.program.run(&["-Mrm", id.trim()]).map(drop).map_err(SetupError::Unfit)
        })
    }

    fn is_sound(&self) -> Result<(), SetupError> {
        self.front_end.is_installed().map_err(SetupError::Unfit)?;
        self.fault.as_ref().map_or(Ok(()), |why| Err(SetupError::unsound("Exim", why)))
    }

    fn rules(&self) -> Result<Rules, SetupError> {
        Ok(self.program.rules(&self.config)?)
    }

    /// What the policy file says of this server.
    fn facts(&self) -> Result<Facts, SetupError> {
        let printed = |what: &str| {
            let output = self.program.run(&["-bP", what]).map_err(SetupError::Unfit)?;
            let value = output.stdout.split_once('=').map_or("", |(_, value)| value.trim());
            Ok::<String, SetupError>(value.to_owned())
        };
        let name = printed("primary_hostname")?;
        let own = |item: &str| match item {
            "@" => Some(name.clone()),
            "localhost" | "@[]" | "@mx_any" | "" => None,
            item => Some(item.to_owned()),
        };
        let domains = items(&printed("+local_domains")?);
        let domains = domains.iter().filter_map(|item| own(item)).collect();
        let mut relays = items(&printed("+relay_from_hosts")?);
        relays.retain(|item| !item.is_empty());
        let qualify = qualifying(&printed("qualify_domain")?);
        let facts = Facts::of(name.clone(), domains, relays, self.smarthost());
        Ok(Facts { qualify, ..facts })
    }

    /// The host that Debian's configuration sends all mail to.
    fn smarthost(&self) -> Option<String> {
        let debian = self.debian.as_ref()?;
        let kind = debian.setting("dc_eximconfig_configtype");
        let host = debian.setting("dc_smarthost");
        (["smarthost", "satellite"].contains(&&*kind) && !host.is_empty()).then_some(host)
    }

    /// Names the lines that a configuration of one's own lacks.
    fn by_hand(&self, plan: &mut Plan) -> Result<(), SetupError> {
        let rules = self.rules()?;
        if needs_routers(&rules) {
            for (section, _, file) in ROUTERS {
                let include = self.front_end.include(file);
                plan.by_hand.push(format!(
                    "{}: below `begin {section}`, before any other line:\n    {}",
                    self.config.display(),
                    include.trim_end()
                ));
            }
        }
        let missing = missing(&rules);
        if missing.is_empty() {
            return Ok(());
        }
        if !rules.source.files.contains(&self.front_end.file("exirate")) {
            let socket = if self.front_end.socket {
                format!("RATELIMIT_SOCKET = {}\n    ", front_end::SOCKET)
            } else {
                String::new()
            };
            plan.by_hand.push(format!(
                "{}: in the main section, above `begin acl`:\n    {socket}{}",
                self.config.display(),
                self.front_end.include("exirate").trim_end()
            ));
        }
        for stage in STAGES.into_iter().filter(|stage| missing.contains(stage)) {
            let include = self.front_end.include(stage.file);
            let include = include.trim_end();
            let acls = stage.acls(&rules);
            for acl in &acls {
                let at = rules.acls.defined.get(&**acl).map_or(String::new(), ToString::to_string);
                plan.by_hand.push(format!(
                    "{at}: below `{acl}:` ({}), before any other line:\n      {include}",
                    stage.option
                ));
            }
            if acls.is_empty() {
                let name = stage.option.replacen("acl_", "acl_check_", 1);
                let config = self.config.display();
                plan.by_hand.push(format!(
                    "{config}: in the main section:\n    {} = {name}\n  and below `begin acl`:\n    \
                     {name}:\n      {include}\n      accept",
                    stage.option
                ));
            }
        }
        Ok(())
    }
}
