//! Every part of a message is found, with its envelope.

use super::{answers, carriers, exim, ids, sentence, with_text};
use exirate::trace::{Envelope, Part};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{SystemTime, UNIX_EPOCH};

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed()
}

#[test]
fn every_part_of_a_message_is_found_by_an_excerpt() {
    const MESSAGE: &str = "\
From: =?utf-8?Q?Zo=C3=AB_of_the_Northern_Branch_Office?= <zoe@client.test>
To: b@private.test
Subject: =?utf-8?B?UmVwb3J0IG9uIHRoZSB3aW50ZXIgaGVycmluZyBvZiBLw7ZuaWdzYmVyZw==?=
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=outer

--outer
Content-Type: multipart/alternative; boundary=inner

--inner
Content-Type: text/plain; charset=iso-8859-1
Content-Transfer-Encoding: quoted-printable

Nobody but the lighthouse keeper kn=E9w where the caf=E9 had stored its =
barrels of salted cod.
--inner
Content-Type: text/html; charset=utf-8
Content-Transfer-Encoding: base64

PGh0bWw+PGJvZHk+PHA+VGhlIDxiPmJvYXRzd2FpbjwvYj4gc29sZCBoaXMgdHdvIHBhcnJvdHMg
dG8gYSBkZWFsZXIgZnJvbSBWYWxwYXJhaXNvPC9wPjxhIGhyZWY9Imh0dHBzOi8vcGFycm90cy5l
eGFtcGxlL2Fucy9vZmZlci9vZi90aGUvd2Vlay9uaW5ldHktbmluZSI+bW9yZTwvYT48L2JvZHk+
PC9odG1sPgo=
--inner--
--outer
Content-Type: application/octet-stream; name=\"plan of the third mine gallery.bin\"
Content-Disposition: attachment; filename=\"plan of the third mine gallery.bin\"
Content-Transfer-Encoding: base64

ATACHMENT
--outer--
";
    // Bytes without any rule to them, the same each time.
    let mut random = kit::Random::new(1);
    let attachment: Vec<u8> = (0..9000).map(|_| random.byte()).collect();
    let message = MESSAGE.replace("ATACHMENT", &base64(&attachment));
    let exim = exim("");
    // Another message, before and after.
    let mut client = exim.session();
    client.command("AUTH PLAIN AGFsaWNlAGdvb2Q=");
    let other = format!("Subject: other\n\n{}\n", sentence(1));
    assert!(client.message("o@client.test", &["p@private.test"], &other).is_ok());
    let before = now();
    let recipients = ["b@private.test", "\"c, d\"@private.test", "e@other.test"];
    assert!(client.message("zoe@client.test", &recipients, &message).is_ok());
    let after = now();
    assert!(client.message("o@client.test", &["p@private.test"], &other).is_ok());
    client.quit();

    // So short, others may look alike.
    let mut all =
        with_text(&exim, "Nobody but the lighthouse keeper kn\u{e9}w where the caf\u{e9}");
    all.retain(|envelope| envelope.sender == "zoe@client.test");
    let found = all.remove(0);
    assert!((before..=after).contains(&found.time), "{found:?}");
    let expected = Envelope {
        time: found.time,
        id: ids(&exim)[1].clone(),
        sender: "zoe@client.test".into(),
        recipients: recipients.map(str::to_owned).into(),
        client: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        authenticated: "alice".into(),
        partial: false,
    };
    assert_eq!(found, expected);
    for text in [
        "report on the winter herring of k\u{f6}nigsberg",
        "zo\u{eb} of the northern branch office",
        "> keeper kn\u{c9}W where  the\n> caf\u{e9} had stored its barrels of salted",
        "The boatswain sold his two parrots to a dealer from Valparaiso",
        "https://parrots.example/ans/offer/of/the/week/ninety-nine",
        "plan of the third mine gallery.bin",
    ] {
        assert!(with_text(&exim, text).contains(&expected), "{text}");
    }
    for part in [Part::File(attachment.clone()), Part::Bytes(attachment[1000..8000].to_vec())] {
        assert_eq!(carriers(&exim.spool(), vec![part]), std::slice::from_ref(&expected));
    }
    // What was never sent.
    let other = "nobody but the lighthouse keeper's daughter had ever seen where the barrels with \
                 the good coffee were put, and she would not have told it to anyone for the world";
    for text in [other, &sentence(2)] {
        assert_eq!(with_text(&exim, text), [], "{text}");
    }
    let mut changed = attachment;
    changed[1500] ^= 1;
    assert_eq!(carriers(&exim.spool(), vec![Part::File(changed)]), []);
    assert_eq!(with_text(&exim, &sentence(1)).len(), 2);
    assert_eq!((answers(&exim), exim.log("panic")), (vec!["yes".to_owned(); 3], String::new()));
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(bytes);
    let lines: Vec<&str> =
        text.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap()).collect();
    lines.join("\n")
}
