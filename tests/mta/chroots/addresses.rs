//! What an address means to the mail server is what policies take it for.

use super::server::{FrontEnd, Server};
use kit::addresses::{FRIENDS, SENDERS, VICTIM, accepted, generated};
use kit::until;

/// How many are tried with each sender.
const ADDRESSES: usize = 1000;

/// Who may write to friends alone reaches nobody else, and who may not write to victims none of
/// these, however the address is written.
pub(super) fn mean_the_same(server: &Server) {
    let paths = generated(ADDRESSES);
    for (sender, first) in SENDERS {
        let mut nora = server.machine.login("nora");
        assert!(nora.command(format!("MAIL FROM:<{sender}>")).is_ok());
        assert!(nora.command(format!("RCPT TO:<{first}>")).is_ok(), "{}", server.log());
        assert!(!nora.command(format!("RCPT TO:<another{first}>")).is_ok());
        assert!(nora.command("RSET").is_ok());
        assert!(nora.quit().unwrap().is_ok());
        let end = |mut client: kit::Client, has_recipient: bool| {
            if has_recipient && server.front_end != FrontEnd::Sendmail {
                assert!(client.data("Subject: addresses\r\n\r\nx\r\n").is_ok());
            }
            let _ = client.quit();
        };
        let accepted = accepted(sender, &paths, || server.machine.login("nora"), end);
        let reached = match server.front_end {
            FrontEnd::Sendmail => sendmail(server, &accepted),
            _ => postfix(server, sender),
        };
        println!("{sender}: {} of {ADDRESSES} accepted", accepted.len());
        assert!(accepted.len() > 50 && reached.len() > 50, "{accepted:?} {reached:?}");
        let is_wrong = |(_, domain): &&(String, String)| match sender {
            "n@only-friends.test" => domain != FRIENDS,
            _ => domain == VICTIM,
        };
        let wrong: Vec<_> = reached.iter().filter(is_wrong).collect();
        assert_eq!(wrong, Vec::<&(String, String)>::new());
    }
}

/// Where Postfix has sent what this sender has sent: each recipient, and the host.
fn postfix(server: &Server, sender: &str) -> Vec<(String, String)> {
    let log = || server.machine.read("/var/log/mail.log");
    let from = format!(": from=<{sender}>,");
    until("all is sent", || {
        let log = log();
        let sent = log.lines().filter(|line| line.contains(&from)).count();
        let ids = ids(&log, &from);
        sent > 0 && ids.iter().all(|id| log.contains(&format!(" {id}: removed")))
    });
    let log = log();
    let ids = ids(&log, &from);
    let lines =
        log.lines().filter(|line| ids.iter().any(|id| line.contains(&format!(" {id}: to="))));
    let reached = lines.map(|line| {
        let to = line.split(": to=<").nth(1).unwrap().split(">, ").next().unwrap();
        // `relay=none, … status=sent (friends.test)`: the discard transport names the host.
        let host = line.rsplit_once("status=sent (").map(|(_, host)| host.trim_end_matches(')'));
        let host = host.filter(|_| line.contains("relay=none")).unwrap_or("mail.test");
        (to.to_owned(), host.trim_end_matches('.').to_lowercase())
    });
    reached.collect()
}

fn ids(log: &str, from: &str) -> Vec<String> {
    let ids = log.lines().filter_map(|line| line.split_once(from));
    ids.map(|(head, _)| head.rsplit(' ').next().unwrap().to_owned()).collect()
}

/// Where Sendmail would send these.
fn sendmail(server: &Server, paths: &[String]) -> Vec<(String, String)> {
    let quoted: Vec<String> =
        paths.iter().map(|path| format!("'{}'", path.replace('\'', r"'\''"))).collect();
    let mut all = Vec::new();
    for path in quoted {
        let output = server.machine.tried(&format!("sendmail -bv -- {path}"));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        for line in said.lines().filter(|line| line.contains("deliverable: mailer ")) {
            let host = line.split(", host ").nth(1).and_then(|rest| rest.split(',').next());
            let host = host.unwrap_or("mail.test").trim_end_matches('.').to_lowercase();
            all.push((path.clone(), host));
        }
    }
    all
}
