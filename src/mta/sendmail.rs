//! Sendmail's configuration, `sendmail.cf`.

/// The milters in `sendmail.cf`, and what it passes on to them.
#[derive(Debug, Default)]
pub(crate) struct Sendmail {
    pub(crate) filters: Vec<Filter>,
    /// Those that are used, by their names.
    pub(crate) used: Vec<String>,
    /// The macros that a milter gets at MAIL.
    pub(crate) macros: Option<String>,
    pub(crate) daemons: Vec<DaemonPort>,
    /// `O QueueDirectory`
    pub(crate) queue_directory: String,
}

/// `O DaemonPortOptions=…`
#[derive(Debug)]
pub(crate) struct DaemonPort {
    pub(crate) name: String,
    /// The milters of its own; `None` for those of all.
    pub(crate) used: Option<Vec<String>>,
}

/// `Xexirate, S=local:/run/exirate-mail/milter, T=C:5s`
#[derive(Debug, Default)]
pub(crate) struct Filter {
    pub(crate) name: String,
    pub(crate) socket: String,
    pub(crate) flags: String,
}

impl Sendmail {
    /// The daemons that receive mail, each with whether it uses the filter of this name.
    pub(crate) fn uses(&self, filter: &str) -> Vec<(&DaemonPort, bool)> {
        let has = |used: &[String]| used.iter().any(|name| name == filter);
        let uses = |daemon| {
            let DaemonPort { used, .. }: &DaemonPort = daemon;
            has(used.as_ref().unwrap_or(&self.used))
        };
        self.daemons.iter().map(|daemon| (daemon, uses(daemon))).collect()
    }

    /// The Sendmail of this machine; `None` if there is none.
    pub(crate) fn of_this_machine() -> Option<Self> {
        ["/etc/mail/sendmail.cf", "/etc/sendmail.cf"]
            .iter()
            .find_map(|path| std::fs::read_to_string(path).ok())
            .map(|text| Self::new(&text))
    }

    /// From the text of `sendmail.cf`.
    pub(crate) fn new(text: &str) -> Self {
        let mut sendmail = Self::default();
        for line in logical_lines(text) {
            if let Some(filter) = line.strip_prefix('X') {
                sendmail.filters.push(filter_of(filter));
            }
            // The names of options are in any case, and blanks may be around the `=`.
            let option = line.strip_prefix("O ").and_then(|option| option.split_once('='));
            let Some((name, value)) = option else { continue };
            match option_named(name.trim()) {
                Some("InputMailFilters") => sendmail.used = names(value),
                Some("Milter.macros.envfrom") => sendmail.macros = Some(value.to_owned()),
                Some("QueueDirectory") => value.trim().clone_into(&mut sendmail.queue_directory),
                Some("DaemonPortOptions") => sendmail.daemons.push(daemon_of(value)),
                _ => {}
            }
        }
        // Without the option, there is one daemon.
        if sendmail.daemons.is_empty() {
            sendmail.daemons.push(daemon_of(""));
        }
        sendmail
    }
}

/// The option that Sendmail takes a name for: in any case, and as far as it is written, if only
/// one option begins so; those of milters are written out.
fn option_named(name: &str) -> Option<&'static str> {
    const OPTIONS: [(&str, usize); 4] = [
        ("InputMailFilters", 2),
        ("Milter.macros.envfrom", 21),
        ("DaemonPortOptions", 2),
        ("QueueDirectory", 6),
    ];
    let is_it = |(option, least): &&(&str, usize)| {
        let start = option.get(..name.len());
        name.len() >= *least && start.is_some_and(|start| start.eq_ignore_ascii_case(name))
    };
    OPTIONS.iter().find(is_it).map(|(option, _)| *option)
}

/// The lines of `sendmail.cf`: one that starts with a blank continues the one before.
fn logical_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match lines.last_mut() {
            Some(last) if line.starts_with([' ', '\t']) => last.push_str(line),
            _ => lines.push(line.to_owned()),
        }
    }
    lines
}

fn names(text: &str) -> Vec<String> {
    let names = text.split([',', ';']).map(|name| name.trim().to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

/// `Port=smtp, Name=MTA, InputMailFilters=exirate`: the first letters of the names count.
fn daemon_of(text: &str) -> DaemonPort {
    let mut daemon = DaemonPort { name: "the daemon".to_owned(), used: None };
    for (key, value) in text.split(',').filter_map(|part| part.split_once('=')) {
        match key.trim().chars().next().map(|c| c.to_ascii_uppercase()) {
            Some('N') => value.trim().clone_into(&mut daemon.name),
            Some('I') => daemon.used = Some(names(value)),
            _ => {}
        }
    }
    daemon
}

fn filter_of(text: &str) -> Filter {
    let mut parts = text.split(',').map(str::trim);
    let mut filter =
        Filter { name: parts.next().unwrap_or_default().to_owned(), ..Filter::default() };
    for part in parts {
        // The first letter of a name counts.
        let Some((key, value)) = part.split_once('=') else { continue };
        match key.trim().chars().next() {
            Some('S') => value.trim().clone_into(&mut filter.socket),
            Some('F') => value.trim().clone_into(&mut filter.flags),
            _ => {}
        }
    }
    filter
}
