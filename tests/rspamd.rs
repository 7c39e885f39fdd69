//! The leaky bucket decides as a real rspamd does: the same random messages at the
//! same times, over HTTP, with Redis.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use exirate::engine::{Algorithm, Check, Kind, RecordKey, Update};
use exirate::event::{Event, Origin};
use exirate::policy::image::{Image, build};
use exirate::policy::replay::{Recipients, Replay, ReplayEvent, Stage};
use exirate::policy::source::compile;
use exirate::policy::word::Verdict;
use exirate::rate::Timestamp;
use exirate::store::{Memory, Store as _};
use kit::Random;
use rustix::process::{Pid, Signal, kill_process};

/// A process that ends with its test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // rspamd's main process ends its workers.
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

/// The rules of rspamd: name, burst, and leak a second. Times are eighths of a second, and
/// 1000/8192 is exact as a double, by the second and by the millisecond; so the sums of the
/// first rules are exact, and events that fill a bucket to the brim compare alike. The
/// other bursts are reached by no sum.
const RULES: [(&str, f64, f64); 6] = [
    ("user", 6.0, 0.122_070_312_5),
    ("to", 12.0, 0.488_281_25),
    ("to_ip", 8.0, 0.244_140_625),
    ("to_ip_from", 5.3, 0.1),
    ("bounce_to", 4.7, 0.05),
    ("bounce_to_ip", 3.0, 0.061_035_156_25),
];

const SENDERS: [&str; 4] =
    ["news@example.org", "bob@example.net", "postmaster@example.com", "mailer-daemon@example.com"];
const RECIPIENTS: [&str; 6] = [
    "a@example.org",
    "b@example.org",
    "c@example.net",
    "d@example.net",
    "e@example.com",
    "f@example.com",
];
const CLIENTS: [&str; 3] = ["192.0.2.7", "192.0.2.8", "198.51.100.9"];
const USERS: [Option<&str>; 4] = [None, None, Some("alice"), Some("bob")];
const EXEMPT: &str = "postmaster@example.org";

struct Message {
    sender: &'static str,
    recipients: Vec<&'static str>,
    client: &'static str,
    user: Option<&'static str>,
}

/// The bucket that a rule selects for a message, if it applies.
fn bucket_of(rule: &str, message: &Message) -> Option<String> {
    let parts = rule.split('_').map(|word| match word {
        "user" => message.user.map(str::to_owned),
        "to" => message.recipients.first().map(|&to| to.to_owned()),
        "ip" => Some(message.client.to_owned()),
        "from" => Some(message.sender.to_owned()),
        "bounce" => ["postmaster@", "mailer-daemon@"]
            .iter()
            .any(|user| message.sender.starts_with(user))
            .then(|| "_".to_owned()),
        _ => panic!("{word}"),
    });
    let parts: Option<Vec<String>> = parts.collect();
    Some(format!("{rule}:{}", parts?.join(":")))
}

/// Whether our engine refuses the message.
fn refused(store: &mut Memory, message: &Message, eighths: i64) -> bool {
    if message.recipients.contains(&EXEMPT) {
        return false;
    }
    let buckets: Vec<_> = RULES
        .iter()
        .filter_map(|&(rule, burst, rate)| Some((bucket_of(rule, message)?, burst, rate)))
        .collect();
    let checks: Vec<_> = buckets.iter().map(|bucket| check(bucket, message)).collect();
    let mut decisions = Vec::new();
    let now = time(eighths);
    store.decide(&checks, || now, &mut decisions).unwrap();
    decisions.iter().any(|decision| decision.over)
}

fn check<'a>((name, burst, rate): &'a (String, f64, f64), message: &Message) -> Check<'a> {
    Check {
        count: message.recipients.len() as f64,
        update: Update::Leaky,
        ..Check::new(
            RecordKey { kind: Kind::Policy, ..name.into() },
            Algorithm::Bucket { burst: *burst, rate: *rate },
        )
    }
}

fn time(eighths: i64) -> Timestamp {
    let micros = u32::try_from(eighths.rem_euclid(8)).unwrap() * 125_000;
    Timestamp { seconds: 1_700_000_000 + eighths.div_euclid(8), micros }
}

/// rspamd's action on the message.
fn action(socket: &Path, message: &Message, eighths: i64) -> std::io::Result<String> {
    let body = "From: a@example.org\nSubject: x\n\ntext\n";
    let mut request = format!(
        "POST /checkv2 HTTP/1.0\r\nContent-Length: {}\r\nX-Now: {:.3}\r\nIP: {}\r\nFrom: <{}>\r\n",
        body.len(),
        time(eighths).as_seconds(),
        message.client,
        message.sender
    );
    for recipient in &message.recipients {
        request += &format!("Rcpt: {recipient}\r\n");
    }
    if let Some(user) = message.user {
        request += &format!("User: {user}\r\n");
    }
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(kit::TIMEOUT))?;
    stream.write_all(format!("{request}\r\n{body}").as_bytes())?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let json = reply.split("\r\n\r\n").nth(1).unwrap_or_default();
    let json: serde_json::Value = serde_json::from_str(json)?;
    Ok(json["action"].as_str().unwrap_or_default().to_owned())
}

fn start(program: &str, arguments: &[&str]) -> Process {
    let child = Command::new(program)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{program} (install rspamd and redis-server): {error}"));
    Process(child)
}

/// The configuration of the first test.
fn rules() -> String {
    let rules: String = RULES
        .iter()
        .map(|(name, burst, rate)| {
            format!("{name} {{ bucket = [ {{ burst = {burst}; rate = {rate}; }} ] }}\n")
        })
        .collect();
    format!("rates {{ {rules} }} whitelisted_rcpts = \"postmaster,mailer-daemon\";")
}

fn configure(dir: &Path, ratelimit: &str) {
    let dir_text = dir.display();
    let configuration = format!(
        r#"options {{ filters = ""; pidfile = "{dir_text}/pid"; tempdir = "{dir_text}"; hs_cache_dir = "{dir_text}";
  url_tld = "{dir_text}/tld"; local_addrs = []; control_socket = "{dir_text}/control mode=0600"; }}
logging {{ type = "file"; filename = "{dir_text}/log"; level = "warning"; }}
worker "normal" {{ bind_socket = "{dir_text}/http mode=0600"; count = 1; task_timeout = 15s; }}
lua = "{dir_text}/clock.lua";
actions {{ reject = 1500; }}
modules {{ path = "/usr/share/rspamd/plugins/ratelimit.lua"; }}
redis {{ servers = "{dir_text}/redis"; timeout = 15s; }}
ratelimit {{ {ratelimit}
  max_rate_mult = 1; max_bucket_mult = 1; allow_local = true; }}
"#
    );
    std::fs::write(dir.join("rspamd.conf"), configuration).unwrap();
    std::fs::write(dir.join("tld"), "com\nnet\norg\n").unwrap();
    // The module's clock is that of the request.
    let clock = r#"local util = require "rspamd_util"
local now = 0
util.get_time = function() return now end
rspamd_config:register_symbol{ type = 'prefilter', name = 'SET_CLOCK', priority = 100,
  flags = 'empty,nostat', callback = function(task)
    now = tonumber(tostring(task:get_request_header('X-Now')))
  end }
"#;
    std::fs::write(dir.join("clock.lua"), clock).unwrap();
}

/// A rspamd with its Redis.
struct Rspamd {
    _processes: [Process; 2],
    folder: tempfile::TempDir,
}

impl Rspamd {
    /// Starts them; the rule `user` must refuse 99 recipients.
    fn new(ratelimit: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        configure(dir, ratelimit);
        let text = |name: &str| dir.join(name).display().to_string();
        let redis = start(
            "redis-server",
            &["--port", "0", "--unixsocket", &text("redis"), "--save", "", "--dir", &text("")],
        );
        let rspamd = start("rspamd", &["-f", "-i", "-c", &text("rspamd.conf")]);
        // Ready as soon as it limits: Redis has the scripts then.
        let begin = Instant::now();
        let probe = Message {
            sender: "probe@example.org",
            recipients: vec!["probe@example.org"; 99],
            client: "203.0.113.1",
            user: Some("probe"),
        };
        let socket = dir.join("http");
        while !action(&socket, &probe, 0).is_ok_and(|action| action == "soft reject") {
            assert!(begin.elapsed() < kit::TIMEOUT, "rspamd does not limit anything");
            std::thread::sleep(Duration::from_millis(50));
        }
        Self { _processes: [rspamd, redis], folder }
    }

    fn action(&self, message: &Message, eighths: i64) -> String {
        action(&self.folder.path().join("http"), message, eighths).unwrap()
    }
}

#[test]
fn every_verdict_is_that_of_rspamd() {
    let rspamd = Rspamd::new(&rules());
    let (mut store, mut random, mut eighths) = (Memory::new(), Random::new(1), 8);
    let (mut over, mut exempt) = (0, 0);
    for number in 0..4000 {
        eighths += i64::try_from(random.below(64)).unwrap();
        if random.below(200) == 0 {
            eighths += 8000;
        }
        let many = [1, 1, 1, 2, 3, 5, 9][random.below(7)];
        let mut recipients: Vec<_> = (0..many).map(|_| random.pick(&RECIPIENTS)).collect();
        if random.below(20) == 0 {
            recipients.push(EXEMPT);
            exempt += 1;
        }
        let message = Message {
            sender: random.pick(&SENDERS),
            recipients,
            client: random.pick(&CLIENTS),
            user: random.pick(&USERS),
        };
        let ours = refused(&mut store, &message, eighths);
        let theirs = rspamd.action(&message, eighths);
        let verdict = if ours { "soft reject" } else { "no action" };
        assert_eq!(theirs, verdict, "message {number} at {eighths}/8 s: {:?}", message.recipients);
        over += u32::from(ours);
    }
    assert!((500..3500).contains(&over) && exempt > 100, "{over} refused, {exempt} exempt");
}

/// What rspamd is given, and the same in the language of policies.
const WRITTEN: [&str; 2] = [
    r#"rates {
    user { bucket = [ { burst = 6; rate = 0.1220703125; },
                      { burst = 4; rate = 0.030517578125; skip_recipients = true; } ] }
    bounce_to { bucket = { burst = 3; rate = "1 / 64"; } }
  }
  whitelisted_rcpts = "abuse,webmaster"; whitelisted_user = ["carol"]; whitelisted_ip = ["10.0.0.0/8"];"#,
    r#"version = 1
[identity]
relay = ["10.0.0.0/8"]
[policy.user]
when = ["authenticated", "!relay"]
key = ["auth"]
bucket = [{ burst = 6, rate = 0.1220703125 }, { burst = 4, rate = 0.030517578125, unit = "messages" }]
[[policy.user.exempt]]
match = ["carol"]
[policy.bounces]
when = ["null_sender", "!relay"]
key = ["recipient"]
bucket = { burst = 3, rate = "1 / 64" }
[[policy.bounces.exempt]]
recipients = ["abuse@example.org"]
"#,
];

#[test]
fn what_the_policy_language_says_is_what_rspamd_does() {
    let rspamd = Rspamd::new(WRITTEN[0]);
    let none = |_: &Path| Err("no file".to_owned());
    let compiled = compile(Path::new("policy.toml"), WRITTEN[1], &none);
    let policies = compiled.policies.unwrap_or_else(|| panic!("{:?}", compiled.diagnostics));
    let image = Image::from_bytes(build(&policies)).unwrap();
    let mut replay = Replay::new(&image, "*").unwrap();
    let (mut store, mut random, mut eighths) = (Memory::new(), Random::new(1), 8);
    let mut over = [0; 2];
    for number in 0..2000 {
        eighths += i64::try_from(random.below(16)).unwrap();
        if random.below(100) == 0 {
            eighths += 8000;
        }
        let client = random.pick(&["192.0.2.7", "198.51.100.9", "10.1.2.3"]);
        let message = if random.below(2) == 0 {
            let to = random.pick(&["a@example.org", "b@example.net", "abuse@example.org"]);
            Message { sender: "", recipients: vec![to], client, user: None }
        } else {
            let many = [1, 1, 1, 2, 3, 7][random.below(6)];
            let user = random.pick(&[Some("alice"), Some("bob"), Some("carol"), None]);
            let recipients = (0..many).map(|_| random.pick(&RECIPIENTS)).collect();
            Message { sender: "s@example.org", recipients, client, user }
        };
        // A bounce has one recipient; all of another message are decided at once.
        let bounce = message.sender.is_empty();
        let event = ReplayEvent {
            stage: if bounce { Stage::Rcpt } else { Stage::Data },
            event: Event {
                auth: message.user.map(str::to_owned),
                client: Origin::of_client(message.client.parse().ok()),
                sender: Some(message.sender.to_owned()),
                ..Event::default()
            },
            recipients: match &message.recipients[..] {
                [one] if bounce => Recipients::Addresses(vec![(*one).to_owned()]),
                all => Recipients::Count(u32::try_from(all.len()).unwrap()),
            },
            ..ReplayEvent::at(time(eighths))
        };
        let decisions = replay.decide(&event, &mut store).unwrap();
        let ours = decisions.outcome.verdict >= Verdict::Defer;
        let verdict = if ours { "soft reject" } else { "no action" };
        let theirs = rspamd.action(&message, eighths);
        assert_eq!(theirs, verdict, "message {number}: {event:?}");
        over[usize::from(bounce)] += u32::from(ours);
    }
    assert!(over.iter().all(|over| (100..900).contains(over)), "{over:?} refused");
}
