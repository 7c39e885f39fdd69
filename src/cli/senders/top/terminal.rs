//! The terminal while the live view uses it.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::{cursor, execute, queue, terminal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::cli::shared::screen::Screen;

/// How long a signal may go unnoticed.
const TICK: Duration = Duration::from_millis(200);

/// The alternate screen in raw mode. The terminal is as it was before once
/// this is dropped, on whatever way.
pub(super) struct Terminal {
    end: Arc<AtomicBool>,
}

/// What the user has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// Asked to quit, also by a signal.
    Quit,
    /// A key was pressed.
    Key(char),
    /// The terminal has another size.
    Redraw,
    /// Nothing until the time was up.
    Timeout,
}

impl Terminal {
    /// Takes the terminal over.
    pub(super) fn take() -> io::Result<Self> {
        let end = Arc::new(AtomicBool::new(false));
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&end))?;
        }
        std::thread::spawn(end_with_terminal);
        // First, so that it is dropped if what follows fails half-way.
        let terminal = Self { end };
        enter()?;
        Ok(terminal)
    }

    /// How many columns and rows there are.
    pub(super) fn size(&self) -> io::Result<(u16, u16)> {
        let (width, height) = terminal::size()?;
        Ok((width.max(1), height.max(1)))
    }

    /// Shows `lines` in place of what was there.
    pub(super) fn draw<'a>(
        &self,
        screen: &mut Screen<'_>,
        lines: impl Iterator<Item = &'a [u8]>,
    ) -> io::Result<()> {
        queue!(screen, terminal::BeginSynchronizedUpdate)?;
        for (row, line) in (0_u16..).zip(lines) {
            queue!(screen, cursor::MoveTo(0, row))?;
            screen.write_all(line)?;
            queue!(screen, terminal::Clear(terminal::ClearType::UntilNewLine))?;
        }
        queue!(screen, terminal::Clear(terminal::ClearType::FromCursorDown))?;
        queue!(screen, terminal::EndSynchronizedUpdate)?;
        screen.flush()
    }

    /// Waits for the user, at most until `end`.
    pub(super) fn wait(&self, end: Instant) -> io::Result<Input> {
        loop {
            if self.end.load(Ordering::Relaxed) {
                return Ok(Input::Quit);
            }
            let left = end.saturating_duration_since(Instant::now());
            match event::poll(Duration::ZERO) {
                Ok(true) => {
                    if let Some(input) = parse(&event::read()?)? {
                        return Ok(input);
                    }
                }
                Ok(false) if left.is_zero() => return Ok(Input::Timeout),
                Ok(false) => wait_for_input(left.min(TICK))?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Nothing is left to do about a terminal that is gone.
        let _ = leave();
    }
}

/// Ends the process when its terminal hangs up, as when a connection of ssh
/// breaks. A thread does it, because crossterm reads from such a terminal in a
/// loop that never ends. Nothing is left to restore then.
fn end_with_terminal() {
    let stdin = io::stdin();
    loop {
        // Without flags it waits for a hangup or an error alone.
        let mut fds = [PollFd::new(&stdin, PollFlags::empty())];
        match poll(&mut fds, None) {
            Err(Errno::INTR) => {}
            Ok(_) => std::process::exit(0),
            // Signals and keys still end it.
            Err(_) => return,
        }
    }
}

/// Waits for input, at most so long.
fn wait_for_input(most: Duration) -> io::Result<()> {
    let stdin = io::stdin();
    match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Timespec::try_from(most).ok().as_ref()) {
        // A signal: perhaps the terminal has another size.
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What an event asks for.
fn parse(event: &Event) -> io::Result<Option<Input>> {
    let key = match event {
        Event::Resize(..) => return Ok(Some(Input::Redraw)),
        Event::Key(key) if key.kind != KeyEventKind::Release => key,
        _ => return Ok(None),
    };
    Ok(match key.code {
        // In raw mode they are keys as any other.
        KeyCode::Char('c' | 'd' | '\\') if key.modifiers.contains(KeyModifiers::CONTROL) => {
            Some(Input::Quit)
        }
        KeyCode::Char('z') if key.modifiers.contains(KeyModifiers::CONTROL) => {
            stop()?;
            Some(Input::Redraw)
        }
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Some(Input::Quit),
        KeyCode::Char(c) => Some(Input::Key(c)),
        KeyCode::Enter => Some(Input::Redraw),
        _ => None,
    })
}

/// Stops this process, with the terminal as it was, until the shell lets it
/// go on.
fn stop() -> io::Result<()> {
    leave()?;
    kill_process(getpid(), Signal::STOP)?;
    enter()
}

fn enter() -> io::Result<()> {
    terminal::enable_raw_mode()?;
    // What is too long for a line is cut off, and does not move those below.
    execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide, terminal::DisableLineWrap)
}

fn leave() -> io::Result<()> {
    let shown = execute!(
        io::stdout(),
        terminal::EnableLineWrap,
        cursor::Show,
        terminal::LeaveAlternateScreen
    );
    terminal::disable_raw_mode().and(shown)
}
