//! A message is read, however it comes and wherever Exim keeps it.

use super::{RECORD, answers, exim, ids, of_text, sentence, with_text};
use kit::{Client, Setup};
use std::os::unix::fs::MetadataExt;

#[test]
fn a_message_is_read_to_its_end_whatever_its_size() {
    let exim = exim("");
    let mut client = exim.session();
    let sizes = [0, 1, 4_000, 4_077, 4_078, 4_095, 4_096, 8_191, 8_192, 65_536, 300_000, 3_000_000];
    for (n, size) in sizes.into_iter().enumerate() {
        let line = |line: usize| format!("{n} {line} {:060}\n", line * 31);
        let filler: String = (0..=size / 60).map(line).collect();
        let text = format!("Subject: x\n\n{}\n{}\n", &filler[..size], sentence(n));
        assert!(client.message("s@client.test", &["a@private.test"], &text).is_ok());
        let found = of_text(&exim, &sentence(n));
        assert_eq!((found.id, found.partial), (ids(&exim)[n].clone(), false), "{size}");
    }
    client.quit();
    assert_eq!(exim.log("panic"), "");
}

/// Sends one message in two pieces by BDAT, in lines that end in CRLF.
fn chunked(client: &mut Client, text: &str) {
    let text = text.replace('\n', "\r\n");
    assert!(client.command("MAIL FROM:<chunk@client.test> BODY=8BITMIME").is_ok());
    assert!(client.command("RCPT TO:<a@private.test>").is_ok());
    let (first, last) = text.as_bytes().split_at(text.len() / 2);
    for (piece, end) in [(first, ""), (last, " LAST")] {
        client.send(format!("BDAT {}{end}\r\n", piece.len()).as_bytes());
        client.send(piece);
        let reply = client.expect();
        assert!(reply.is_ok(), "{}", reply.text);
    }
}

#[test]
fn it_does_not_matter_how_exim_keeps_its_spool() {
    for main in ["", "split_spool_directory", "spool_wireformat", "acl_smtp_mail = in_queue"] {
        let mut setup = Setup::new().library().main("chunking_advertise_hosts = *").main(main);
        setup = setup.acls("in_queue:\n  accept queue = slow\n");
        let mut exim = setup.acl("acl_smtp_data", RECORD).acl("acl_not_smtp", RECORD).build();
        exim.start();
        let mut client = exim.session();
        let text = |n| format!("Subject: x\n\n.{}\n\u{fc}ber {}\n", sentence(n), sentence(n + 1));
        assert!(client.message("data@client.test", &["a@private.test"], &text(1)).is_ok());
        chunked(&mut client, &text(3));
        client.quit();
        let local =
            exim.run(&["-odq", "-t"], format!("To: b@private.test\n{}", text(5)).as_bytes());
        assert_eq!((local.code, &*local.stderr), (0, ""), "{main}");
        let batch = format!(
            "MAIL FROM:<batch@client.test>\nRCPT TO:<a@private.test>\nDATA\n{}.\n",
            text(7).replace("\n.", "\n..")
        );
        let batched = exim.run(&["-odq", "-bS"], batch.as_bytes());
        assert_eq!((batched.code, &*batched.stderr), (0, ""), "{main}");
        for (n, sender) in [
            (1, "data@client.test"),
            (3, "chunk@client.test"),
            (5, "root@private.test"),
            (7, "batch@client.test"),
        ] {
            // Across the line end, and with what is beyond ASCII.
            let text = format!(".{}\r\n\u{fc}ber {}", sentence(n), sentence(n + 1));
            assert_eq!(of_text(&exim, &text).sender, sender, "{main}");
        }
        assert_eq!(answers(&exim), ["yes"; 4], "{main}\n{}", exim.log("main"));
        assert_eq!(exim.log("panic"), "");
    }
}

#[test]
fn headers_are_as_the_earlier_acls_have_left_them() {
    let acl = format!(
        "  warn remove_header = subject\n       add_header = Subject: {}\n  accept\n",
        sentence(2)
    );
    let setup = Setup::new().library().acl("acl_smtp_rcpt", &acl).acl("acl_smtp_data", RECORD);
    let mut exim = setup.build();
    exim.start();
    let mut client = exim.session();
    let text = format!("Subject: {}\n\n{}\n", sentence(1), sentence(3));
    assert!(client.message("s@client.test", &["a@private.test"], &text).is_ok());
    client.quit();
    assert_eq!(with_text(&exim, &sentence(1)), []);
    assert_eq!(of_text(&exim, &sentence(2)), of_text(&exim, &sentence(3)));
}

#[test]
fn exim_keeps_its_lock_on_the_message() {
    let acl = RECORD.replace("  accept", "  accept delay = 3s");
    let mut exim = Setup::new().library().acl("acl_smtp_data", &acl).build();
    exim.start();
    let mut client = exim.session();
    client.command("MAIL FROM:<s@client.test>");
    client.command("RCPT TO:<a@private.test>");
    client.command("DATA");
    client.send(b"Subject: x\r\n\r\nbody\r\n.\r\n");
    exim.wait_for_log("answer: yes", 1);
    let data = std::fs::read_dir(exim.spool().join("input")).unwrap().next().unwrap().unwrap();
    let locked = format!(":{} ", data.metadata().unwrap().ino());
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    assert!(locks.lines().any(|l| l.contains("POSIX") && l.contains(&locked)), "{locks}");
    assert!(client.expect().is_ok());
}
