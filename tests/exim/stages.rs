//! The ACL stages and what is logged there, in a real Exim:
//! what cannot be compared with native, which knows ACLs only.

use kit::{EntryPoint, FakeClock, PrivateExim, Setup};

/// The condition of an ACL, on a spec.
fn ask(spec: &str) -> String {
    EntryPoint::chosen().ask(spec)
}

/// The rate that is remembered for a spec, by `exim -be`.
fn rate(exim: &PrivateExim, spec: &str) -> String {
    let check = ask(spec).replace("EXIRATE", &exim.library().display().to_string());
    let ran = exim.expand(&format!("{check} $sender_rate"));
    ran.stdout.trim().rsplit(' ').next().unwrap().to_owned()
}

#[test]
fn guesses_of_a_password_are_counted_in_the_authenticator() {
    // Each mode that is remembered for longer than a command, and one that is
    // not; with an ACL for AUTH, whose runs Exim marks, and without.
    for (mode, acl) in [("", true), ("", false), ("per_conn /", true), ("per_cmd /", true)] {
        let spec = format!("3.5 / 1h / {mode} strict / auth:$sender_host_address");
        let condition =
            format!("${{if bool{{{}}}{{no}}{{${{if eq{{$auth3}}{{good}}}}}}}}", ask(&spec));
        let mut setup = Setup::new().library().auth_if(&condition);
        if acl {
            let counted = ask("100 / 1h / per_cmd / strict / acl");
            setup = setup.acl("acl_smtp_auth", &format!("  accept !condition = {counted}\n"));
        }
        let mut exim = setup.build();
        exim.start();
        let mut client = exim.session();
        for _ in 0..6 {
            // The user is u, the password x.
            assert_eq!(client.command("AUTH PLAIN AHUAeA==").code, 535);
        }
        client.quit();
        let seen = spec.replace("strict", "readonly").replace("$sender_host_address", "127.0.0.1");
        assert_eq!(rate(&exim, &seen), "6.0", "{mode:?}, with an ACL: {acl}");
        let in_acl = rate(&exim, "100 / 1h / per_cmd / readonly / acl");
        assert_eq!(in_acl, if acl { "6.0" } else { "0.0" });
    }
}

#[test]
fn every_evaluation_in_a_router_counts() {
    let check = ask("100 / 1h / strict / router");
    let verify = format!(
        "  warn set acl_m_x = $local_part\n  require verify = recipient\n  \
         warn condition = {}\n  accept\n",
        ask("100 / 1h / strict / acl")
    );
    let mut exim = Setup::new()
        .library()
        .acl("acl_smtp_rcpt", &verify)
        .router(&format!("counted:\n  driver = redirect\n  condition = {check}\n  data = :fail:"))
        .build();
    exim.start();
    let mut client = exim.session();
    assert!(client.command("MAIL FROM:<a@client.test>").is_ok());
    for n in 0..5 {
        assert!(client.command(format!("RCPT TO:<u{n}@private.test>")).is_ok());
    }
    client.quit();
    assert_eq!(rate(&exim, "100 / 1h / readonly / router"), "5.0");
    assert_eq!(rate(&exim, "100 / 1h / readonly / acl"), "1.0");
}

#[test]
fn damage_is_logged_once_and_repaired() {
    let acl = format!(
        "  defer condition = {}\n  accept\n",
        ask("100 / 1h / per_rcpt / strict / damaged")
    );
    let mut exim = Setup::new().library().acl("acl_smtp_rcpt", &acl).build();
    exim.start();
    let recipient = |exim: &PrivateExim| {
        let mut client = exim.session();
        client.command("MAIL FROM:<a@client.test>");
        assert!(client.command("RCPT TO:<b@private.test>").is_ok());
        client.quit();
    };
    recipient(&exim);
    recipient(&exim);
    for shard in std::fs::read_dir(exim.spool().join("exirate")).unwrap() {
        let path = shard.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let key = bytes.windows(16).position(|w| w == b"per_rcpt/damaged");
        if let Some(at) = key {
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
    }
    recipient(&exim);
    recipient(&exim);
    exim.wait_for_log("exirate: dropped 1 damaged record in ", 1);
    assert_eq!(exim.log("main").matches("damaged").count(), 1, "{}", exim.log("main"));
    assert_eq!(rate(&exim, "100 / 1h / per_rcpt / readonly / damaged"), "2.0");
}

/// The lines about rates that `exim -d+acl` shows of one session; rates as whole
/// numbers, as a machine may be slow.
fn debugged(exim: &PrivateExim, session: &str) -> Vec<String> {
    let ran = exim.run(&["-d-all+acl", "-bs"], session.as_bytes());
    let of_rates = |l: &str| l.find("ratelimit ").map(|at| l[at..].to_owned());
    let lines = ran.stderr.lines().filter_map(of_rates);
    // Not those that show the condition itself.
    let lines = lines.filter(|l| !l.contains(['{', '}']) && !l.starts_with("ratelimit ="));
    let whole = |line: String| match line.rsplit_once(' ') {
        Some((before, rate)) if before.ends_with("rate") && rate.contains('.') => {
            format!("{before} {:.0}", rate.parse::<f64>().unwrap())
        }
        _ => line,
    };
    lines.map(whole).collect()
}

#[test]
fn debugging_is_in_the_words_of_native() {
    let specs = [
        "1.5 / 1h / per_rcpt / leaky / k",
        "9 / 1h / per_rcpt / leaky / k",
        "9 / 1h / per_rcpt / unique=u / strict / k",
        "9 / 1h / per_rcpt / readonly / k",
        "9 / 1h / per_rcpt / readonly / other",
        "9 / 1h / per_rcpt / unique=v / readonly / third",
        "9 / 3s / per_addr / strict / short",
    ];
    let acl = |condition: &dyn Fn(&str) -> String| {
        specs.map(|spec| format!("  warn {}\n", condition(spec))).concat() + "  accept\n"
    };
    let ours = acl(&|spec| format!("condition = {}", ask(spec)));
    let clock = FakeClock::new();
    let ours = Setup::new().library().clock(&clock).acl("acl_smtp_rcpt", &ours).build();
    let natives = acl(&|spec| format!("ratelimit = {spec}"));
    let natives = Setup::new().clock(&clock).acl("acl_smtp_rcpt", &natives).build();
    let session =
        "EHLO x\r\nMAIL FROM:<a@b.test>\r\nRCPT TO:<c@d.test>\r\nRCPT TO:<c@d.test>\r\nQUIT\r\n";
    for round in 1..=2 {
        if round == 2 {
            // For the filter of three seconds to grow too old.
            clock.set(6);
        }
        let (ours, natives) = (debugged(&ours, session), debugged(&natives, session));
        assert_eq!(ours, natives);
        for line in [
            "ratelimit condition count=1 1.5/1h/per_rcpt/k",
            "ratelimit found pre-computed rate 1",
            "ratelimit found key in database",
            "ratelimit event found in Bloom filter",
            "ratelimit db updated",
            "ratelimit db not updated: readonly mode",
            "ratelimit db not updated: over the limit, but leaky",
            ["ratelimit creating new Bloom filter", "ratelimit discarding old Bloom filter"]
                [round - 1],
        ] {
            let there = ours.iter().any(|l| l == line) || (round == 2 && line.ends_with("rate 1"));
            assert!(there, "no {line}: {ours:?}");
        }
    }
    let exim = Setup::new()
        .library()
        .acl("acl_smtp_rcpt", &format!("  warn condition = {}\n", ask(specs[0])));
    let exim = exim.build();
    std::fs::write(exim.spool().join("exirate"), "").unwrap();
    let lines = debugged(&exim, session);
    assert!(lines.iter().any(|l| l == "ratelimit database not available"), "{lines:?}");
}
