//! What docs/containers.md shows: its compose files, read by a parser of YAML, and its configuration.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use serde_json::Value;

const PAGE: &str = include_str!("../../docs/containers.md");
const PORT: u16 = 10040;

/// The fenced blocks of this language.
fn blocks(language: &str) -> Vec<&'static str> {
    let start = format!("```{language}\n");
    let rest = PAGE.split(&start).skip(1);
    rest.map(|rest| rest.split_once("```").unwrap().0).collect()
}

/// The compose files.
fn compose_files() -> Vec<Value> {
    let parse = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))";
    let read = |text: &&str| {
        let mut python = Command::new("/usr/bin/python3");
        python.args(["-c", parse]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut python = python.spawn().unwrap();
        python.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = python.wait_with_output().unwrap();
        assert!(output.status.success(), "{text}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    blocks("yaml").iter().map(read).collect()
}

/// The first address and the number of addresses of a network.
fn network(text: &str) -> (u32, u32) {
    let (address, bits) = text.split_once('/').unwrap();
    let first = address.parse::<Ipv4Addr>().unwrap().to_bits();
    (first, 1 << (32 - bits.parse::<u32>().unwrap()))
}

fn has((first, count): (u32, u32), address: u32) -> bool {
    (first..first + count).contains(&address)
}

#[test]
fn compose_files_give_exirate_a_network_of_its_own_and_no_rights() {
    let files = compose_files();
    let servers = ["mail", "mailserver", "postfix-mailcow", "smtp", "mail"];
    assert_eq!(files.len(), servers.len());
    for (file, server) in files.iter().zip(servers) {
        let services = file["services"].as_object().unwrap();
        assert_eq!(services.len(), 2);
        let own = &services["exirate"];
        assert_eq!(own["read_only"], true);
        assert_eq!(own["cap_drop"][0], "ALL");
        assert_eq!(own["security_opt"][0], "no-new-privileges:true");
        let volumes: Vec<&str> =
            own["volumes"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
        assert!(volumes[0].ends_with(":/etc/exirate:ro"), "{volumes:?}");
        assert_eq!(volumes[1], "exirate:/var/lib/exirate");
        assert!(file["volumes"].as_object().unwrap().contains_key("exirate"));
        // Nobody else reaches it, and the mail server does.
        assert!(own.get("ports").is_none());
        assert_eq!(own["networks"].as_object().unwrap().len(), 1);
        let joined = &services[server]["networks"];
        let joins = joined.as_array().is_some_and(|all| all.contains(&"exirate".into()))
            || joined.get("exirate").is_some();
        assert!(joins, "{server}");
        assert_eq!(file["networks"]["exirate"]["internal"], true);
        let addresses = &file["networks"]["exirate"]["ipam"]["config"][0];
        let subnet = network(addresses["subnet"].as_str().unwrap());
        let range = network(addresses["ip_range"].as_str().unwrap());
        let fixed = own["networks"]["exirate"]["ipv4_address"].as_str().unwrap();
        let address = fixed.parse::<Ipv4Addr>().unwrap().to_bits();
        assert!(has(subnet, address) && !has(range, address), "{fixed}");
        assert!(has(subnet, range.0) && !has(range, subnet.0 + 1), "the gateway is outside");
        let allow = format!("\nallow = [{}]\n", addresses["ip_range"]);
        assert!(blocks("toml")[0].contains(&allow), "{allow}");
        let asked = format!("inet:{fixed}:{PORT}");
        assert_eq!(PAGE.matches(&asked).count(), 2, "Postfix and Exim ask {asked}");
        let health = own["healthcheck"]["test"].as_array().unwrap();
        let health: Vec<&str> = health.iter().map(|word| word.as_str().unwrap()).collect();
        assert_eq!(health, ["CMD", "exirate", "status", "--health"]);
    }
}

#[test]
fn the_configuration_can_be_used() {
    let dir = tempfile::tempdir().unwrap();
    let [config, policy] = ["exirate.toml", "policy.toml"].map(|name| dir.path().join(name));
    let [text, limits] = blocks("toml")[..] else { panic!("a configuration and a policy file") };
    // Where the directories are for this test.
    let text = text.replace("/var/lib/exirate\"", &format!("{}\"", dir.path().display()));
    let text = text.replace("/etc/exirate/policy.toml", &policy.display().to_string());
    std::fs::write(&config, text).unwrap();
    std::fs::write(&policy, limits).unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_exirate"));
    check.args(["serve", "mail", "--check", "--user", "root", "--config"]).arg(config);
    let output = check.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}{output:?}");
    assert!(said.contains("policy inet:0.0.0.0:10040, database in "), "{said}");
}
