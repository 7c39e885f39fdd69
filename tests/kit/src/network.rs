//! Networks of their own.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::Process;

/// A network that ends with it.
pub struct Network {
    holder: Process,
}

impl Network {
    /// One whose interface `lo` has these addresses too; the lines of `more` follow.
    pub fn make(addresses: &[&str], more: &str) -> Self {
        let addresses = addresses.iter().map(|one| format!("ip addr add {one}/32 dev lo\n"));
        let addresses: String = addresses.collect();
        let script =
            format!("set -e\nip link set lo up\n{addresses}{more}\necho ready\nexec sleep 10000\n");
        let mut holder = Command::new("unshare");
        holder.args(["--net", "sh", "-c", &script]).stdout(Stdio::piped());
        let mut holder = Process(holder.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(holder.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { holder }
    }

    /// As [`within`].
    pub fn within<T: Send>(&self, make: impl FnOnce() -> T + Send) -> T {
        within(self.holder.0.id(), make)
    }
}

/// What `make` makes in the network of a process: sockets stay there, and processes begin there.
pub fn within<T: Send>(process: u32, make: impl FnOnce() -> T + Send) -> T {
    let net = File::open(format!("/proc/{process}/ns/net")).unwrap();
    // A socket stays in the network of the thread that made it.
    std::thread::scope(|scope| {
        let made = scope.spawn(|| {
            move_into_link_name_space(net.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            make()
        });
        made.join().unwrap()
    })
}
