//! The policies that all front ends must agree on, and who sends mail.

/// Without `version = 1`. The periods are long, and the limits between two whole numbers, so
/// that it does not matter how long a test takes.
pub const POLICIES: &str = r#"
[identity]
fold = { case = true, plus = true }
qualify = "x.test"
[policy.a]
when = "authenticated"
text = "{policy} {unit} {limit} {key} {recipient}"
default.recipients = ["6.5/2h", "9.5/4h"]
default.unique_recipients = "4.5/2h"
default.messages = "5.5/2h"
[policy.a.user."carol"]
recipients = "unlimited"
[policy.b]
when = "authenticated"
action = "observe"
default.messages = "2.5/2h"
[policy.c]
when = "null_sender"
key = ["recipient"]
update = "strict"
text = "bounces: {key}"
bucket = { burst = 3.5, rate = 0.00001 }
[policy.d]
when = "!authenticated"
key = ["client"]
update = "strict"
text = "too many {unit} for {client} {sender}"
default.recipients = "6.5/2h"
default.unique_senders = "2.5/2h"
default.connections = "3.5/2h"
[policy.e]
when = "authenticated"
update = "strict"
text = "{rule} {unit} {limit} {key}"
default.recipients = "7.5/2h"
default.total = { recipients = "12.5/2h", messages = "8.5/4h" }
[policy.f]
when = "local"
key = ["client", "sender"]
text = "local {unit}"
default.messages = "2.5/2h"
[policy.g]
when = "authenticated"
text = "{unit} {limit} {key} {remaining}"
default.recipients_per_message = 3
[[policy.a.exempt]]
recipients = ["u1@private.test", "u2@private.test"]
[[policy.a.exempt]]
match = "carol"
recipients = "u3@private.test"
[[policy.f.exempt]]
recipients = "u1@private.test"
"#;

/// Who is logged in: nobody, and three users.
pub const LOGINS: [&str; 4] = ["", "alice", "Bob+x", "carol"];
/// The senders of envelopes.
pub const SENDERS: [&str; 4] = ["", "a@a.test", "B@b.test", "c@c.test"];
