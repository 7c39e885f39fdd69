use super::*;

#[test]
fn receivers_who_are_sent_too_much_are_understood() {
    for text in [
        "421-4.7.28 Gmail has detected an unusual rate of unsolicited mail originating from your",
        "421 4.7.0 IP not in whitelist for RCPT domain, too many connections",
        "450-4.2.1 The user you are trying to contact is receiving mail at a rate that prevents",
        "451 4.7.650 The mail server [192.0.2.1] has been temporarily rate limited due to IP",
        "451 4.7.500 Server busy. Please try again later from [192.0.2.1]. (S77714)",
        "432 4.3.2 STOREDRV.Deliver; recipient thread limit exceeded",
        "452 4.3.2 Connection rate limit exceeded",
        "421 4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred due to user complaints",
        "421 Too many concurrent SMTP connections; please try again later.",
        "450 4.7.1 You are sending too fast, slow down",
    ] {
        assert_eq!(Status::in_text(text, "b@x").throttled(), Some(Failure::Throttled), "{text}");
    }
    for text in [
        "451 4.7.1 Greylisting in action, please come back later",
        "451 4.7.1 Greylisted; the rate limit for new senders applies",
        "452 4.2.2 The email account that you tried to reach is over quota",
        "450 4.1.1 try again",
        "421 4.4.2 connection dropped",
        "421 4.7.0 try again later",
        "550 5.7.1 too many connections",
        "Connection refused",
        "",
    ] {
        assert_eq!(Status::in_text(text, "b@x").throttled(), None, "{text}");
    }
}

#[test]
fn failures_are_told_by_their_status() {
    use Failure::{Other, Unknown};
    for (text, expected) in [
        ("SMTP error from remote mail server after RCPT TO:<b@x>: 550 5.1.1 no", Some(Unknown)),
        ("H=h [::1]:587: LMTP error after RCPT TO:<b@x>: 550-5.7.1 spam\\n550 x", Some(Other)),
        ("x: 452 4.2.2 full: retry timeout exceeded", None),
        ("x: 552 5.2.2 full", None),
        ("x: 450 4.1.1 try again: retry timeout exceeded", None),
        ("x: 550 No such user here", Some(Unknown)),
        ("x: 550 5.0.0 No Such User here", Some(Unknown)),
        ("x: 550 5.0.0 spam", Some(Other)),
        ("x: 554 No such user here", Some(Unknown)),
        ("x: 535 No such user", Some(Other)),
        ("x: 550 5.1.1 x: mailbox is over quota", None),
        ("x: 550", Some(Other)),
        ("x: 552 too much", None),
        ("x: 556 no", Some(Unknown)),
        ("x: 421 user unknown", None),
        ("Unrouteable address", Some(Unknown)),
        ("all relevant MX records point to non-existent hosts", Some(Unknown)),
        ("all hosts for 'x' have been failing for a long time (and retry time not reached)", None),
        ("retry timeout exceeded", None),
        ("x: 5501 user", Some(Other)),
        ("é: 55é", Some(Other)),
        ("", Some(Other)),
    ] {
        let status = Status::in_text(text, "b@x");
        assert_eq!(status.failure(Maker::RouterOrServer), expected, "{text}");
    }
    for (text, expected) in [
        ("DKIM signing failed", None),
        ("user unknown", Some(Unknown)),
        ("x: 550 5.7.1 spam", Some(Other)),
        ("x: 554 spam", Some(Other)),
        (
            "Child process of t transport returned 127 (could mean unable to exec or command does \
          not exist) from command: /d",
            None,
        ),
        (
            "Child process of t transport returned 67 (could mean addressee unknown) from command: \
          /d",
            Some(Unknown),
        ),
        (
            "Child process of t transport returned 70 from command: /d u transport returned 67 (",
            None,
        ),
    ] {
        assert_eq!(Status::in_text(text, "b@x").failure(Maker::Transport), expected, "{text}");
    }
    // A recipient that looks like a reply, or like what Exim says of old messages.
    for (text, recipient) in [
        ("no user \"a: 452 full\"@x: 550 5.1.1 no", "\"a: 452 full\"@x"),
        ("unknown user a: 452 full", "\"a: 452 full\"@x"),
        ("Unrouteable address (A\" : 452 B)", "\"a\\\" : 452 b\"@x"),
        ("Unrouteable address: Retry Timeout Exceeded", "retry\\ timeout\\ exceeded@x"),
        ("x: 550 no such user retry timeout exceeded", "\"retry timeout exceeded\"@x"),
        ("x: 550 5.1.1 <dmarc@x>: User unknown", "dmarc@x"),
        ("x: 550 no such user, sender \"retry timeout exceeded\"@y", "b@x"),
    ] {
        let status = Status::in_text(text, recipient);
        assert_eq!(status.failure(Maker::RouterOrServer), Some(Unknown), "{text}");
    }
    for text in ["5.1", "5..1", "3.1.1", "5.1.1.1", "5.1.1000", "é"] {
        assert_eq!(enhanced(text), None, "{text}");
    }
}

#[test]
fn the_documentation_has_the_tables() {
    let documented = include_str!("../../../docs/failed-deliveries.md");
    let counted = |counts| match counts {
        Some(Failure::Unknown) => "both",
        Some(Failure::Other) => "`failed_recipients`",
        Some(Failure::Throttled) => "throttled",
        None => "neither",
    };
    let statuses = STATUSES.iter().map(|(subject, detail, counts, about)| {
        format!("| `5.{subject}.{detail}` | {about} | {} |\n", counted(*counts))
    });
    let replies = REPLIES
        .iter()
        .map(|(reply, counts, about)| format!("| `{reply}` | {about} | {} |\n", counted(*counts)));
    for table in [statuses.collect::<String>(), replies.collect()] {
        assert!(documented.contains(&table), "docs/failed-deliveries.md lacks\n{table}");
    }
    let texts = [&UNKNOWN[..], &NOT_OF_THE_RECIPIENT, &FULL, &NOT_THE_RECIPIENTS].concat();
    for text in texts {
        assert!(documented.contains(&format!("`{text}`")), "{text}");
    }
    for (code, text, receiver) in RECEIVERS {
        let code = match code {
            Code::Reply(reply) => format!("{reply}"),
            Code::Status(subject, detail) => format!("5.{subject}.{detail}"),
        };
        let row = format!("| `{code}` | `{text}` | {receiver} |\n");
        assert!(documented.contains(&row), "docs/failed-deliveries.md lacks {row}");
    }
}

/// Replies in the forms that receivers document, to RCPT unless it is said.
#[test]
fn receivers_are_understood() {
    use InReplyTo::{Message, Recipient, Sender};
    let unknown = [
        "550 5.1.1 The email account that you tried to reach does not exist - gsmtp",
        "550 5.4.1 [b@x.example]: Recipient address rejected: Access denied [X.eop.example]",
        "550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient b@x.example not found",
        "550 5.1.351 Remote server returned unknown recipient or mailbox unavailable -> 550 <b@x>",
        "550 5.4.310 DNS domain x.example does not exist [Message=InfoDomainNonexistent]",
        "550 5.5.0 Requested action not taken: mailbox unavailable (S2017062302)",
        "550-Requested action not taken: mailbox unavailable\\n550 For explanation visit https://x",
        "554 delivery error: dd This user doesn't have a yahoo.example account (b@x.example) [0]",
        "552 1 Requested mail action aborted, mailbox not found",
        "550 5.1.1 <b@x.example>: inactive email address",
        "550 5.1.6 recipient no longer on server: b@x.example",
        "550 5.1.1 Not our Customer",
        "550 5.2.1 <b@x.example>... Addressee unknown, relay=[192.0.2.1]",
        "550 5.1.0 <b@x.example> recipient rejected. Refer to Error Codes",
        "550 #5.1.0 Address rejected.",
        "550 cuda_nsu 5.1.1 <b@x.example> Recipient address rejected: User unknown",
        "550 Invalid Recipient - https://community.example [id]",
        "501 Invalid address - https://community.example [id]",
        "550 5.7.1 No such user!",
        "550 Message was not accepted -- invalid mailbox. Local mailbox b@x.example is \
         unavailable: user not found",
        "550 5.5.0 Adresse d au moins un destinataire invalide. Invalid recipient. LPN007_416",
        "550 5.7.1 <b@x.example>: Recipient address rejected: User unknown",
        "550 Mailbox not found. http://service.x.example",
        "550 User not found: b@x.example",
        "550 5.3.0 <b@x.example>... No such user here",
        "553 sorry, no mailbox here by that name (#5.7.1)",
        "550 Unknown user b@x.example",
        "550 <b@x.example>... User not exist",
        "550 Host unknown",
        "551 not our customer",
        "550 b@x.example... b not listed in Domino Directory",
    ];
    let failed = [
        "550 5.4.1 All recipient addresses rejected : Access denied [X.example]",
        "554 5.7.1 <b@x.example>: Recipient address rejected: Access denied",
        "550 5.7.1 Our system has detected that this message is likely unsolicited mail. - gsmtp",
        "550 5.7.606 Access denied, banned sending IP [192.0.2.1]. The user unknown",
        "550 5.2.1 The email account that you tried to reach is disabled. - gsmtp",
        "550 5.1.1 RCP-P2 https://x.example Refused due to recipient preferences",
        "550 5.1.1 <b@x.example> - 192.0.2.1 has sent to too many recipients this hour. IB607",
        "554 This IP has been blocked for attempting to mail too many invalid recipients. IB112",
        "550-Requested action not taken: mailbox unavailable\\n550 invalid DNS MX or A/AAAA record",
        "550 5.1.0 <a@y.example>: Sender address rejected: User unknown in relay recipient table",
        "553 5.1.8 <a@y.example>... Domain of sender address a@y.example does not exist",
        "550-Verification failed for <a@y.example>\\n550-No Such User Here\\n550 Sender verify failed",
        "550 5.7.1 SPF record of y.example does not exist",
        "550 5.6.0 header of unknown user agent: unknown user",
        "550 5.7.26 The MAIL FROM domain y.example does not exist",
        "550 5.5.0 Le compte du destinataire est bloque. The recipient account is blocked.",
        "550 Mailbox unavailable or access denied",
        "550 Message was not accepted -- invalid mailbox. Local mailbox b@x.example is \
         unavailable: account is disabled",
        "550 User suspended",
    ];
    let neither = [
        "552 5.1.1 Boite du destinataire pleine. Recipient overquota. OFR_417",
        "550 Quota Exceeded",
        "522 5.2.0 Delivery failed: Over quota",
        "554 delivery error: dd Sorry, your message cannot be delivered. This account is over quota.",
    ];
    let of = |text: &str, to| {
        Status { to, ..Status::in_text(text, "b@x.example") }.failure(Maker::RouterOrServer)
    };
    let all = unknown.map(|text| (text, Some(Failure::Unknown))).into_iter();
    let all = all.chain(failed.map(|text| (text, Some(Failure::Other))));
    for (text, expected) in all.chain(neither.map(|text| (text, None))) {
        assert_eq!(of(text, Recipient), expected, "{text}");
        // Nothing that is said of the sender is said of a recipient.
        assert_ne!(of(text, Sender), Some(Failure::Unknown), "{text}");
    }
    // After the message, its words say nothing: some receivers reply so for a recipient's filter.
    assert_eq!(of("550 Unknown user b@x.example", Message), Some(Failure::Other));
    assert_eq!(of("550 5.2.0 : User unknown", Message), Some(Failure::Other));
    for text in ["550 5.1.1 unknown", "554 delivery error: dd This user doesn't have a x account"] {
        assert_eq!(of(text, Message), Some(Failure::Unknown), "{text}");
    }
}
