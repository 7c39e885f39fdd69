//! Logs as they are found: rotated, compressed, with times of several kinds, and written by
//! a real Exim.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Output};

use crate::{exirate, stderr, stdout};
use kit::{PrivateExim, Setup};

/// A line for one message, so many seconds after the first.
fn line(second: u32) -> String {
    let (day, clock) = (20 + second / 86_400, second % 86_400);
    format!(
        "2026-11-{day:02} {:02}:{:02}:{:02} 1vM1aC-{second:011}-1aBc <= alice@x.test H=h \
         [192.0.2.7] P=esmtpa A=plain:alice S=1000\n",
        clock / 3600,
        clock / 60 % 60,
        clock % 60
    )
}

fn lines(seconds: std::ops::Range<u32>) -> String {
    seconds.map(line).collect()
}

fn measure(folder: &Path, arguments: &[&str]) -> Output {
    exirate().arg("measure").args(arguments).current_dir(folder).output().unwrap()
}

/// Key, peak and number of events of each.
fn rows(output: &Output) -> Vec<(String, f64, u64)> {
    assert_eq!(stderr(output), "");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = |row: &serde_json::Value| {
        let key = row["key"].as_str().unwrap().to_owned();
        (key, row["peak"].as_f64().unwrap(), row["events"].as_u64().unwrap())
    };
    found["rates"].as_array().unwrap().iter().map(row).collect()
}

/// Writes `text` to a file, compressed with this program.
fn compressed(path: &Path, program: &str, text: &str) {
    let input = path.with_extension("input");
    fs::write(&input, text).unwrap();
    let mut command = Command::new(program);
    let output = command.arg("-c").stdin(fs::File::open(&input).unwrap()).output().unwrap();
    assert!(output.status.success(), "{program}: {}", stderr(&output));
    fs::write(path, &output.stdout).unwrap();
    fs::remove_file(input).unwrap();
}

#[test]
fn rotated_and_compressed_logs_are_one_log() {
    let whole = tempfile::tempdir().unwrap();
    fs::write(whole.path().join("mainlog"), lines(0..600)).unwrap();
    let expected = rows(&measure(whole.path(), &["1h", "mainlog", "--json"]));
    assert_eq!(expected[0].2, 600);

    let parts = tempfile::tempdir().unwrap();
    let folder = parts.path();
    // As logrotate names them, and compressed with whatever it was told to use.
    fs::write(folder.join("mainlog"), lines(500..600)).unwrap();
    fs::write(folder.join("mainlog.1"), lines(400..500)).unwrap();
    compressed(&folder.join("mainlog.2.gz"), "gzip", &lines(300..400));
    compressed(&folder.join("mainlog.3.xz"), "xz", &lines(200..300));
    compressed(&folder.join("mainlog.4.bz2"), "bzip2", &lines(100..200));
    // The name does not matter, the content does.
    compressed(&folder.join("mainlog.5"), "zstd", &lines(0..100));
    // Refusals are in the main log too; and there may be directories.
    fs::write(folder.join("rejectlog"), lines(0..100)).unwrap();
    fs::create_dir(folder.join("mainlog.old")).unwrap();
    for arguments in [
        &["."][..],
        &["mainlog*"],
        &["mainlog.[1-5]*", "mainlog"],
        &["mainlog", "mainlog.1", "mainlog.2.gz", "mainlog.3.xz", "mainlog.4.bz2", "mainlog.5"],
        // What is named twice is read once.
        &[".", "mainlog.1", "./mainlog.2.gz"],
    ] {
        let found = rows(&measure(folder, &[&["1h", "--json"], arguments].concat()));
        assert_eq!(found, expected, "{arguments:?}");
    }

    // Several gzip files in one, as `cat a.gz b.gz` makes them.
    let both = [300, 400].map(|start| {
        compressed(&folder.join("part"), "gzip", &lines(start..start + 100));
        fs::read(folder.join("part")).unwrap()
    });
    fs::write(folder.join("both.gz"), both.concat()).unwrap();
    assert_eq!(rows(&measure(folder, &["1h", "--json", "both.gz"]))[0].2, 200);
}

#[test]
fn what_cannot_be_read_is_named() {
    let parts = tempfile::tempdir().unwrap();
    let folder = parts.path();
    fs::write(folder.join("rejectlog"), lines(0..9)).unwrap();
    let failed = |arguments: &[&str]| {
        let output = measure(folder, &[&["1h"], arguments].concat());
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()));
        stderr(&output)
    };
    assert!(failed(&["."]).contains("no file here has `main` in its name"));
    assert!(failed(&["main*"]).contains("main*: no file matches"));
    assert!(failed(&["main["]).contains("main[: "));
    assert!(failed(&["nothing"]).contains("cannot read nothing: No such file"));
    for program in ["gzip", "xz", "bzip2", "zstd"] {
        let path = folder.join("mainlog");
        compressed(&path, program, &lines(0..5000));
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - whole.len() / 3]).unwrap();
        let message = failed(&["mainlog"]);
        assert!(message.contains("cannot read mainlog: "), "{program}: {message}");
    }
    // As where the program is not installed.
    let mut command = exirate();
    let output = command.args(["measure", "1h", "mainlog"]).env("PATH", "/nonexistent");
    let message = stderr(&output.current_dir(folder).output().unwrap());
    assert!(message.contains("it is compressed with zstd, which is not installed"), "{message}");
}

#[test]
fn lines_without_a_time_are_counted_and_shown() {
    let parts = tempfile::tempdir().unwrap();
    let (folder, log) = (parts.path(), parts.path().join("mainlog"));
    // A terminal's escape sequence, and bytes that are no text.
    let mut text = lines(0..2).into_bytes();
    text.extend(b"\n\x1b[31mred \xff\n+++ not completed +++\n");
    text.extend(lines(2..3).into_bytes());
    fs::write(&log, &text).unwrap();
    let output = measure(folder, &["1h", "mainlog"]);
    assert_eq!(output.status.code(), Some(0));
    let message = stderr(&output);
    assert!(message.contains("2 lines without a time at the start, of 6 lines"), "{message}");
    assert!(message.contains("mainlog:4: \\u{1b}[31mred"), "{message}");
    assert!(!message.contains('\x1b'), "{message}");

    // A line without end, longer than any that Exim writes.
    let mut text = vec![b'x'; 5 << 20];
    text.extend(format!("\n{}", line(7)).into_bytes());
    fs::write(&log, &text).unwrap();
    let output = measure(folder, &["1h", "mainlog"]);
    assert!(stderr(&output).contains("1 line without a time at the start, of 2 lines"));
    assert!(stdout(&output).contains(" 2026-11-20 00:00:07  alice@x.test"));
}

#[test]
fn syslogs_times_are_read() {
    let parts = tempfile::tempdir().unwrap();
    let (folder, log) = (parts.path(), parts.path().join("mainlog"));
    let exims: Vec<String> = lines(0..9).lines().map(str::to_owned).collect();
    fs::write(&log, lines(0..9)).unwrap();
    let expected = rows(&measure(folder, &["1h", "mainlog", "--json"]));
    let prefixed = |prefix: &dyn Fn(&str) -> String| -> String {
        exims.iter().map(|line| format!("{}{line}\n", prefix(&line[11..19]))).collect()
    };
    let without_own = |text: &str| text.replace("exim[7]: 2026-11-20 00:00:0", "exim[7]: ");
    let rfc3339 = prefixed(&|clock| format!("2026-11-20T{clock}.000000+00:00 mx exim[7]: "));
    let classic = prefixed(&|clock| format!("Nov 20 {clock} mx exim[7]: "));
    for text in [&rfc3339, &classic] {
        fs::write(&log, text).unwrap();
        assert_eq!(rows(&measure(folder, &["1h", "mainlog", "--json"])), expected, "{text}");
    }
    // With syslog_timestamp = no, Exim writes no time of its own.
    let bare: String = rfc3339.lines().map(|line| strip_own(line) + "\n").collect();
    assert!(!without_own(&bare).contains(": 2026"), "{bare}");
    fs::write(&log, &bare).unwrap();
    assert_eq!(rows(&measure(folder, &["1h", "mainlog", "--json"])), expected, "{bare}");
}

/// Removes Exim's own time, which follows syslog's.
fn strip_own(line: &str) -> String {
    let (prefix, rest) = line.split_once("]: ").unwrap();
    format!("{prefix}]: {}", &rest[20..])
}

/// Sends messages through a real Exim: 3 of alice with 2 recipients each, 1 of a client that
/// imitates fields, and a local one; and waits until all are delivered.
fn real_log(main: &str) -> PrivateExim {
    let mut exim = Setup::new()
        .auth()
        .main(main)
        .main("acl_smtp_data = acl_data\nhelo_allow_chars = _")
        .acl("acl_smtp_rcpt", "  deny local_parts = refused\n  accept\n")
        .acls("acl_data:\n  accept")
        .build();
    exim.start();
    let mut client = exim.connect(Ipv4Addr::LOCALHOST);
    assert!(client.expect().is_ok());
    assert!(client.command("EHLO [198.51.100.1]").is_ok());
    assert!(client.command("AUTH PLAIN AGFsaWNlAGdvb2Q=").is_ok());
    let subject = "Subject: A=plain:ceo H=[198.51.100.1] S=1 \" for x\r\n\r\nhello\r\n";
    for _ in 0..3 {
        let reply = client.message("alice@x.test", &["b@y.test", "c@y.test"], subject);
        assert!(reply.is_ok(), "{reply:?}");
    }
    client.quit();
    let mut client = exim.connect(Ipv4Addr::LOCALHOST);
    assert!(client.expect().is_ok());
    assert!(client.command("EHLO h_h").is_ok());
    let sender = "\"x H=[198.51.100.1] A=plain:ceo S=5 for z\"@x.test";
    assert!(client.command(format!("MAIL FROM:<{sender}>")).is_ok());
    assert!(!client.command("RCPT TO:<refused@y.test>").is_ok());
    assert!(client.command("RCPT TO:<\"d e\"@y.test>").is_ok());
    assert!(client.data(subject).is_ok());
    client.quit();
    let ran = exim.run(&["-f", "root@x.test", "b@y.test"], b"Subject: x\n\nx\n");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    // Setup only queues.
    assert_eq!(exim.run(&["-qff"], b"").code, 0);
    exim.wait_for_log(" Completed", 5);
    exim
}

#[test]
fn a_real_exims_log_is_read_with_each_log_selector() {
    for selector in
        ["", "log_selector = +all", "log_selector = +received_recipients +pid +millisec"]
    {
        let exim = real_log(&format!("{selector}\nlog_timezone = true"));
        let folder = exim.folder().join("log");
        let measured = |by: &str, count: &str| {
            let found = exirate()
                .args(["measure", "1w", "--json", "--by", by, "--count", count])
                .arg(&folder)
                .output()
                .unwrap();
            let rows: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
            let of = |row: &serde_json::Value| {
                let key = row["key"].as_str().unwrap().to_owned();
                (key, row["peak"].as_f64().unwrap(), row["events"].as_u64().unwrap())
            };
            rows["rates"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
        };
        let log = exim.log("main");
        let names = |found: &[(String, f64, u64)]| {
            let mut names: Vec<_> = found.iter().map(|(key, _, n)| (key.clone(), *n)).collect();
            names.sort();
            names
        };
        assert_eq!(names(&measured("auth", "messages")), [("alice".to_owned(), 3)], "{log}");
        let clients = names(&measured("host", "messages"));
        assert_eq!(clients, [("127.0.0.1".to_owned(), 4)], "{log}");
        let hostile = "\"x H=[198.51.100.1] A=plain:ceo S=5 for z\"@x.test".to_owned();
        let senders = names(&measured("sender", "messages"));
        // No policy counts root's.
        assert_eq!(senders, [(hostile, 1), ("alice@x.test".to_owned(), 3)], "{log}");
        // From `for` where it is logged, else from the deliveries: 3·2, 1 and 1.
        let (_, peak, events) = measured("all", "recipients").remove(0);
        assert_eq!(events, 5, "{log}");
        assert!((7.9..8.1).contains(&peak), "{peak}: {log}");

        // As many messages and bytes as Exim's own statistics, which takes the size that the
        // hostile sender imitates.
        let honest: String = log
            .lines()
            .filter(|line| !line.contains("S=5 "))
            .flat_map(|line| [line, "\n"])
            .collect();
        fs::write(folder.join("mainlog"), &honest).unwrap();
        let statistics = kit::exim::eximstats(&honest);
        let received = statistics.lines().find_map(|line| line.trim().strip_prefix("Received "));
        let numbers = received.unwrap().split_whitespace().take(2);
        let numbers: Vec<f64> = numbers.map(|word| word.parse().unwrap()).collect();
        let (_, bytes, events) = measured("all", "bytes").remove(0);
        assert_eq!(numbers[1], events as f64, "{statistics}");
        // In a week, what was sent within a minute hardly decays; what Exim's formula makes of
        // two messages within a microsecond is off by up to a hundredth.
        assert!((bytes / numbers[0] - 1.0).abs() < 0.01, "{bytes}: {statistics}");
    }
}
