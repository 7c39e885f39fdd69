//! Other programs: each gets an environment of its own, and nothing else of this process.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where programs look for others.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A command that runs `program`, which is searched for as a shell would. The program has no
/// variable but `PATH` in its environment, the root as its directory, and no file of this
/// process open but those that the caller gives it.
#[must_use]
pub fn command(program: &OsStr) -> Command {
    let mut command = Command::new(found(program));
    command.arg0(program).env_clear().env("PATH", PATH).current_dir("/");
    // SAFETY: between fork and exec it only makes system calls.
    unsafe { command.pre_exec(close_others) };
    command
}

/// Makes the program the leader of a session of its own: it has no terminal, and its process
/// group has its number.
pub fn own_session(command: &mut Command) {
    // SAFETY: between fork and exec it only makes a system call.
    unsafe { command.pre_exec(begin_session) };
}

fn begin_session() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// Closes all files but the standard streams when the program begins.
fn close_others() -> io::Result<()> {
    let (first, last): (libc::c_uint, libc::c_uint) = (3, libc::c_uint::MAX);
    // SAFETY: it takes numbers. A kernel without it (before 5.11) leaves open what was opened
    // without CLOEXEC, which nothing here does.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) };
    Ok(())
}

/// The file of `program`; one that does not exist if it is not found.
fn found(program: &OsStr) -> PathBuf {
    if program.as_encoded_bytes().contains(&b'/') {
        return program.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| PATH.into());
    let mut files = std::env::split_paths(&path).map(|directory| directory.join(program));
    let is_program = |file: &PathBuf| {
        use rustix::fs::{Access, access};
        file.is_absolute() && file.is_file() && access(file, Access::EXEC_OK).is_ok()
    };
    files.find(is_program).unwrap_or_else(|| Path::new("/nonexistent").join(program))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn a_program_gets_nothing_of_this_process() {
        let open = File::open("/dev/null").unwrap();
        // As another library might open it.
        rustix::io::fcntl_setfd(&open, rustix::io::FdFlags::empty()).unwrap();
        let script = "env; pwd; ls /proc/$$/fd; cut -d' ' -f1,5,6 /proc/$$/stat; echo $0";
        let mut command = command(OsStr::new("sh"));
        command.args(["-c", script]);
        own_session(&mut command);
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = said.lines().collect();
        // What the shell itself sets.
        let own =
            |line: &&&str| ["PWD=", "SHLVL=", "_=", "OLDPWD="].iter().any(|v| line.starts_with(v));
        let variables = lines.iter().take_while(|line| line.contains('='));
        let others: Vec<_> = variables.filter(|line| !own(line)).collect();
        assert_eq!(others, [&format!("PATH={PATH}").as_str()]);
        assert!(lines.contains(&"/"), "{said}");
        assert!(!lines.contains(&open.as_raw_fd().to_string().as_str()), "{said}");
        // Process, group and session are one.
        let ids = lines.iter().rev().nth(1).unwrap();
        let ids: Vec<&str> = ids.split(' ').collect();
        assert!(ids.len() == 3 && ids[0] == ids[1] && ids[1] == ids[2], "{said}");
        assert_eq!(lines.last(), Some(&"sh"));
    }

    #[test]
    fn a_program_that_is_not_there_is_not_found() {
        for name in ["no-such-program", "/nonexistent/program"] {
            let error = command(OsStr::new(name)).output().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        }
    }
}
