//! The daemon is read again, killed and away while mail flows: the mail server goes on, and
//! what was counted stays counted.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::server::Server;
use kit::until;

pub(super) fn all(server: &Server) {
    a_reload_loses_no_decision(server);
    a_kill_under_load_loses_no_count(server);
    mail_passes_while_it_is_away(server);
}

/// The replies of a user's recipients, each in a message of its own: accepted and refused.
fn recipients(server: &Server, user: &str, count: usize) -> (usize, usize) {
    let mut client = server.machine.login(user);
    let mut sums = (0, 0);
    for _ in 0..count {
        assert!(client.command(format!("MAIL FROM:<{user}@mail.test>")).is_ok());
        let reply = client.command("RCPT TO:<u1@mail.test>");
        match reply.code {
            250 => sums.0 += 1,
            _ => {
                server.refused(&reply, 451, "Over the limit of 5 recipients in 1h");
                sums.1 += 1;
            }
        }
        assert!(client.command("RSET").is_ok());
    }
    assert!(client.quit().unwrap().is_ok());
    sums
}

/// Clients in parallel get exactly what the limit has.
fn a_reload_loses_no_decision(server: &Server) {
    let (accepted, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..3 {
                        accepted.fetch_add(recipients(server, "lea", 3).0, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                server.machine.run("systemctl reload exirate-mail");
            }
        });
        let failed = clients.into_iter().filter_map(|client| client.join().err()).count();
        ended.store(true, Ordering::Relaxed);
        assert_eq!(failed, 0);
    });
    assert_eq!(accepted.into_inner(), 5, "{}", server.log());
    assert!(server.log().contains("was read again"), "{}", server.log());
}

/// The rate of a user's recipients, from the database.
fn rate(server: &Server, user: &str) -> f64 {
    let output = server.exirate("list --json");
    let listed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let keys = listed.as_array().unwrap_or_else(|| panic!("{output:?}"));
    let text = |key: &serde_json::Value| key["key"].as_str().unwrap_or_default().to_owned();
    let key = keys.iter().find(|key| text(key).contains(user));
    key.unwrap_or_else(|| panic!("{user}: {listed}"))["rate"].as_f64().unwrap()
}

/// All mail of a user without a limit is accepted, and what had a reply before the kill is
/// counted after it.
fn a_kill_under_load_loses_no_count(server: &Server) {
    for _ in 0..3 {
        let (accepted, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let before = if accepted.load(Ordering::Relaxed) == 0 { count_one(server) } else { 0.0 };
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        while !stop.load(Ordering::Relaxed) {
                            assert_eq!(recipients(server, "nora", 1), (1, 0));
                            accepted.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            until("mail flows", || accepted.load(Ordering::Relaxed) >= 8);
            let counted = accepted.load(Ordering::Relaxed);
            server.machine.run("systemctl kill --signal=KILL exirate-mail");
            let killed = accepted.load(Ordering::Relaxed);
            until("mail flows", || accepted.load(Ordering::Relaxed) >= killed + 8);
            let after = rate(server, "nora@mail.test");
            server.machine.run("systemctl start exirate-mail");
            stop.store(true, Ordering::Relaxed);
            let failed = clients.into_iter().filter_map(|client| client.join().err()).count();
            assert_eq!(failed, 0);
            let least = before + f64::from(u32::try_from(counted).unwrap());
            // Rates decay: by less than a percent within ten minutes of a day.
            assert!(after > least * 0.99, "{after} of {least}");
        });
        until("it decides again", || {
            let before = rate(server, "nora@mail.test");
            count_one(server) > before + 0.5
        });
    }
}

/// Counts one recipient of the user without a limit; returns the rate.
fn count_one(server: &Server) -> f64 {
    assert_eq!(recipients(server, "nora", 1), (1, 0));
    rate(server, "nora@mail.test")
}

fn mail_passes_while_it_is_away(server: &Server) {
    assert_eq!(recipients(server, "max", 3), (3, 0));
    let mut open = server.machine.login("max");
    server.machine.run("systemctl kill --signal=KILL exirate-mail");
    let text = "Subject: away\r\n\r\nx\r\n";
    assert!(open.message("max@mail.test", &["u1@mail.test"], text).is_ok());
    assert!(open.quit().unwrap().is_ok());
    assert_eq!(recipients(server, "max", 8), (8, 0));
    server.machine.run("systemctl start exirate-mail");
    // From a new connection on, with the three from before.
    until("it decides again", || recipients(server, "otto", 6) != (6, 0));
    assert_eq!(recipients(server, "max", 4), (2, 2), "{}", server.log());
}
