//! The modes of the terminal: set on entering, put back on leaving, on a panic, and while the process is suspended.

use std::{
    io,
    panic::PanicHookInfo,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
};

/// Alternate screen, bracketed paste, focus reports, kitty keys (disambiguated). The wheel must not send arrow keys
/// (1007), and what it was before comes back.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?1007s\x1b[?1007l\x1b[?2004h\x1b[?1004h\x1b[>1u\x1b[2J\x1b[H";
/// Everything that was set, put back; the cursor is seen, and letters are plain.
const LEAVE: &[u8] =
    b"\x1b[?2026l\x1b[<1u\x1b[?1004l\x1b[?2004l\x1b[?1006l\x1b[?1000l\x1b[?1007r\x1b[0m\x1b[?25h\x1b[?1049l";
/// Reports of buttons and the wheel, not of every movement.
const MOUSE_ON: &[u8] = b"\x1b[?1000h\x1b[?1006h";
const MOUSE_OFF: &[u8] = b"\x1b[?1006l\x1b[?1000l";

/// Whether the modes are set.
static IS_ENTERED: AtomicBool = AtomicBool::new(false);
/// Whether something has panicked while they were.
static HAS_PANICKED: AtomicBool = AtomicBool::new(false);

/// The terminal while the screen has it. Dropped, it is as it was.
#[derive(Debug)]
pub(super) struct Modes {
    has_mouse: bool,
}

impl Modes {
    /// Sets the modes.
    pub(super) fn enter(has_mouse: bool) -> io::Result<Self> {
        catch_panics();
        set(has_mouse)?;
        Ok(Self { has_mouse })
    }

    /// Puts everything back for a while.
    pub(super) fn pause(&self) {
        restore();
    }

    /// Sets the modes again.
    pub(super) fn resume(&self) -> io::Result<()> {
        set(self.has_mouse)
    }

    /// Whether the wheel is reported. Without that, the terminal's own selection works without Shift.
    pub(super) fn set_mouse(&mut self, has_mouse: bool) -> io::Result<()> {
        self.has_mouse = has_mouse;
        write(if has_mouse { MOUSE_ON } else { MOUSE_OFF })
    }
}

impl Drop for Modes {
    fn drop(&mut self) {
        restore();
    }
}

/// Whether a panic has put the terminal back under the screen's feet.
pub(super) fn has_panicked() -> bool {
    HAS_PANICKED.load(Ordering::SeqCst)
}

fn set(has_mouse: bool) -> io::Result<()> {
    crossterm::terminal::enable_raw_mode()?;
    IS_ENTERED.store(true, Ordering::SeqCst);
    write(ENTER)?;
    if has_mouse { write(MOUSE_ON) } else { Ok(()) }
}

/// Puts everything back, once. Best effort: a terminal that is gone needs nothing.
fn restore() {
    if IS_ENTERED.swap(false, Ordering::SeqCst) {
        let _gone = write(LEAVE);
        let _gone = crossterm::terminal::disable_raw_mode();
    }
}

/// Past the lock of stdout: another thread that panics must not wait for it.
fn write(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(io::stdout(), bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A panic must be read on a terminal that works.
fn catch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
            if IS_ENTERED.load(Ordering::SeqCst) {
                HAS_PANICKED.store(true, Ordering::SeqCst);
                restore();
            }
            before(info);
        }));
    });
}
