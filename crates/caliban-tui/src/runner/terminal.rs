//! The modes of the terminal: set on entering, put back on leaving, on a panic, and while the process is suspended.

use std::{
    io,
    panic::PanicHookInfo,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
};

/// Alternate screen. The wheel must not send arrow keys (1007), and what it was before comes back.
const ALTERNATE: &[u8] = b"\x1b[?1049h\x1b[?1007s\x1b[?1007l\x1b[2J\x1b[H";
/// Bracketed paste, focus reports, kitty keys (disambiguated).
const KEYS: &[u8] = b"\x1b[?2004h\x1b[?1004h\x1b[>1u";
/// The title of the window is put aside (22) and comes back (23).
const TITLE_ASIDE: &[u8] = b"\x1b[22;2t";
/// Keys, mouse and title as they were; the cursor is seen, and letters are plain.
const LEAVE: &[u8] =
    b"\x1b[?2026l\x1b[<1u\x1b[?1004l\x1b[?2004l\x1b[?1006l\x1b[?1002l\x1b[?1000l\x1b[0m\x1b[23;2t\x1b[?25h";
const LEAVE_ALTERNATE: &[u8] = b"\x1b[?1007r\x1b[?1049l";
/// Reports of buttons, the wheel and movements while a button is pressed.
const MOUSE_ON: &[u8] = b"\x1b[?1000h\x1b[?1002h\x1b[?1006h";
/// The wheel must not walk through the history: no arrow keys for it (1007).
const MOUSE_OFF: &[u8] = b"\x1b[?1006l\x1b[?1002l\x1b[?1000l\x1b[?1007l";

/// Whether the modes are set.
static IS_ENTERED: AtomicBool = AtomicBool::new(false);
/// Whether that includes the alternate screen.
static IS_ALTERNATE: AtomicBool = AtomicBool::new(false);
/// Whether something has panicked while they were.
static HAS_PANICKED: AtomicBool = AtomicBool::new(false);

/// The terminal while the screen has it. Dropped, it is as it was.
#[derive(Debug)]
pub(super) struct Modes {
    is_alternate: bool,
    has_mouse: bool,
}

impl Modes {
    /// Sets the modes.
    pub(super) fn enter(is_alternate: bool, has_mouse: bool) -> io::Result<Self> {
        catch_panics();
        set(is_alternate, has_mouse)?;
        Ok(Self { is_alternate, has_mouse })
    }

    /// Puts everything back for a while.
    pub(super) fn pause(&self) {
        restore();
    }

    /// Sets the modes again.
    pub(super) fn resume(&self) -> io::Result<()> {
        set(self.is_alternate, self.has_mouse)
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

/// Names the window. The title must have no control characters.
pub(super) fn set_title(title: &str) -> io::Result<()> {
    write(format!("\x1b]2;{title}\x1b\\").as_bytes())
}

/// Asks what the letters stand on (OSC 11); the answer comes with the keys.
pub(super) fn ask_ground() -> io::Result<()> {
    write(b"\x1b]11;?\x1b\\")
}

/// Whether a panic has put the terminal back under the screen's feet.
pub(super) fn has_panicked() -> bool {
    HAS_PANICKED.load(Ordering::SeqCst)
}

fn set(is_alternate: bool, has_mouse: bool) -> io::Result<()> {
    crossterm::terminal::enable_raw_mode()?;
    IS_ENTERED.store(true, Ordering::SeqCst);
    IS_ALTERNATE.store(is_alternate, Ordering::SeqCst);
    write(&entering(is_alternate, has_mouse))
}

fn entering(is_alternate: bool, has_mouse: bool) -> Vec<u8> {
    let alternate = if is_alternate { ALTERNATE } else { b"" };
    let mouse = match (is_alternate, has_mouse) {
        (_, true) => MOUSE_ON,
        (true, false) => MOUSE_OFF,
        // The terminal's own scrollback has its own wheel.
        (false, false) => b"",
    };
    [alternate, TITLE_ASIDE, KEYS, mouse].concat()
}

/// Puts everything back, once. Best effort: a terminal that is gone needs nothing.
fn restore() {
    if IS_ENTERED.swap(false, Ordering::SeqCst) {
        let _gone = write(LEAVE);
        if IS_ALTERNATE.load(Ordering::SeqCst) {
            let _gone = write(LEAVE_ALTERNATE);
        }
        let _gone = crossterm::terminal::disable_raw_mode();
    }
}

/// Past the lock of stdout: another thread that panics must not wait for it.
pub(super) fn write(mut bytes: &[u8]) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t07_with_the_mouse_off_the_wheel_is_not_the_history() {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let off = text(entering(true, false));
        assert!(off.ends_with("\x1b[?1007l") && !off.contains("\x1b[?1000h"), "{off:?}");
        assert!(text(MOUSE_OFF.to_vec()).ends_with("\x1b[?1007l"));
        let inline = text(entering(false, false));
        assert!(!inline.contains("1049") && !inline.contains("1007"), "{inline:?}");
    }
}
