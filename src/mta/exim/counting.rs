//! Limits that are written well and count otherwise than they read: under one key for all local
//! mail, or not at all.

use super::Rules;
use super::calls::verb;
use super::expansion::Expansion;
use super::order;
use super::source::Position;
use super::spec::Shape;

/// What is empty where mail comes from a program of this machine.
const OF_CLIENTS: [&str; 7] = [
    "interface_address",
    "received_ip_address",
    "sender_fullhost",
    "sender_helo_name",
    "sender_host_address",
    "sender_host_name",
    "sender_rcvhost",
];
/// The modes whose rate Exim keeps for the command, as it does for what only reads.
const OF_COMMAND: [&str; 3] = ["per_addr", "per_cmd", "per_rcpt"];

/// A limit: Exim's own `ratelimit`, or a call of ours.
struct Counted<'a> {
    position: &'a Position,
    acl: &'a str,
    native: bool,
    shape: Shape,
}

impl Rules {
    /// What is to be known of what limits count.
    pub(crate) fn doubts(&self) -> Vec<(Position, String)> {
        let mut found = Vec::new();
        let counted = self.counted();
        for (n, one) in counted.iter().enumerate() {
            let options = self.acls.used_by(one.acl);
            if options.iter().any(|option| option.starts_with("acl_not_smtp")) {
                found.extend(of_local(&one.shape.key).map(|text| (one.position.clone(), text)));
            }
            let earlier = counted.iter().take(n).find(|before| {
                before.acl == one.acl
                    && before.native == one.native
                    && before.shape.reads_only
                    && !one.shape.reads_only
                    && before.shape.is_same(&one.shape)
                    && OF_COMMAND.contains(&&*one.shape.mode)
            });
            if let Some(before) = earlier {
                let text = format!(
                    "it counts nothing where {} comes before it: that line only reads, and Exim \
                     has the rate of this key from it for the rest of the command; put it behind",
                    before.position
                );
                found.push((one.position.clone(), text));
            }
        }
        found
    }

    /// All limits in ACLs in use, in their order.
    fn counted(&self) -> Vec<Counted<'_>> {
        let mut counted = Vec::new();
        for line in self.source.lines.iter().chain(&self.acls.from_files) {
            let Some(acl) = line.acl.as_deref() else { continue };
            if self.acls.used_by(acl).is_empty() {
                continue;
            }
            let (_, rest) = verb(&line.text);
            let (_, name, _) = order::name(rest);
            let position = &line.position;
            if name == "ratelimit" {
                let shape = Shape::of(order::value(rest), None);
                counted.push(Counted { position, acl, native: true, shape });
            }
            let ours = self
                .rules
                .iter()
                .filter(|rule| rule.position == *position && rule.acl.as_deref() == Some(acl));
            for rule in ours {
                for (spec, key) in rule.call.specs() {
                    counted.push(Counted {
                        position,
                        acl,
                        native: false,
                        shape: Shape::of(spec, key),
                    });
                }
            }
        }
        counted
    }
}

/// What is to be known of a key where local mail is counted.
fn of_local(key: &str) -> Option<String> {
    let variables = Expansion::of(key).variables();
    let empty = variables.iter().find(|one| OF_CLIENTS.contains(&&*one.name));
    if let Some(variable) = empty {
        let name = &variable.name;
        return Some(format!(
            "local mail has no ${name}: all of it is counted under one key; write a key that it \
             has, such as $originator_uid or $sender_address"
        ));
    }
    let is_login = |name: &str| matches!(name, "authenticated_id" | "authenticated_sender");
    variables.iter().find(|one| is_login(&one.name)).map(|variable| {
        format!(
            "local mail never has a client's login: ${} is the account that runs Exim, such as \
             www-data for all scripts of a web server",
            variable.name
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is to be known of an ACL, each with its line in it.
    fn doubts(option: &str, acl: &str) -> Vec<(usize, String)> {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("conf");
        std::fs::write(&conf, format!("{option} = a\nbegin acl\na:\n{acl}\n")).unwrap();
        let doubts = Rules::read(&conf, [], None).unwrap().doubts();
        doubts.into_iter().map(|(at, text)| (at.line - 3, text)).collect()
    }

    #[test]
    fn keys_of_local_mail_are_known() {
        for (key, words) in [
            ("", Some("no $sender_host_address")),
            (" / $sender_host_address", Some("no $sender_host_address")),
            (" / ${lc:$authenticated_id}", Some("never has a client's login")),
            (" / $originator_uid", None),
        ] {
            let acl = format!("  warn ratelimit = 9 / 1h / strict{key}");
            let found = doubts("acl_not_smtp", &acl);
            assert_eq!(found.first().map(|(line, _)| *line), words.map(|_| 1), "{key}: {found:?}");
            assert!(found.iter().all(|(_, text)| text.contains(words.unwrap())), "{found:?}");
            assert_eq!(doubts("acl_smtp_rcpt", &acl), [], "{key}");
        }
    }

    /// As measured with Exim 4.96: `rate 0.0` for each recipient, or 1.0, 2.0, 3.0.
    #[test]
    fn a_line_behind_one_that_only_reads_counts_nothing() {
        let ours =
            |spec: &str| format!("condition = ${{dlfunc{{/exirate.so}}{{ratelimit}}{{{spec}}}}}");
        for (first, second, counts) in [
            ("1/1h/per_rcpt/noupdate/k", "1/1h/per_rcpt/strict/k", false),
            ("5/1h/readonly/per_rcpt/k", "1/1h/per_rcpt/strict/k", false),
            ("1/1h/per_cmd/readonly/k", "1/1h/per_cmd/leaky/k", false),
            ("1/1h/noupdate/k", "1/1h/per_rcpt/strict/k", true),
            ("1/1h/per_mail/noupdate/k", "1/1h/per_mail/strict/k", true),
            ("1/2h/per_rcpt/noupdate/k", "1/1h/per_rcpt/strict/k", true),
            ("1/1h/per_rcpt/noupdate/j", "1/1h/per_rcpt/strict/k", true),
            ("1/1h/per_rcpt/strict/k", "1/1h/per_rcpt/noupdate/k", true),
        ] {
            for write in
                [&|spec: &str| format!("ratelimit = {spec}"), &ours as &dyn Fn(&str) -> String]
            {
                let acl = format!("  warn {}\n  defer {}", write(first), write(second));
                let found: Vec<usize> =
                    doubts("acl_smtp_rcpt", &acl).iter().map(|one| one.0).collect();
                assert_eq!(found, if counts { vec![] } else { vec![2] }, "{acl}");
            }
        }
    }
}
