//! Logs of a few days on a log host: Postfix with and without filters, and Exim, each with few
//! clients, processes and queue ids, so that they are soon used again. It shares nothing with
//! what reads logs: a line is what `smtpd.c`, `cleanup_message.c` or `smtp_in.c` prints.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use kit::Random;

/// A log, and what is true.
#[derive(Debug, Default)]
pub(super) struct Made {
    pub(super) log: String,
    /// By address: each is of one attempt.
    pub(super) recipients: BTreeMap<String, Truth>,
    /// Logins that failed, by client.
    pub(super) failed_logins: HashMap<String, usize>,
    /// Lines that were left out, as the line before says how often it came.
    pub(super) repeated: usize,
}

/// Who named a recipient.
#[derive(Clone, Debug, Default)]
pub(super) struct Truth {
    pub(super) login: Option<String>,
    pub(super) client: Option<String>,
    pub(super) is_accepted: bool,
    /// The log does not show the login.
    pub(super) may_be_unknown: bool,
}

/// How a server is set up.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Postfix,
    /// A filter after the queue, with XFORWARD or without.
    Filter {
        forwards: bool,
    },
    /// A filter before the queue.
    Proxy,
    Exim {
        ports: bool,
    },
}

#[derive(Clone, Debug)]
struct Server {
    name: String,
    kind: Kind,
    /// Its logger drops `connect` and `disconnect`.
    drops_connections: bool,
    /// Its refusals name the login.
    names_logins: bool,
    /// Until when a process is busy, in milliseconds.
    processes: Vec<u64>,
    /// Until when a queue id is used.
    ids: Vec<u64>,
}

/// A line: the server, the program and process, and the text.
struct Line {
    at: u64,
    server: usize,
    tag: String,
    text: String,
}

struct Generator<'r> {
    random: &'r mut Random,
    servers: Vec<Server>,
    lines: Vec<Line>,
    made: Made,
    addresses: usize,
}

/// The client of a session and its login.
struct Client {
    name: String,
    address: String,
    login: Option<String>,
    port: usize,
}

/// About so many lines.
pub(super) fn generate(random: &mut Random, lines: usize) -> Made {
    let kinds = [
        Kind::Postfix,
        Kind::Postfix,
        Kind::Filter { forwards: true },
        Kind::Filter { forwards: false },
        Kind::Proxy,
        Kind::Exim { ports: true },
        Kind::Exim { ports: false },
    ];
    let server = |number: usize, random: &mut Random| Server {
        name: format!("mx{number}"),
        kind: kinds[random.below(kinds.len())],
        drops_connections: random.chance(25),
        names_logins: random.chance(25),
        processes: vec![0; 3],
        ids: vec![0; 12],
    };
    let servers = (0..random.within(1, 4)).map(|number| server(number, random)).collect();
    let made = Made::default();
    let mut generator = Generator { random, servers, lines: Vec::new(), made, addresses: 0 };
    let mut at = 3_600_000;
    while generator.lines.len() < lines {
        at += generator.random.below(20_000) as u64;
        let server = generator.random.below(generator.servers.len());
        generator.session(server, at);
    }
    generator.finish()
}

impl Generator<'_> {
    fn line(&mut self, server: usize, at: u64, tag: &str, text: String) {
        self.lines.push(Line { at, server, tag: tag.to_owned(), text });
    }

    /// A process that is free at `at`, if there is one.
    fn process(&mut self, server: usize, at: u64) -> Option<usize> {
        let free = |until: &u64| *until < at;
        self.servers[server].processes.iter().position(free)
    }

    /// A queue id that is free.
    fn id(&mut self, server: usize, at: u64) -> (usize, String) {
        let server = &mut self.servers[server];
        let free = server.ids.iter().position(|until| *until < at);
        let place = free.unwrap_or_else(|| {
            server.ids.push(0);
            server.ids.len() - 1
        });
        server.ids[place] = u64::MAX;
        (place, format!("{:010X}", 0xA0_0000_0000_u64 + place as u64))
    }

    fn address(&mut self) -> String {
        self.addresses += 1;
        format!("r{}@y.test", self.addresses)
    }

    fn client(&mut self) -> Client {
        // Some share an address, with and without a login.
        let host = self.random.below(5);
        let login = self.random.chance(60).then(|| format!("user{}@x.test", self.random.below(4)));
        Client {
            name: format!("c{host}.example.net"),
            address: format!("192.0.2.{host}"),
            login,
            port: 20_000 + self.random.below(40_000),
        }
    }

    fn truth(&mut self, client: &Client, is_accepted: bool, may_be_unknown: bool) -> String {
        let to = self.address();
        let truth = Truth {
            login: client.login.clone(),
            client: Some(client.address.clone()),
            is_accepted,
            may_be_unknown,
        };
        self.made.recipients.insert(to.clone(), truth);
        to
    }

    fn session(&mut self, server: usize, at: u64) {
        let Some(process) = self.process(server, at) else { return };
        let client = self.client();
        self.servers[server].processes[process] = u64::MAX;
        let until = match self.servers[server].kind {
            Kind::Exim { .. } => self.of_exim(server, at, 100 + process, &client),
            _ => self.of_postfix(server, at, 100 + process, &client),
        };
        self.servers[server].processes[process] = until;
    }

    fn step(&mut self, at: &mut u64) -> u64 {
        *at += 1 + self.random.below(3_000) as u64;
        *at
    }

    fn of_postfix(&mut self, server: usize, at: u64, pid: usize, client: &Client) -> u64 {
        let Server { kind, drops_connections, names_logins, .. } = self.servers[server].clone();
        let tag = format!("postfix/smtpd[{pid}]");
        let Client { name, address, .. } = client;
        let from = format!("{name}[{address}]");
        let mut at = at;
        if !drops_connections {
            self.line(server, at, &tag, format!("connect from {from}"));
        }
        let failed = if self.random.chance(15) { self.random.within(1, 4) } else { 0 };
        for _ in 0..failed {
            // Often within one second: syslog counts such lines.
            at += if self.random.chance(70) { 1 } else { 1500 };
            let text = format!("warning: {from}: SASL LOGIN authentication failed: UGFzc3dvcmQ6");
            self.line(server, at, &tag, text);
            *self.made.failed_logins.entry(address.clone()).or_default() += 1;
        }
        let login = client.login.as_ref();
        let sasl = login
            .map_or(String::new(), |login| format!(", sasl_method=PLAIN, sasl_username={login}"));
        let shown = match login {
            Some(login) if names_logins => format!(" sasl_method=PLAIN sasl_username={login}"),
            _ => String::new(),
        };
        for message in 0..self.random.within(1, 3) {
            let sender = format!("s{message}.{}@x.test", self.addresses);
            let (many, refused) = (self.random.below(4), self.random.below(3));
            let refuse = |of: &mut Self, at: u64, id: &str, is_unknown: bool| {
                let to = of.truth(client, false, is_unknown);
                let code = if of.random.chance(50) { "550 5.1.1" } else { "450 4.1.1" };
                {
                    let text = format!(
                        "{id}: reject: RCPT from {from}: {code} <{to}>: Recipient address rejected: \
                         User unknown; from=<{sender}> to=<{to}> proto=ESMTP helo=<{name}>{shown}"
                    );
                    of.line(server, at, &tag, text);
                }
            };
            let is_hidden = login.is_some() && shown.is_empty();
            let before = if many > 0 { self.random.below(refused + 1) } else { refused };
            for _ in 0..before {
                let now = self.step(&mut at);
                refuse(self, now, "NOQUEUE", is_hidden);
            }
            if many == 0 {
                continue;
            }
            let now = self.step(&mut at);
            if kind == Kind::Proxy {
                self.line(server, now, &tag, format!("NOQUEUE: client={from}{sasl}"));
                for _ in before..refused {
                    let now = self.step(&mut at);
                    refuse(self, now, "NOQUEUE", is_hidden);
                }
                let now = self.step(&mut at);
                at = self.proxied(server, now, &tag, client, &sender, many);
                continue;
            }
            let (place, id) = self.id(server, now);
            self.line(server, now, &tag, format!("{id}: client={from}{sasl}"));
            for _ in before..refused {
                let now = self.step(&mut at);
                refuse(self, now, &id, false);
            }
            let now = self.step(&mut at);
            let text = format!("{id}: message-id=<m{}@x.test>", self.addresses);
            self.line(server, now, "postfix/cleanup[90]", text);
            let now = self.step(&mut at);
            let after = match self.random.below(10) {
                0 => self.refused_after_data(server, now, client, &id, &sender),
                1 => self.requeued(server, now, client, (place, &id), &sender, many),
                _ => self.queued(server, now, client, &id, &sender, many, kind),
            };
            self.servers[server].ids[place] = self.servers[server].ids[place].min(after);
        }
        let now = self.step(&mut at);
        if !drops_connections {
            let auth = match (login.is_some(), failed) {
                (false, 0) => String::new(),
                (false, failed) => format!(" auth=0/{failed}"),
                (true, 0) => " auth=1".to_owned(),
                (true, failed) => format!(" auth=1/{}", failed + 1),
            };
            let text = format!("disconnect from {from} ehlo=1{auth} quit=1 commands=9");
            self.line(server, now, &tag, text);
        }
        now
    }

    /// A milter or a header check refuses or discards a message.
    fn refused_after_data(
        &mut self,
        server: usize,
        at: u64,
        client: &Client,
        id: &str,
        sender: &str,
    ) -> u64 {
        let Client { name, address, .. } = client;
        let what = self.random.below(3);
        let to = self.truth(client, true, false);
        let fields = format!("from=<{sender}> to=<{to}> proto=ESMTP helo=<{name}>");
        let from = format!("{name}[{address}]");
        let text = match what {
            0 => format!("milter-reject: END-OF-MESSAGE from {from}: 5.7.1 spam; {fields}"),
            1 => format!(
                "reject: header Subject: from x[203.0.113.1]; y from {from}; {fields}: 5.7.1 no"
            ),
            _ => format!("discard: header X-Spam: yes from {from}; {fields}"),
        };
        self.line(server, at, "postfix/cleanup[90]", format!("{id}: {text}"));
        at
    }

    fn active(&mut self, server: usize, at: u64, id: &str, sender: &str, many: usize) {
        let text = format!("{id}: from=<{sender}>, size=900, nrcpt={many} (queue active)");
        self.line(server, at, "postfix/qmgr[80]", text);
    }

    /// Deliveries to other servers, some tried again; when the message has left the queue.
    fn delivered(&mut self, server: usize, at: u64, id: &str, sender: &str, all: &[String]) -> u64 {
        let mut at = at;
        for to in all {
            at += self.random.below(2_000) as u64;
            if self.random.chance(10) {
                let text = format!(
                    "{id}: to=<{to}>, relay=none, delay=1, delays=0/0/1/0, dsn=4.4.1, \
                     status=deferred (connect to mx.y.test[198.51.100.1]:25: Connection timed out)"
                );
                self.line(server, at, "postfix/smtp[70]", text);
                at += 300_000;
                self.active(server, at, id, sender, 1);
            }
            let text = format!(
                "{id}: to=<{to}>, relay=mx.y.test[198.51.100.1]:25, delay=1, delays=0/0/0/1, \
                 dsn=2.0.0, status=sent (250 2.0.0 Ok: queued as {:010X})",
                0xA0_0000_0000_u64 + self.random.below(12) as u64
            );
            self.line(server, at, "postfix/smtp[70]", text);
        }
        at += 1;
        self.line(server, at, "postfix/qmgr[80]", format!("{id}: removed"));
        at
    }

    /// A message is received, through a filter after the queue if there is one.
    #[expect(clippy::too_many_arguments, reason = "all of a message")]
    fn queued(
        &mut self,
        server: usize,
        at: u64,
        client: &Client,
        id: &str,
        sender: &str,
        many: usize,
        kind: Kind,
    ) -> u64 {
        let all: Vec<String> = (0..many).map(|_| self.truth(client, true, false)).collect();
        self.active(server, at, id, sender, many);
        let Kind::Filter { forwards } = kind else {
            return self.delivered(server, at, id, sender, &all);
        };
        let at = at + self.random.below(1_000) as u64;
        let (place, new) = self.id(server, at);
        let Client { name, address, .. } = client;
        let smtpd = "postfix/smtpd[60]";
        self.line(server, at, smtpd, "connect from localhost[127.0.0.1]".to_owned());
        let forwarded = match forwards {
            true => format!(", orig_queue_id={id}, orig_client={name}[{address}]"),
            false => String::new(),
        };
        self.line(server, at, smtpd, format!("{new}: client=localhost[127.0.0.1]{forwarded}"));
        self.line(server, at + 1, "postfix/cleanup[90]", format!("{new}: message-id=<x>"));
        self.active(server, at + 2, &new, sender, many);
        self.line(server, at + 3, smtpd, "disconnect from localhost[127.0.0.1] ehlo=1".to_owned());
        for to in &all {
            let text = format!(
                "{id}: to=<{to}>, relay=127.0.0.1[127.0.0.1]:10024, delay=1, delays=0/0/0/1, \
                 dsn=2.0.0, status=sent (250 2.0.0 from MTA(smtp:[127.0.0.1]:10025): 250 2.0.0 Ok: \
                 queued as {new})"
            );
            self.line(server, at + 4, "postfix/smtp[71]", text);
        }
        self.line(server, at + 5, "postfix/qmgr[80]", format!("{id}: removed"));
        let until = self.delivered(server, at + 20, &new, sender, &all);
        self.servers[server].ids[place] = until;
        at + 5
    }

    /// A message passes a filter before the queue; when its session goes on.
    fn proxied(
        &mut self,
        server: usize,
        at: u64,
        front: &str,
        client: &Client,
        sender: &str,
        many: usize,
    ) -> u64 {
        let Client { name, .. } = client;
        if self.random.chance(20) {
            let to = self.truth(client, true, false);
            let text = format!(
                "proxy-reject: END-OF-MESSAGE: 554 5.7.0 Reject; from=<{sender}> to=<{to}> \
                 proto=ESMTP helo=<{name}>"
            );
            self.line(server, at, front, text);
            return at;
        }
        let all: Vec<String> = (0..many).map(|_| self.truth(client, true, false)).collect();
        let (place, id) = self.id(server, at);
        let smtpd = "postfix/smtpd[60]";
        self.line(server, at, smtpd, "connect from localhost[127.0.0.1]".to_owned());
        self.line(server, at, smtpd, format!("{id}: client=localhost[127.0.0.1]"));
        self.line(server, at + 1, "postfix/cleanup[90]", format!("{id}: message-id=<x>"));
        self.active(server, at + 2, &id, sender, many);
        let last = all.last().map_or("", |to| to);
        let text = format!(
            "proxy-accept: END-OF-MESSAGE: 250 2.0.0 from MTA(smtp:[127.0.0.1]:10025): 250 2.0.0 \
             Ok: queued as {id}; from=<{sender}> to=<{last}> proto=ESMTP helo=<{name}>"
        );
        self.line(server, at + 3, front, text);
        self.line(server, at + 4, smtpd, "disconnect from localhost[127.0.0.1] ehlo=1".to_owned());
        self.servers[server].ids[place] = self.delivered(server, at + 5, &id, sender, &all);
        at + 5
    }

    /// A scanner or the administrator puts a message into the queue again.
    fn requeued(
        &mut self,
        server: usize,
        at: u64,
        client: &Client,
        (_, id): (usize, &str),
        sender: &str,
        many: usize,
    ) -> u64 {
        let all: Vec<String> = (0..many).map(|_| self.truth(client, true, false)).collect();
        let (place, new) = self.id(server, at);
        let mut at = at;
        if self.random.chance(50) {
            self.line(server, at, "MailScanner[33]", format!("Requeue: {id}.AE4DF to {new}"));
            at += 1;
        } else {
            self.active(server, at, id, sender, many);
            for to in &all {
                let text = format!(
                    "{id}: to=<{to}>, relay=none, delay=1, delays=0/0/1/0, dsn=4.4.1, \
                     status=deferred (no route)"
                );
                self.line(server, at + 1, "postfix/smtp[70]", text);
            }
            let text = format!("{id}: requeued");
            self.line(server, at + 2, "postfix/postsuper[44]", text);
            let text = format!("{new}: uid=0 from=<{sender}> orig_id={id}");
            self.line(server, at + 3, "postfix/pickup[45]", text);
            self.line(server, at + 4, "postfix/cleanup[90]", format!("{new}: message-id=<x>"));
            at += 5;
        }
        self.active(server, at, &new, sender, many);
        self.servers[server].ids[place] = self.delivered(server, at, &new, sender, &all);
        // The old one was never removed in the log.
        at
    }

    fn of_exim(&mut self, server: usize, at: u64, pid: usize, client: &Client) -> u64 {
        let Server { kind, .. } = self.servers[server].clone();
        let tag = format!("exim[{pid}]");
        let Client { name, address, login, port } = client;
        let port = match kind {
            Kind::Exim { ports: true } => format!(":{port}"),
            _ => String::new(),
        };
        let host = format!("H=({name}) [{address}]{port}");
        let mut at = at;
        for _ in 0..if self.random.chance(15) { self.random.within(1, 4) } else { 0 } {
            at += if self.random.chance(70) { 1 } else { 1500 };
            let text = format!(
                "login authenticator failed for ({name}) [{address}]{port}: 535 Incorrect \
                 authentication data (set_id=x)"
            );
            self.line(server, at, &tag, text);
            *self.made.failed_logins.entry(address.clone()).or_default() += 1;
        }
        let auth = login.as_ref().map_or(String::new(), |login| format!(" A=plain:{login}"));
        for message in 0..self.random.within(1, 3) {
            let sender = format!("s{message}.{}@x.test", self.addresses);
            for _ in 0..self.random.below(3) {
                let to = self.truth(client, false, false);
                let now = self.step(&mut at);
                let text = format!("{host} F=<{sender}>{auth} rejected RCPT <{to}>: unknown user");
                self.line(server, now, &tag, text);
            }
            let many = self.random.below(4);
            if many == 0 {
                continue;
            }
            let all: Vec<String> = (0..many).map(|_| self.truth(client, true, false)).collect();
            let now = self.step(&mut at);
            // Of another process, which no other session has.
            let id = format!("1vM1aC-{:011}-1aBc", self.addresses);
            let text = format!(
                "{id} <= {sender} {host} P=esmtp{auth} S=900 id=m@x.test for {}",
                all.join(" ")
            );
            self.line(server, now, &tag, text);
            for to in &all {
                let text = format!("{id} => {to} R=dnslookup T=remote_smtp H=mx [198.51.100.1]");
                self.line(server, now + 500, "exim[90]", text);
            }
            self.line(server, now + 501, "exim[90]", format!("{id} Completed"));
        }
        at
    }

    /// The lines in the order of time, as rsyslog writes them: of equal ones, how many there were.
    fn finish(mut self) -> Made {
        self.lines.sort_by_key(|line| line.at);
        let is_exact = self.random.chance(50);
        let counts_equal = self.random.chance(50);
        let mut last: Option<(String, String, usize)> = None;
        let mut log = String::new();
        for Line { at, server, tag, text } in &self.lines {
            let seconds = at / 1000;
            let (day, clock) = (10 + seconds / 86_400, seconds % 86_400);
            let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
            let name = &self.servers[*server].name;
            let stamp = match is_exact {
                true => format!(
                    "2026-11-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}000+00:00",
                    at % 1000
                ),
                false => format!("Nov {day:2} {hour:02}:{minute:02}:{second:02}"),
            };
            let head = format!("{name} {tag}: ");
            if let Some((before, line, count)) = &mut last {
                if counts_equal && *before == head && line == text {
                    *count += 1;
                    continue;
                }
                if *count > 0 {
                    let _ =
                        writeln!(log, "{stamp} {before}message repeated {count} times: [ {line}]");
                    self.made.repeated += *count - 1;
                }
            }
            let _ = writeln!(log, "{stamp} {head}{text}");
            last = Some((head, text.clone(), 0));
        }
        if let Some((before, line, count @ 1..)) = &last {
            let _ = writeln!(
                log,
                "2026-11-20T00:00:00+00:00 {before}message repeated {count} times: [ {line}]"
            );
            self.made.repeated += *count - 1;
        }
        self.made.log = log;
        self.made
    }
}
