use super::*;

/// What is read of `text` when it arrives in pieces of this size.
fn requests(text: &[u8], size: usize) -> Result<Vec<PolicyRequest>, RequestFault> {
    let (mut parser, mut requests) = (RequestParser::default(), Vec::new());
    for mut piece in text.chunks(size) {
        while let Some(request) = parser.take(&mut piece)? {
            let Request::Postfix(request) = request else { panic!("it is Exim's") };
            requests.push(*request);
        }
        assert!(piece.is_empty());
    }
    assert!(!parser.has_begun() || !text.ends_with(b"\n\n"));
    Ok(requests)
}

const REQUEST: &str = "request=smtpd_access_policy\nprotocol_state=RCPT\nhelo_name=a=b\n\
                       unknown_attribute=\nsender=\nrecipient=\u{e9}@example.net\r\nsize=12345\n\
                       instance=1.2.3.0\nclient_address=2001:db8::1\nsasl_username=alice\n\n";

#[test]
fn requests_are_read_however_they_arrive() {
    let text = [REQUEST, REQUEST, REQUEST].concat();
    for size in [1, 2, 3, 7, 100, text.len()] {
        let read = requests(text.as_bytes(), size).unwrap();
        assert_eq!(read.len(), 3);
        for request in read {
            assert_eq!(request.helo_name, "a=b");
            assert_eq!(request.recipient, "\u{e9}@example.net");
            assert_eq!((request.size.as_str(), request.sender.as_str()), ("12345", ""));
            let event = request.event().unwrap();
            assert_eq!(event.stage, AclStage::Rcpt);
            let event = event.event;
            assert_eq!(event.client.address(), Some("2001:db8::1".parse().unwrap()));
            assert_eq!(event.sender.as_deref(), Some(""));
            assert_eq!(event.auth.as_deref(), Some("alice"));
            assert_eq!((event.message_id, event.local.is()), (None, false));
        }
    }
}

#[test]
fn what_is_no_request_is_refused() {
    let long = |length| format!("{REQUEST}sender={}", "x".repeat(length));
    let lines = |number| format!("{}request=smtpd_access_policy\n\n", "a=\n".repeat(number));
    let large = format!("{}\n", "x=".repeat(LINE_MAX / 2)).repeat(9);
    for (text, expected) in [
        (long(LINE_MAX - 7), Ok(1)),
        (long(LINE_MAX - 6), Err(RequestFault::LongLine)),
        (lines(LINES_MAX - 1), Ok(1)),
        (lines(LINES_MAX), Err(RequestFault::ManyLines)),
        (large, Err(RequestFault::Large)),
        ("GET / HTTP/1.1\n\n".to_owned(), Err(RequestFault::NoAttribute)),
        ("\n".to_owned(), Err(RequestFault::OtherRequest)),
        ("request=other\n\n".to_owned(), Err(RequestFault::OtherRequest)),
        ("=\n=x\n\n".to_owned(), Err(RequestFault::OtherRequest)),
        ("request=smtpd_access_policy".to_owned(), Ok(0)),
    ] {
        for size in [1, 1000, text.len()] {
            let found = requests(text.as_bytes(), size).map(|read| read.len());
            assert_eq!(found, expected, "{} by {size}", &text[..text.len().min(40)]);
        }
    }
}

#[test]
fn each_state_has_its_stage() {
    let event = |state: &str, recipient: &str, count: &str| {
        let [protocol_state, recipient, recipient_count] =
            [state, recipient, count].map(str::to_owned);
        let request = PolicyRequest {
            protocol_state,
            recipient,
            recipient_count,
            client_address: "127.0.0.1".to_owned(),
            ..PolicyRequest::default()
        };
        request.event()
    };
    for (state, stage) in [
        ("CONNECT", Some(AclStage::Connect)),
        ("EHLO", Some(AclStage::Helo)),
        ("HELO", Some(AclStage::Helo)),
        ("MAIL", Some(AclStage::Mail)),
        ("RCPT", Some(AclStage::Rcpt)),
        ("DATA", Some(AclStage::Predata)),
        ("BDAT", Some(AclStage::Predata)),
        ("END-OF-MESSAGE", Some(AclStage::Data)),
        ("VRFY", None),
        ("ETRN", None),
        ("", None),
    ] {
        assert_eq!(event(state, "", "0").map(|event| event.stage), stage, "{state}");
    }
    let sender = |state| event(state, "", "0").unwrap().event.sender;
    assert_eq!([sender("CONNECT"), sender("EHLO")], [None, None]);
    assert_eq!(sender("MAIL").as_deref(), Some(""));
    assert!(event("RCPT", "a@b", "0").unwrap().event.local.is());
    // Postfix names the recipient at the end only if there is one.
    let one = event("END-OF-MESSAGE", "a@b", "1").unwrap();
    assert_eq!((one.recipients.len(), one.facts.recipients, one.event.recipient), (1, 1, None));
    let several = event("END-OF-MESSAGE", "", "3").unwrap();
    assert_eq!((several.recipients.len(), several.facts.recipients), (0, 3));
    let wrong = event("END-OF-MESSAGE", "", "-1").unwrap();
    assert_eq!((wrong.facts.recipients, wrong.facts.message_size), (0, 0));
}

#[test]
fn requests_of_exim_come_by_the_same_socket() {
    let long = "QUJD".repeat(10_000);
    let text = format!("request=exirate_policy\nsession=1.2\nlist={long}\nunknown=x\n\n{REQUEST}");
    for size in [1, 100, text.len()] {
        let (mut parser, mut exim, mut postfix) = (RequestParser::default(), 0, 0);
        for mut piece in text.as_bytes().chunks(size) {
            while let Some(request) = parser.take(&mut piece).unwrap() {
                match request {
                    Request::Exim(request) => {
                        assert_eq!(request.step().unwrap().session, b"1.2");
                        exim += 1;
                    }
                    Request::Postfix(_) => postfix += 1,
                }
            }
        }
        assert_eq!((exim, postfix), (1, 1));
    }
    for (text, fault) in [
        (
            "request=exirate_policy\nsession=1\nsession=2\n".to_owned(),
            RequestFault::Exim(EximFault::Twice),
        ),
        (
            format!("request=exirate_policy\nlist={}", "x".repeat(exim::LINE_MAX)),
            RequestFault::LongLine,
        ),
        (format!("request=exirate_policy\n{}", "a=b\n".repeat(LINES_MAX)), RequestFault::ManyLines),
        // Only the first line can say so: what Postfix sends stays Postfix's.
        ("a=b\nrequest=exirate_policy\n\n".to_owned(), RequestFault::OtherRequest),
    ] {
        let mut parser = RequestParser::default();
        assert_eq!(parser.take(&mut text.as_bytes()).unwrap_err(), fault);
    }
}
