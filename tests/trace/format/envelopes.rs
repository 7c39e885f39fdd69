//! The envelopes of a log and of a segment, decoded as specified in FORMAT.md.

use std::net::IpAddr;

use exirate::trace::Envelope;

use super::codes::{Bits, Code, text};
use kit::trace_format::{Segment, number, value, values};

/// Takes so many bytes.
fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(count);
    *bytes = rest;
    taken
}

/// Decodes the envelope of a log.
pub(crate) fn of_log(mut bytes: &[u8]) -> Envelope {
    let rest = &mut bytes;
    let time = number(take(rest, 8)).cast_signed();
    let flags = take(rest, 1)[0];
    let client = match flags & 6 {
        0 => None,
        2 => Some(IpAddr::from(<[u8; 4]>::try_from(take(rest, 4)).unwrap())),
        4 => Some(IpAddr::from(<[u8; 16]>::try_from(take(rest, 16)).unwrap())),
        other => panic!("{other}"),
    };
    let text = |rest: &mut &[u8]| {
        let length = number(take(rest, 2)) as usize;
        String::from_utf8(take(rest, length).to_vec()).unwrap()
    };
    let (id, sender, authenticated) = (text(rest), text(rest), text(rest));
    let count = number(take(rest, 4));
    let recipients = (0..count).map(|_| text(rest)).collect();
    assert!(rest.is_empty());
    Envelope { time, id, sender, recipients, client, authenticated, partial: flags & 1 == 1 }
}

/// The blocks of a section with so many items, according to its table.
fn blocks<'a>(
    section: &'a [Vec<u8>],
    count: u64,
    each: u64,
    table: &mut Bits<'_>,
) -> Vec<(&'a [u8], u64)> {
    assert_eq!(section.len() as u64, count.div_ceil(each));
    let sized = (0..).zip(section).map(|(block, bytes)| {
        assert_eq!(table.number(6), bytes.len() as u64);
        (bytes.as_slice(), each.min(count - block * each))
    });
    sized.collect()
}

#[derive(Default)]
struct Words {
    addresses: Vec<String>,
    names: Vec<String>,
    clients: Vec<IpAddr>,
}

/// Compares by bytes with ASCII letters in lower case, and then by bytes.
fn in_order(a: &[u8], b: &[u8]) -> bool {
    (a.to_ascii_lowercase(), a) < (b.to_ascii_lowercase(), b)
}

fn words(segment: &Segment) -> Words {
    let count = |name: &str| value(&segment.head, &format!("segment.{name}"));
    let counts = ["domains", "addresses", "names", "fours", "sixes"].map(count);
    let mut bits = Bits::of(&segment.tables[0]);
    let mut sections = Vec::new();
    for (section, count) in segment.sections.iter().zip(counts) {
        sections.push(blocks(section, count, 128, &mut bits));
    }
    let [byte, shared, rest, domain, four, six, low] =
        [256, 65, 65, 65, 65, 65, 65].map(|symbols| Code::read(symbols, &mut bits));
    bits.end();
    let texts = [&byte, &shared, &rest];
    let [domains, addresses, names, fours, sixes] = sections.try_into().ok().unwrap();
    let all = |blocks: Vec<(&[u8], u64)>| {
        let mut found = Vec::new();
        for (bytes, count) in blocks {
            let (mut bits, mut before) = (Bits::of(bytes), Vec::new());
            for _ in 0..count {
                text(texts, &mut before, &mut bits);
                found.push(before.clone());
            }
            bits.end();
        }
        found
    };
    let domains = all(domains);
    assert!(domains.is_sorted_by(|a, b| in_order(a, b)));
    let names = all(names);
    assert!(names.is_sorted());
    let mut words = Words::default();
    let mut parts = Vec::new();
    for (bytes, count) in addresses {
        let (mut bits, mut local, mut number) = (Bits::of(bytes), Vec::new(), 0);
        for _ in 0..count {
            number += domain.number(&mut bits);
            text(texts, &mut local, &mut bits);
            parts.push((number, local.clone()));
        }
        bits.end();
    }
    assert!(parts.is_sorted_by(|a, b| a.0 < b.0 || a.0 == b.0 && in_order(&a.1, &b.1)));
    for (number, local) in parts {
        let domain = domains[number as usize].iter().rev().copied();
        words.addresses.push(String::from_utf8(local.into_iter().chain(domain).collect()).unwrap());
    }
    words.names = names.into_iter().map(|name| String::from_utf8(name).unwrap()).collect();
    for (bytes, count) in fours {
        let (mut bits, mut before) = (Bits::of(bytes), 0);
        for _ in 0..count {
            before += four.number(&mut bits) as u32;
            words.clients.push(IpAddr::from(before.to_be_bytes()));
        }
        bits.end();
    }
    for (bytes, count) in sixes {
        let (mut bits, mut high) = (Bits::of(bytes), 0);
        for _ in 0..count {
            high += six.number(&mut bits);
            let all = u128::from(high) << 64 | u128::from(low.number(&mut bits));
            words.clients.push(IpAddr::from(all.to_be_bytes()));
        }
        bits.end();
    }
    words
}

/// The codes of the table of messages, and the rest of the table.
struct Messages<'a> {
    blocks: Vec<(&'a [u8], u64)>,
    senders: Vec<(&'a [u8], u64)>,
    names: Vec<(&'a [u8], u64)>,
    places: Vec<(&'a [u8], u64)>,
    starts: Vec<u64>,
    codes: Vec<Code>,
}

fn messages(segment: &Segment) -> Messages<'_> {
    let count = |name: &str| value(&segment.head, &format!("segment.{name}"));
    let mut bits = Bits::of(&segment.tables[1]);
    let [clients, addresses] = [count("fours") + count("sixes") + 1, count("addresses")];
    let many = [count("names") + 3, clients, addresses, addresses];
    let lengths = many.iter().map(|symbols| symbols.div_ceil(2048)).sum();
    let lengths = blocks(&segment.sections[5], lengths, 1, &mut bits);
    let blocks_of = blocks(&segment.sections[6], count("messages"), 128, &mut bits);
    let [senders, names, places] = [7, 8, 9]
        .map(|section| blocks(&segment.sections[section], count("messages"), 1024, &mut bits));
    let starts = (0..count("runs")).map(|_| bits.take(32)).collect();
    let mut lengths = lengths.into_iter().map(|(bytes, _)| bytes);
    let many = many.map(|symbols| Code::read_many(symbols, &mut lengths, &mut bits));
    let symbols = [65, 65, 8, 65, 65, 65, 256, 65, 65, count("runs")];
    let few = symbols.map(|symbols| Code::read(symbols, &mut bits));
    let codes = few.into_iter().chain(many).collect();
    bits.end();
    Messages { blocks: blocks_of, senders, names, places, starts, codes }
}

/// A number in base 62, with so many digits.
fn base62(mut number: u64, digits: usize) -> String {
    let all = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut text = vec![b'0'; digits];
    for place in text.iter_mut().rev() {
        *place = all[(number % 62) as usize];
        number /= 62;
    }
    String::from_utf8(text).unwrap()
}

/// A size in groups of 7 bits.
fn size(bytes: &mut &[u8]) -> usize {
    let mut size = 0;
    for shift in (0..).step_by(7) {
        let byte = take(bytes, 1)[0];
        size |= usize::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            break;
        }
    }
    size
}

/// All envelopes of a segment.
pub(crate) fn of_segment(segment: &Segment) -> Vec<Envelope> {
    let (words, table) = (words(segment), messages(segment));
    let [
        time,
        count,
        form,
        id_time,
        id_process,
        id_fraction,
        id_byte,
        id_shared,
        id_rest,
        _,
        name,
        client,
        from,
        to,
    ] = &table.codes[..]
    else {
        panic!()
    };
    let first = values(&segment.head, "segment.times", 8)[0];
    let mut found = Vec::new();
    let mut senders = symbols(from, &table.senders).into_iter();
    let mut names = symbols(name, &table.names).into_iter();
    for (mut block, messages) in table.blocks {
        let sizes = [(); 2].map(|()| size(&mut block));
        let columns = sizes.map(|size| take(&mut block, size));
        let [mut times, mut recipients] = columns.map(Bits::of);
        let mut rest = Bits::of(block);
        let (mut now, mut process, mut before) = (first, 0_i64, Vec::new());
        for _ in 0..messages {
            now = now.wrapping_add(time.number(&mut times));
            let sender = words.addresses[senders.next().unwrap() as usize].clone();
            let recipients = (0..count.number(&mut recipients))
                .map(|_| words.addresses[to.symbol(&mut recipients) as usize].clone())
                .collect();
            let kind = form.symbol(&mut rest);
            let id = match kind % 4 {
                0 => String::new(),
                3 => {
                    text([id_byte, id_shared, id_rest], &mut before, &mut rest);
                    String::from_utf8(before.clone()).unwrap()
                }
                short => {
                    let seconds = now.wrapping_sub(id_time.signed(&mut rest).cast_unsigned());
                    process += id_process.signed(&mut rest);
                    let numbers = [seconds, process.cast_unsigned(), id_fraction.number(&mut rest)];
                    let digits = if short == 1 { [6, 6, 2] } else { [6, 11, 4] };
                    let parts = [0, 1, 2].map(|n| base62(numbers[n], digits[n]));
                    parts.join("-")
                }
            };
            let client = match client.symbol(&mut rest) {
                0 => None,
                n => Some(words.clients[n as usize - 1]),
            };
            let authenticated = match names.next().unwrap() {
                0 => String::new(),
                1 => sender.clone(),
                2 => sender.rsplit_once('@').map_or(&*sender, |(local, _)| local).to_owned(),
                n => words.names[n as usize - 3].clone(),
            };
            let (time, partial) = (now.cast_signed(), kind >= 4);
            found.push(Envelope { time, id, sender, recipients, client, authenticated, partial });
        }
        [times, recipients, rest].into_iter().for_each(Bits::end);
    }
    found
}

/// The symbols of some blocks that contain nothing else.
fn symbols(code: &Code, blocks: &[(&[u8], u64)]) -> Vec<u64> {
    let mut found = Vec::new();
    for (bytes, count) in blocks {
        let mut bits = Bits::of(bytes);
        found.extend((0..*count).map(|_| code.symbol(&mut bits)));
        bits.end();
    }
    found
}

/// Checks that each message has a position, and that those of a run ascend.
pub(crate) fn check_positions(segment: &Segment) {
    let table = messages(segment);
    let run_code = &table.codes[9];
    let mut counts = vec![0; table.starts.len()];
    let mut places = Vec::new();
    assert!(table.places.len() > 1 && table.starts.len() > 2);
    let messages = value(&segment.head, "segment.messages");
    let width = u64::from(u64::BITS - messages.leading_zeros());
    for (bytes, messages) in table.places {
        let mut bits = Bits::of(bytes);
        let earlier: Vec<_> = counts.iter().map(|_| bits.take(width)).collect();
        assert_eq!(earlier, counts);
        for _ in 0..messages {
            let run = run_code.symbol(&mut bits) as usize;
            places.push(table.starts[run] + counts[run]);
            counts[run] += 1;
        }
        bits.end();
    }
    places.sort_unstable();
    assert!(places.into_iter().eq(0..messages));
}
