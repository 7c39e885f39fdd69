//! `exirate stats`.

use std::collections::HashMap;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use exirate::policy::counters::{Checked, Counters, RuleName};
use exirate::policy::limit::Per;
use exirate::policy::word::{Unit, Verdict};
use exirate::redis::{
    AgentState, KnownServer, KnownServers, PolicyState, servers_file, write_servers,
};

use crate::prepared::{Prepared, source};
use crate::{json, run, stderr, stdout};

fn fill(spool: &Path) {
    for (spec, key, count) in [
        ("10 / 1w / strict", "a", "30"),
        ("10 / 1w / strict", "b", "3"),
        ("100 / 1d / per_addr / strict", "c", "1"),
    ] {
        let check =
            ["check", "--count", spec, "--key", key, "--cost", count, "--recipient", "x@y.test"];
        assert_eq!(stderr(&run(spool, &check)), "");
    }
}

#[test]
fn keys_are_counted_by_their_kinds() {
    let spool = tempfile::tempdir().unwrap();
    fill(spool.path());
    let stats = json(&run(spool.path(), &["stats", "--json"]));
    assert_eq!((&stats["keys"], &stats["over"]), (&3.into(), &1.into()));
    assert_eq!(stats["max_bytes"], 1 << 30);
    let disk = stats["disk_bytes"].as_u64().unwrap();
    assert!(disk > 0 && stats["fill"].as_f64().unwrap() == disk as f64 / f64::from(1 << 30));
    let kinds = stats["kinds"].as_array().unwrap();
    assert_eq!(kinds.len(), 2);
    assert_eq!((&kinds[0]["period"], &kinds[0]["mode"]), (&"1d".into(), &"per_addr".into()));
    assert_eq!((&kinds[1]["keys"], &kinds[1]["over"]), (&2.into(), &1.into()));
    let bytes: u64 = kinds.iter().map(|kind| kind["bytes"].as_u64().unwrap()).sum();
    assert_eq!(
        stats["heap_bytes"].as_u64().unwrap() - stats["dead_bytes"].as_u64().unwrap(),
        bytes
    );
    let human = stdout(&run(spool.path(), &["stats"]));
    assert!(human.starts_with("keys        3, 1 blocked now\n"), "{human}");
    assert!(human.contains("1w      per_mail"), "{human}");
}

/// A server that shares limits has counts of them.
#[test]
fn shared_limits_are_counted() {
    let spool = tempfile::tempdir().unwrap();
    fill(spool.path());
    let stats = |arguments: &[&str]| stdout(&run(spool.path(), &[&["stats"], arguments].concat()));
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(json(&stats(&["--json"]))["cluster"], serde_json::Value::Null);
    assert!(!stats(&["--prometheus"]).contains("exirate_cluster"));
    run(spool.path(), &["cluster", "join", "--servers", "3", "--agent-user", "0"]);
    let expected =
        r#"{"servers":3,"is_away":false,"decided_shared":0,"decided_apart":0,"apart_over":0}"#;
    assert_eq!(json(&stats(&["--json"]))["cluster"], json(expected));
    assert!(
        stats(&[]).contains("\nshared      by 3 servers\n  decided   0 events"),
        "{}",
        stats(&[])
    );
    let samples = check_exposition(&stats(&["--prometheus"]));
    assert_eq!(samples["exirate_cluster_servers"], 3.0);
    assert_eq!(samples["exirate_cluster_decided_apart_total"], 0.0);
}

#[test]
fn what_can_be_read_is_counted_all_the_same() {
    let spool = tempfile::tempdir().unwrap();
    fill(spool.path());
    let shards = std::fs::read_dir(spool.path().join("exirate")).unwrap();
    let mut shards = shards.map(|entry| entry.unwrap().path());
    let shard = shards.find(|path| path.extension().is_some_and(|e| e == "shard")).unwrap();
    let mut bytes = std::fs::read(&shard).unwrap();
    bytes[20] ^= 1;
    std::fs::write(shard, bytes).unwrap();
    let output = run(spool.path(), &["stats", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let stats: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(stats["shards_unreadable"], 1);
    assert!(stats["keys"] == 2 || stats["keys"] == 1, "{stats}");
    assert!(stats["disk_bytes"].as_u64().unwrap() > 0, "{stats}");
    assert!(stderr(&output).contains("its header is damaged"), "{}", stderr(&output));
    let output = run(spool.path(), &["stats", "--prometheus"]);
    assert!(stdout(&output).contains("\nexirate_unreadable_shards 1\n"), "{}", stdout(&output));
}

/// What Prometheus's text format asks for, in the words of its documentation.
fn check_exposition(text: &str) -> HashMap<String, f64> {
    let name_is_right = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == ':')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
    };
    assert!(text.ends_with('\n'), "the last line must end with a line feed");
    let mut samples = HashMap::new();
    let (mut helped, mut types) = (Vec::new(), HashMap::new());
    let mut current = "";
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').unwrap();
            assert!(name_is_right(name) && !words.is_empty(), "{line}");
            assert!(!helped.contains(&name), "a second HELP: {line}");
            helped.push(name);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!(helped.last(), Some(&name), "HELP must come before: {line}");
            assert!(types.insert(name, kind).is_none(), "a second TYPE: {line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(["counter", "gauge"].contains(&kind), "{line}");
            current = name;
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let name = series.split('{').next().unwrap();
            assert_eq!(name, current, "a sample must follow its TYPE: {line}");
            if let Some(labels) = series.strip_prefix(name).filter(|labels| !labels.is_empty()) {
                let labels = labels.strip_prefix('{').unwrap().strip_suffix('}').unwrap();
                for label in labels.split("\",") {
                    let (label, value) = label.split_once("=\"").unwrap();
                    assert!(name_is_right(label) && !label.contains(':'), "{line}");
                    let value = value.strip_suffix('"').unwrap_or(value);
                    let plain = value.replace(r"\\", "").replace("\\\"", "").replace(r"\n", "");
                    assert!(!plain.contains(['"', '\\']), "{line}");
                }
            }
            let value = value.parse().unwrap();
            assert!(samples.insert(series.to_owned(), value).is_none(), "twice: {line}");
        }
    }
    assert_eq!(helped.len(), types.len());
    samples
}

#[test]
fn prometheus_gets_what_its_format_asks_for() {
    let spool = tempfile::tempdir().unwrap();
    fill(spool.path());
    let odd = r#"{"key":"1\"\\\n/per/x","rate":1,"limit":1,"seconds":5,"micros":0,"over_since":0}"#;
    let file = spool.path().join("odd.jsonl");
    std::fs::write(&file, format!("{{\"exirate_export\":1}}\n{odd}\n")).unwrap();
    run(spool.path(), &["import", file.to_str().unwrap()]);

    let samples = check_exposition(&stdout(&run(spool.path(), &["stats", "--prometheus"])));
    assert!(samples.len() > 15, "{samples:?}");
    let keys = r#"exirate_keys{period="1w",mode="per_mail"}"#;
    assert_eq!(samples[keys], 2.0);
    assert_eq!(samples[r#"exirate_keys_over_limit{period="1w",mode="per_mail"}"#], 1.0);
    assert_eq!(samples["exirate_evicted_total"], 0.0);

    let file = spool.path().join("exirate.prom");
    std::fs::write(&file, "old").unwrap();
    let output = run(spool.path(), &["stats", "--prometheus", file.to_str().unwrap()]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), ""));
    assert_eq!(check_exposition(&std::fs::read_to_string(&file).unwrap())[keys], 2.0);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o444, 0o444);
    assert!(!spool.path().join("exirate.prom.tmp").exists());
    let output = run(spool.path(), &["stats", "--prometheus", "/nonexistent/x.prom"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cannot write /nonexistent/x.prom"), "{}", stderr(&output));
}

#[test]
fn many_kinds_are_counted_wholly_or_as_others() {
    let spool = tempfile::tempdir().unwrap();
    let mut lines = "{\"exirate_export\":1}\n".to_owned();
    for (minutes, key) in (1..=120).flat_map(|minutes| (0..3).map(move |key| (minutes, key))) {
        lines += &format!("{{\"key\":\"{minutes}m/per_mail/k{key}\",\"rate\":1,\"limit\":9,");
        lines += "\"seconds\":1795170000,\"micros\":0,\"over_since\":0}\n";
    }
    let file = spool.path().join("export.jsonl");
    std::fs::write(&file, lines).unwrap();
    run(spool.path(), &["import", file.to_str().unwrap()]);
    let stats = json(&run(spool.path(), &["stats", "--json"]));
    let kinds = stats["kinds"].as_array().unwrap();
    assert_eq!(kinds.len(), 101);
    let keys = |kind: &serde_json::Value| kind["keys"].as_u64().unwrap();
    assert_eq!(kinds.iter().map(keys).sum::<u64>(), 360);
    assert!(kinds.iter().all(|kind| kind["mode"] == "" || keys(kind) == 3), "{kinds:?}");
}

/// Counts checks as Exim does.
fn count_policies(spool: &Path) {
    let mut counters = Counters::new(spool);
    let mut count = |policy, observed, verdict| {
        let rule = RuleName::new(Unit::Recipients, false, "100/1h", Per::Key);
        counters.count(&Checked { policy, rule, observed, verdict });
    };
    count("outbound", false, Verdict::Accept);
    count("outbound", false, Verdict::Defer);
    count("outbound", true, Verdict::Reject);
    // No policy has this name.
    count("a\"\\b", false, Verdict::Log);
    counters.count_error();
}

#[test]
fn the_checks_of_policies_are_counted() {
    let spool = tempfile::tempdir().unwrap();
    fill(spool.path());
    assert_eq!(json(&run(spool.path(), &["stats", "--json"]))["policies"], serde_json::Value::Null);
    let human = stdout(&run(spool.path(), &["stats"]));
    assert!(!human.contains("policies"), "{human}");
    count_policies(spool.path());
    let policies = &json(&run(spool.path(), &["stats", "--json"]))["policies"];
    assert_eq!((&policies["errors"], &policies["uncounted"]), (&1.into(), &0.into()));
    let rules = policies["rules"].as_array().unwrap();
    let row = |n: usize| {
        let rule: &serde_json::Value = &rules[n];
        [&rule["policy"], &rule["rule"], &rule["mode"]].map(|text| text.as_str().unwrap()).join(" ")
    };
    assert_eq!(row(1), "outbound recipients/1h enforce");
    assert_eq!((&rules[1]["checks"], &rules[1]["refused"]), (&2.into(), &1.into()));
    assert_eq!(row(2), "outbound recipients/1h observe");
    assert_eq!(rules[2]["verdicts"]["reject"], 1);
    let human = stdout(&run(spool.path(), &["stats"]));
    assert!(human.contains("\npolicies    4 checks of rules, 1 evaluations failed\n"), "{human}");
    let line = "     2    0      0     0      1       0  enforce  outbound  recipients/1h";
    assert!(human.contains(line), "{human}");
    let samples = check_exposition(&stdout(&run(spool.path(), &["stats", "--prometheus"])));
    let labels = r#"rule="recipients/1h",mode="enforce",verdict="#;
    for (name, value) in [
        (format!(r#"{{policy="outbound",{labels}"defer"}}"#), 1.0),
        (format!(r#"{{policy="outbound",{labels}"hold"}}"#), 0.0),
        (format!(r#"{{policy="a\"\\b",{labels}"log"}}"#), 1.0),
    ] {
        assert_eq!(samples[&*format!("exirate_policy_checks_total{name}")], value, "{name}");
    }
    assert_eq!(samples["exirate_policy_errors_total"], 1.0);
    // A damaged file is as none: the next check replaces it.
    std::fs::write(spool.path().join("exirate/policy.counters"), "x").unwrap();
    assert_eq!(json(&run(spool.path(), &["stats", "--json"]))["policies"], serde_json::Value::Null);
}

#[test]
fn the_alerts_pass_promtool_and_use_metrics_that_exist() {
    let root = Path::new(crate::prepared::ROOT);
    let rules = root.join("scripts/maintenance/exirate.rules.yml");
    let tests = root.join("tests/cli/exirate.rules.test.yml");
    for (arguments, file) in [(["check", "rules"], &rules), (["test", "rules"], &tests)] {
        let output = Command::new("promtool").args(arguments).arg(file).output().unwrap();
        assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    }
    let (text, documented) = (std::fs::read_to_string(&rules).unwrap(), source("docs/metrics.md"));
    let tested = std::fs::read_to_string(&tests).unwrap();
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let mut names = 0;
    for (at, _) in text.match_indices("exirate_") {
        let name = text[at..].split(|c| !is_name(c)).next().unwrap();
        assert!(documented.contains(&format!("| `{name}` |")), "{name} is no metric");
        names += 1;
    }
    assert!(names > 8, "{text}");
    for alert in text.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let times = tested.matches(&format!("alertname: {alert}")).count();
        assert!(times >= 2, "{alert} is not tested to be raised and not to be raised");
    }
}

/// A server, and one whose agent was never seen, with a name that must be escaped.
fn two_servers() -> KnownServers {
    let agent = AgentState {
        release: "0.1.0".into(),
        id: 1,
        started: 1_795_171_837,
        seen: 1_795_171_890,
        decisions: 12_345_678_901,
        clock: -0.000_125,
        servers: 3,
        secret: None,
        conflict: false,
        primary: None,
        config: None,
    };
    let policy = PolicyState { digest: "a".repeat(32), written: 1_795_171_900 };
    let first = KnownServer { agent: Some(agent), policy: None };
    let second = KnownServer { agent: None, policy: Some(policy) };
    let servers = [("mx1".to_owned(), first), ("mx\"2".to_owned(), second)].into();
    KnownServers { now: 1_795_171_900, servers, unreadable: 0 }
}

#[test]
fn metrics_of_both_stores_pass_promtool_and_are_documented() {
    let machine = Prepared::new();
    count_policies(&machine.spool());
    let apply = machine.run("exirate policy apply /etc/exirate/policy.toml");
    assert!(apply.status.success(), "{}", stderr(&apply));
    machine.count_usage();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("agent.sock");
    let socket = socket.to_str().unwrap();
    write_servers(&servers_file(Path::new(socket)), &two_servers(), "mx1", 1 << 53).unwrap();
    machine.run(&format!("exirate cluster join --servers 3 --agent-user 0 --socket {socket}"));
    let metrics = stdout(&machine.run("exirate stats --prometheus"));
    assert!(metrics.contains("\nexirate_keys{period=\"1h\",mode=\"per_rcpt\"} 3\n"), "{metrics}");
    let messages = stdout(&machine.run("exirate stats --json | jq .trace.messages"));
    assert!(messages.trim().parse::<u64>().unwrap() > 0, "{messages}");
    let line = format!("\nexirate_trace_messages {messages}");
    for line in [
        &line,
        "\nexirate_cluster_server_info{server=\"mx\\\"2\",release=\"\",policy=\"aaaa\"} 1\n",
        "\nexirate_cluster_server_seen_timestamp_seconds{server=\"mx1\"} 1795171890\n",
        "\nexirate_cluster_server_clock_offset_seconds{server=\"mx1\"} -0.000125\n",
        "\nexirate_cluster_server_decisions_total{server=\"mx1\"} 12345678901\n",
    ] {
        assert!(metrics.contains(&line.replace("aaaa", &"a".repeat(32))), "{line}: {metrics}");
    }

    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    promtool.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{metrics}");

    let documented = source("docs/metrics.md");
    let mut names = std::collections::HashSet::new();
    for line in metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        assert!(names.insert(name), "{name} has two types");
        assert!(documented.contains(&format!("| `{name}` | {kind} |")), "{name} {kind}");
    }
    assert_eq!(documented.matches("\n| `exirate_").count(), names.len());
}
