//! A server that receives mail, and replies to each recipient as its name says.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};

/// Serves the clients of a listener, as long as this process runs.
pub fn serve(listener: TcpListener) {
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || talk(stream.unwrap()));
        }
    });
}

fn talk(mut stream: TcpStream) -> Option<()> {
    stream.write_all(b"220 sink\r\n").ok()?;
    let lines = BufReader::new(stream.try_clone().ok()?).lines();
    let mut in_data = false;
    for line in lines {
        let line = line.ok()?;
        let reply = match line.get(..4).unwrap_or(&line) {
            _ if in_data && line != "." => continue,
            _ if in_data => {
                in_data = false;
                "250 2.0.0 kept"
            }
            "DATA" => {
                in_data = true;
                "354 go on"
            }
            "RCPT" if line.contains("<gone") => "550 5.1.1 no such user",
            "RCPT" if line.contains("<spam") => "550 5.7.1 blocked",
            "RCPT" if line.contains("<full") => "452 4.2.2 mailbox full",
            "RCPT" if line.contains("<busy") => "421 4.3.2 try again later",
            _ => "250 2.1.0 ok",
        };
        stream.write_all(format!("{reply}\r\n").as_bytes()).ok()?;
    }
    Some(())
}
