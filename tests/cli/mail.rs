//! Mail that is lying about on the machine of `prepared.rs`, and in other tests.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A message as it lies in an mbox: the line that begins it, headers, body.
pub(crate) struct Letter {
    /// `From alice@example.org Wed Nov 18 09:12:04 2026`.
    pub(crate) from_line: String,
    pub(crate) text: String,
}

fn letter(from_line: &str, text: &str) -> Letter {
    Letter { from_line: from_line.to_owned(), text: text.to_owned() }
}

/// What alice wrote, and what bob passed on: quoted, and broken into other
/// lines. It is what the documentation asks for.
const CONFIDENTIAL: &str = "\
Received: from laptop ([192.0.2.7] helo=laptop)
\tby mail.example.org with esmtpsa (Exim 4.96)
\t(envelope-from <alice@example.org>)
\tid 1vL1kS-000000003Fq-2bXd
\tfor bob@example.org;
\tWed, 18 Nov 2026 09:12:04 +0000
From: Alice <alice@example.org>
To: Bob <bob@example.org>
Subject: The third quarter
Date: Wed, 18 Nov 2026 09:12:01 +0000
Message-ID: <q3@example.org>

Dear Bob,

here are the figures you asked for. As we feared, the margin of the
northern branch fell to four percent in the third quarter, while the
southern one has held its ground.

Please keep this among us until the board has met in December.

Alice
";
const PASSED_ON: &str = "\
Received: from [198.51.100.23] (helo=[10.0.0.5])
\tby mail.example.org with esmtpsa (Exim 4.96)
\t(envelope-from <bob@example.org>)
\tid 1vLPqB-000000005Zk-0aQe
\tfor news@press.example.com;
\tThu, 19 Nov 2026 10:55:30 +0000
From: Bob <bob@example.org>
To: news@press.example.com
Subject: you may want to see this
Date: Thu, 19 Nov 2026 10:55:29 +0000
Message-ID: <leak@example.org>
MIME-Version: 1.0
Content-Type: text/plain; charset=utf-8
Content-Transfer-Encoding: quoted-printable

Not from me. And do look at the last line =E2=80=93

> here are the figures you asked for. As we feared, the
> margin of the northern branch fell to four percent in the third
> quarter, while the southern one has held its ground.
>
> Please keep this among us until the board has met in December.
";
const LUNCH: &str = "\
Received: from laptop ([192.0.2.7] helo=laptop)
\tby mail.example.org with esmtpsa (Exim 4.96)
\tid 1vLo2C-000000007Hb-1gTt
\tfor carol@example.org;
\tFri, 20 Nov 2026 11:02:33 +0000
From: Alice <alice@example.org>
To: carol@example.org, dora@example.net
Subject: Lunch
Date: Fri, 20 Nov 2026 11:02:30 +0000
Message-ID: <lunch@example.org>

The new place by the river has a table for three at half past twelve.
>From there it is a short way back to the office.
";
const BOUNCE: &str = "\
Received: from mx.example.net ([203.0.113.5])
\tby mail.example.org with esmtp (Exim 4.96)
\tid 1vLoAc-000000007Jx-0oPp
\tfor alice@example.org;
\tFri, 20 Nov 2026 11:10:14 +0000
From: Mail Delivery System <Mailer-Daemon@mx.example.net>
To: alice@example.org
Subject: Mail delivery failed: returning message to sender
Date: Fri, 20 Nov 2026 11:10:14 +0000

This message was created automatically by mail delivery software.
A message that you sent could not be delivered to one of its recipients.
";

/// A document that lies there, of which a page was passed on.
const CONTRACT: &str = "\
1. The supplier delivers the machines that the first annex lists to the warehouse of the
customer, on working days between seven and four, and tells the hour two days before.

2. The customer examines each machine within ten working days. What is not reported by then
is taken as accepted, unless the fault could not be seen in an ordinary examination.

3. The price of a machine is 41,800 for the first ten, 39,200 for the next fifteen, and
37,500 for every further one until the end of the second year. The supplier grants three
percent if an invoice is paid within fourteen days. These prices are given to no other
customer in the region, and neither side tells them to anybody outside its own company, its
auditors and its bank. Whoever breaks this pays half of the price of the last order, and the
other side may end the contract within a month.

4. The supplier repairs faults for three years. A technician comes within two working days;
if the machine cannot be used for longer than a week, the supplier lends another one.

5. Changes need the written form. If a clause is void, the others remain in force.
";

/// A page of [`CONTRACT`], sent to somebody who must not have it.
fn leaked_page() -> String {
    let clause = CONTRACT.split("\n\n").nth(2).unwrap();
    format!(
        "\
Received: from [198.51.100.23] (helo=[10.0.0.5])
\tby mail.example.org with esmtpsa (Exim 4.96)
\tid 1vLpQe-000000008Ab-2cCd
\tfor sales@rival.example.net;
\tFri, 20 Nov 2026 09:31:12 +0000
From: Bob <bob@example.org>
To: sales@rival.example.net
Subject: what they pay
Date: Fri, 20 Nov 2026 09:31:10 +0000
Message-ID: <prices@example.org>

As we said on the phone, and you have it from nobody:

{clause}

Call me.
"
    )
}

/// A mail merge: the same to each recipient, but for the name and a number.
fn mail_merge() -> impl Iterator<Item = Letter> {
    const NAMES: [&str; 6] = ["anna", "boris", "chiara", "david", "edith", "farid"];
    NAMES.into_iter().enumerate().map(|(n, name)| {
        let (second, number) = (10 + 3 * n, 4711 + 97 * n);
        let text = format!(
            "\
Received: from [203.0.113.77] (helo=pc)
\tby mail.example.org with esmtpsa (Exim 4.96)
\tid 1vLq1{n}-00000000Q0{n}-9zZz
\tfor {name}@example.com;
\tFri, 20 Nov 2026 10:20:{second} +0000
From: Helpdesk <carol@example.org>
To: {name}@example.com
Subject: Your mailbox is almost full, {name}
Date: Fri, 20 Nov 2026 10:20:{second} +0000
Message-ID: <full{n}@example.org>

Dear {name},

your mailbox has reached 98 percent of its size, and new mail will be returned to its senders
from tomorrow on. This happens to many of our users these weeks, since we have moved to new
machines, on which the old messages take more space than before. You have done nothing wrong.

Confirm your account within a day, so that we can enlarge it without a charge:

http://mailbox.example.net/confirm?case={number}

Enter the name and the password with which you read your mail, then close all windows and
wait for an hour. If you do not confirm it, the account is closed on Friday, {name}, and its
messages are deleted. They cannot be restored afterwards, not even by the administrators.

With kind regards
The Helpdesk
"
        );
        letter(&format!("From carol@example.org Fri Nov 20 10:20:{second} 2026"), &text)
    })
}

/// A message that contains another one, which contains another one, deeper than is decoded.
fn nested() -> String {
    let headers = "\
Received: from [203.0.113.9] (helo=mx.example.net)
\tby mail.example.org with esmtp (Exim 4.96)
\tid 1vLr7T-00000000B5x-7hHh
\tfor alice@example.org;
\tFri, 20 Nov 2026 11:15:44 +0000
From: Emil <emil@example.net>
To: alice@example.org
Subject: Fwd: Fwd: Fwd: the offer
Date: Fri, 20 Nov 2026 11:15:40 +0000
Message-ID: <offer@example.net>
MIME-Version: 1.0
";
    let inner = "Content-Type: message/rfc822\n\nSubject: the offer\nMIME-Version: 1.0\n";
    format!("{headers}{}\nSee below.\n", inner.repeat(70))
}

/// What passed later, and is in the store only if somebody records it.
fn later() -> Vec<Letter> {
    let leaked = letter("From bob@example.org Fri Nov 20 09:31:12 2026", &leaked_page());
    let nested = letter("From emil@example.net Fri Nov 20 11:15:44 2026", &nested());
    [leaked].into_iter().chain(mail_merge()).chain([nested]).collect()
}

/// Texts to ask for, one a line.
const QUESTIONS: &str = "\
you have done nothing wrong. Confirm your account within a day, so that we can enlarge it
these prices are given to no other customer in the region
the cheaper one can begin in the second week of december
";

/// A message with a file attached to it.
pub(crate) fn with_attachment() -> String {
    let file = STANDARD.encode(plan());
    let lines: Vec<&str> =
        file.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!(
        "\
Received: from desk ([192.0.2.31] helo=desk)
\tby mail.example.org with esmtpsa (Exim 4.96)
\tid 1vLm3y-000000006Rd-3zKk
\tfor emil@example.net;
\tFri, 20 Nov 2026 08:56:14 +0000
From: Carol <carol@example.org>
To: emil@example.net
Subject: as promised
Date: Fri, 20 Nov 2026 08:56:10 +0000
Message-ID: <plan@example.org>
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=part

--part
Content-Type: text/plain

Here is the plan of the second floor, as it was approved.

--part
Content-Type: application/pdf; name=plan.pdf
Content-Disposition: attachment; filename=plan.pdf
Content-Transfer-Encoding: base64

{}
--part--
",
        lines.join("\n")
    )
}

/// The file: bytes without a pattern, the same each time.
pub(crate) fn plan() -> Vec<u8> {
    let mut next = numbers(1);
    let mut next = || (next() >> 8) as u8;
    b"%PDF-1.7\n".iter().copied().chain(std::iter::repeat_with(&mut next).take(20_000)).collect()
}

/// Numbers without a pattern, the same each time.
fn numbers(mut state: u32) -> impl FnMut() -> u32 {
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 16
    }
}

/// How many messages of [`others`] there are.
pub(crate) const OTHERS: usize = 400;

/// What else has passed, in the first half of November.
pub(crate) fn others() -> Vec<Letter> {
    const WORDS: &str = "the and of to in for with that this from have will would about which their \
                         there when customer invoice meeting project order delivery question answer \
                         report contract office schedule version problem system account number \
                         address colleague morning afternoon tomorrow yesterday week month please \
                         thank regards attached below above before after again another important \
                         possible necessary available complete correct different general special \
                         department manager engineer supplier warehouse machine software document \
                         agreement proposal estimate budget payment reminder confirmation reference \
                         discuss decide prepare deliver arrange explain improve consider receive \
                         require suggest expect continue between during without towards against";
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    let mut next = numbers(7);
    (0..OTHERS)
        .map(|n| {
            let length = 40 + next() as usize % 160;
            let body: Vec<&str> =
                (0..length).map(|_| words[next() as usize % words.len()]).collect();
            let lines: Vec<String> = body.chunks(9).map(|line| line.join(" ")).collect();
            let (day, hour, minute) = (1 + n / 27, 8 + n % 10, n % 60);
            let (from, to) = (next() % 30, next() % 30);
            let text = format!(
                "From: user{from}@example.org\nTo: user{to}@example.com\nSubject: {} {}\nDate: \
                 {day} Nov 2026 {hour:02}:{minute:02}:00 +0000\nMessage-ID: <{n}@example.org>\n\n{}\n",
                words[next() as usize % words.len()],
                words[next() as usize % words.len()],
                lines.join("\n")
            );
            let from_line = format!(
                "From user{from}@example.org Sun Nov {day:2} {hour:02}:{minute:02}:00 2026"
            );
            Letter { from_line, text }
        })
        .collect()
}

/// What has passed.
pub(crate) fn passed() -> Vec<Letter> {
    vec![
        letter("From alice@example.org Wed Nov 18 09:12:04 2026", CONFIDENTIAL),
        letter("From bob@example.org Thu Nov 19 10:55:30 2026", PASSED_ON),
        letter("From carol@example.org Fri Nov 20 08:56:14 2026", &with_attachment()),
        letter("From alice@example.org Fri Nov 20 11:02:33 2026", LUNCH),
        letter("From MAILER-DAEMON Fri Nov 20 11:10:14 2026", BOUNCE),
    ]
}

/// What lies in an archive, and has not been recorded.
pub(crate) fn archived() -> Vec<Letter> {
    let headers = "From: Dora <dora@example.net>\nTo: alice@example.org\n";
    let minutes = format!(
        "{headers}Subject: Minutes\nDate: Mon, 02 Nov 2026 16:03:00 +0000\nMessage-ID: \
         <minutes@example.net>\n\nWe agreed that the roof of the old store house has to be mended \
         before the\nwinter, and that Emil asks three firms for their prices.\n"
    );
    let prices = format!(
        "{headers}Subject: Prices\nDate: Thu, 05 Nov 2026 08:40:00 +0000\nMessage-ID: \
         <prices@example.net>\n\nTwo of the three firms have answered so far; the cheaper one can \
         begin in\nthe second week of December.\n"
    );
    vec![
        letter("From dora@example.net Mon Nov  2 16:03:05 2026", &minutes),
        letter("From dora@example.net Thu Nov  5 08:40:02 2026", &prices),
    ]
}

/// The letters as an mbox.
pub(crate) fn mbox(letters: &[Letter]) -> String {
    letters.iter().map(|letter| format!("{}\n{}\n", letter.from_line, letter.text)).collect()
}

/// Gives the trace store that is to be in `spool` a key that is known, so that
/// its false answers are the same each time. Its directory is there already.
pub(crate) fn settle_key(spool: &Path) {
    // As src/trace/store/FORMAT.md has it: twice the same.
    let key = spool.join("exirate/trace/key");
    let old = fs::read(&key).unwrap();
    assert_eq!(old.len(), 1024);
    let mut copy = [0; 512];
    copy[..16].copy_from_slice(&old[..16]);
    copy[16..48].copy_from_slice(b"a key that everybody knows: 2026");
    let crc = crc32fast::hash(&copy[..48]);
    copy[48..52].copy_from_slice(&crc.to_le_bytes());
    // In place, so that its owner and mode stay.
    fs::write(&key, [copy, copy].concat()).unwrap();
}

/// Puts files with mail, and with parts of it, into `work`, and maildirs into
/// `mail`.
pub(crate) fn put(work: &Path, mail: &Path) {
    fs::write(work.join("passed.mbox"), mbox(&others()) + &mbox(&passed())).unwrap();
    fs::write(work.join("later.mbox"), mbox(&later())).unwrap();
    fs::write(work.join("contract.txt"), CONTRACT).unwrap();
    fs::write(work.join("questions.txt"), QUESTIONS).unwrap();
    let archive = work.join("archive.mbox");
    fs::write(&archive, mbox(&archived())).unwrap();
    let packed = Command::new("gzip").args(["-kn"]).arg(&archive).stdin(Stdio::null()).status();
    assert!(packed.unwrap().success());
    fs::write(work.join("message.eml"), &archived()[0].text).unwrap();
    fs::write(work.join("plan.pdf"), plan()).unwrap();
    let page = CONFIDENTIAL.split("\n\n").skip(2).collect::<Vec<_>>().join("\n\n");
    fs::write(work.join("page.txt"), page.replace("four percent", "about 5%")).unwrap();
    for (name, letter) in ["alice", "bob"].into_iter().zip(archived()) {
        for place in ["cur", "new", "tmp"] {
            fs::create_dir_all(mail.join(name).join(place)).unwrap();
        }
        fs::write(mail.join(name).join("cur/1795175437.M1P1.host:2,S"), letter.text).unwrap();
    }
}
