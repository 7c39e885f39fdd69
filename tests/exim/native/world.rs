//! A world: one random configuration, written for each of the two sides.

use super::spec::{self, Pool, Spec};
use kit::{EntryPoint, FakeClock, PrivateExim, Random, Setup};
use std::fmt::Write as _;

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Exim's own `ratelimit`.
    Native,
    /// The library.
    Ours,
    /// Exim's own, but leaky where strict is asked for: a fault that a
    /// comparison must find.
    Faulty,
}

impl Side {
    /// A configuration in which every stage can be reached.
    pub fn setup(self) -> Setup {
        let setup = Setup::new()
            .auth()
            .main("prdr_enable = true")
            .main("tls_advertise_hosts = *")
            .main("chunking_advertise_hosts = *")
            .main("dkim_verify_signers = one.test:two.test");
        if self == Side::Ours { setup.library() } else { setup }
    }

    /// The condition that asks this side.
    pub fn condition(self, spec: &Spec) -> String {
        match self {
            Side::Native => format!("ratelimit = {}", spec.native()),
            Side::Ours => format!("condition = {}", spec.ours()),
            Side::Faulty => format!("ratelimit = {}", spec.native().replace("strict", "leaky")),
        }
    }
}

/// What a check does with the answer.
#[derive(Clone, Copy)]
pub enum Verb {
    /// Logs it, and goes on.
    Warn,
    /// Refuses for now or for good, with the variables in the reply.
    Refuse(&'static str),
}

struct Check {
    name: String,
    verb: Verb,
    spec: Spec,
    /// A condition that must hold first.
    guard: Option<&'static str>,
    /// Native on both sides: it overwrites the variables between the others.
    bystander: bool,
    /// Another statement before it, which changes other variables.
    interlude: &'static str,
}

/// The stages, with the option that sets each.
pub const STAGES: &[(&str, &str)] = &[
    ("connect", "acl_smtp_connect"),
    ("helo", "acl_smtp_helo"),
    ("mail", "acl_smtp_mail"),
    ("mailauth", "acl_smtp_mailauth"),
    ("rcpt", "acl_smtp_rcpt"),
    ("predata", "acl_smtp_predata"),
    ("dkim", "acl_smtp_dkim"),
    ("mime", "acl_smtp_mime"),
    ("prdr", "acl_smtp_data_prdr"),
    ("data", "acl_smtp_data"),
    ("not_smtp_start", "acl_not_smtp_start"),
    ("not_smtp", "acl_not_smtp"),
    ("auth", "acl_smtp_auth"),
    ("starttls", "acl_smtp_starttls"),
    ("vrfy", "acl_smtp_vrfy"),
    ("expn", "acl_smtp_expn"),
    ("etrn", "acl_smtp_etrn"),
    ("quit", "acl_smtp_quit"),
    ("notquit", "acl_smtp_notquit"),
];

/// One configuration, not yet written down.
pub struct World {
    stages: Vec<(&'static str, &'static str, Vec<Check>)>,
    shared: Vec<Check>,
}

impl World {
    pub fn new(random: &mut Random, periods: &[&'static str]) -> Self {
        let pool = Pool { periods: vec![random.pick(periods), random.pick(periods)] };
        let stages = STAGES
            .iter()
            .map(|(stage, option)| (*stage, *option, checks(random, &pool, stage)))
            .collect();
        // One ACL called from several stages: what it asks counts as asked
        // by the stage that calls it. Only what is right everywhere.
        let shared =
            (0..2).map(|n| warn(random, &pool, "not_smtp_start", &format!("shared.{n}"))).collect();
        Self { stages, shared }
    }

    /// The Exim of one side, started.
    pub fn exim(&self, side: Side, clock: Option<&FakeClock>) -> PrivateExim {
        let mut setup = side.setup();
        if let Some(clock) = clock {
            setup = setup.clock(clock);
        }
        for (stage, option, checks) in &self.stages {
            setup = setup.acl(option, &acl(side, stage, checks));
        }
        let mut shared = "shared:\n".to_owned();
        self.shared.iter().for_each(|c| shared.push_str(&c.text(side)));
        shared.push_str("  accept\n");
        let mut exim = setup.acls(&shared).build();
        exim.start();
        exim
    }

    /// What each check is, for the report of a difference.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for check in self.stages.iter().flat_map(|p| &p.2).chain(&self.shared) {
            let _ = writeln!(text, "{:20} {}", check.name, check.spec.native());
        }
        text
    }
}

/// What ACLs do besides, at this stage, and what it changes.
fn interlude(random: &mut Random, stage: &str) -> &'static str {
    let anywhere = [
        "set acl_m_count = x$acl_m_count",
        "set acl_c_name = $sender_helo_name",
        "hosts = 127.0.0.0/8",
        "set acl_m_line = ${lookup{never_users}lsearch{PRIVATE/exim.conf}}",
        "condition = ${if match{$sender_helo_name}{^(.)}}",
    ];
    // These set and unset $address_data, $domain_data and their like.
    let recipient = [
        "verify = recipient",
        "!verify = recipient/callout=no_cache,defer_ok",
        "domains = private.test",
        "domains = dsearch;PRIVATE",
        "local_parts = a : b",
        "verify = sender",
    ];
    let message = ["verify = sender", "verify = header_syntax", "verify = header_sender"];
    let stage = match stage {
        "rcpt" => &recipient[..],
        "vrfy" => &recipient[2..5],
        "predata" => &message[..1],
        "data" | "mime" => &message[..],
        _ => &anywhere[..],
    };
    let of = if random.chance(60) { stage } else { &anywhere };
    random.pick(of)
}

fn warn(random: &mut Random, pool: &Pool, stage: &str, name: &str) -> Check {
    Check {
        name: name.to_owned(),
        verb: Verb::Warn,
        spec: spec::valid(random, pool, stage),
        guard: None,
        bystander: false,
        interlude: "",
    }
}

/// What asks a wrong spec: where the condition of a `warn` defers, as that of a
/// lookup does, Exim goes on; where it fails, as native and a dlfunc do, Exim
/// does not.
pub fn faulty_verb() -> Verb {
    match EntryPoint::chosen() {
        EntryPoint::Dlfunc => Verb::Warn,
        EntryPoint::Lookup => Verb::Refuse("defer"),
    }
}

fn checks(random: &mut Random, pool: &Pool, stage: &'static str) -> Vec<Check> {
    let mut checks = bare_checks(random, pool, stage);
    for check in &mut checks {
        if random.chance(25) {
            check.interlude = interlude(random, stage);
        }
    }
    checks
}

fn bare_checks(random: &mut Random, pool: &Pool, stage: &'static str) -> Vec<Check> {
    let mut checks = vec![];
    for n in 0..3 + random.below(4) {
        let mut check = warn(random, pool, stage, &format!("{stage}.{n}"));
        if random.chance(20) && !matches!(stage, "connect" | "quit" | "notquit" | "not_smtp_start")
        {
            check.verb = Verb::Refuse(if random.chance(50) { "defer" } else { "deny" });
        }
        checks.push(check);
    }
    // The same condition again, and the same key against another limit.
    let again = random.below(checks.len());
    let spec = checks[again].spec.clone();
    let other = spec.with_limit("1.2");
    for (suffix, spec) in [("again", spec), ("other", other)] {
        let check = Check { spec, ..warn(random, pool, stage, &format!("{stage}.{suffix}")) };
        checks.insert(random.below(checks.len() + 1), check);
    }
    if random.chance(50) {
        let spec = Spec::whole(&format!("3.3 / 5d / per_cmd / strict / bystander {stage}"));
        let check = Check {
            spec,
            bystander: true,
            ..warn(random, pool, stage, &format!("{stage}.beside"))
        };
        checks.insert(random.below(checks.len() + 1), check);
    }
    let wrong = Check {
        verb: faulty_verb(),
        spec: Spec::whole(random.pick(spec::wrong())),
        // Where it can be, such that what comes before it succeeds.
        guard: Some(match stage {
            // Exim logs nothing if this ACL defers, as it does by the lookup: the
            // end of the connection would not be seen.
            "notquit" if EntryPoint::chosen() == EntryPoint::Lookup => "false",
            "connect" => "${if eq{$sender_host_address}{127.0.0.99}}",
            "vrfy" | "expn" => "${if eq{$smtp_command_argument}{faulty@private.test}}",
            "mail" => "${if eq{$sender_address}{faulty.mail@private.test}}",
            "rcpt" => "${if eq{$local_part}{faulty}}",
            "predata" | "data" | "mime" | "dkim" | "prdr" | "not_smtp" | "not_smtp_start" => {
                "${if eq{$sender_address}{faulty@private.test}}"
            }
            _ => "${if eq{$sender_helo_name}{faulty}}",
        }),
        ..warn(random, pool, stage, &format!("{stage}.wrong"))
    };
    checks.insert(random.below(checks.len() + 1), wrong);
    checks
}

impl Check {
    fn text(&self, side: Side) -> String {
        let name = &self.name;
        let side = if self.bystander { Side::Native } else { side };
        let condition = side.condition(&self.spec);
        let guard = self.guard.map(|g| format!("        condition = {g}\n")).unwrap_or_default();
        let state = "rate=$sender_rate limit=$sender_rate_limit period=$sender_rate_period";
        let before = match self.interlude {
            "" => String::new(),
            other => format!("  warn\n        {other}\n"),
        };
        before
            + &match self.verb {
                Verb::Warn => format!(
                    "  warn\n{guard}        {condition}\n        logwrite = @@ {name} over\n  \
                 warn\n        logwrite = @@ {name} {state}\n"
                ),
                Verb::Refuse(verb) => format!(
                    "  warn\n        logwrite = @@ {name} before {state}\n  \
                 {verb}\n{guard}        message = {name} {state}\n        {condition}\n  \
                 warn\n        logwrite = @@ {name} {state}\n"
                ),
            }
    }
}

/// The whole ACL of a stage: its checks, then what sessions rely on.
fn acl(side: Side, stage: &str, checks: &[Check]) -> String {
    let mut text = String::new();
    for (n, check) in checks.iter().enumerate() {
        if n == 2 && matches!(stage, "rcpt" | "mail" | "data" | "vrfy" | "helo" | "not_smtp") {
            text.push_str("  warn\n        acl = shared\n");
        }
        text.push_str(&check.text(side));
    }
    text.push_str(match stage {
        "helo" => "  deny condition = ${if eq{$sender_helo_name}{bad}}\n  accept\n",
        "mail" => "  deny senders = bad@private.test\n  accept\n",
        "rcpt" => "  deny local_parts = bad\n  accept\n",
        "predata" => "  deny senders = predata@private.test\n  accept\n",
        "data" => "  deny senders = data@private.test\n  accept\n",
        // What would follow takes long, and is not what is compared.
        "starttls" | "expn" | "etrn" => "  deny message = not here\n",
        _ => "  accept\n",
    });
    // A connection that was cut off is done with when this is logged, also
    // where a check before it refused or failed.
    if stage == "notquit" {
        text.replace("  accept\n", "  warn logwrite = @@ end\n  accept\n")
    } else {
        text
    }
}
