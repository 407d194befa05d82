//! A terminal for one command: what it shows goes to the reaper's standard output, what comes on the reaper's standard input
//! is typed into it.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::{AsFd, OwnedFd},
};

use caliban_process::thread_with_room;
use rustix::{
    fs::{Mode, OFlags},
    process::{Pid, Signal},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetpgrp, tcsetwinsize},
};
use tokio::sync::oneshot;

/// Its size: wide enough that programs do not fold what they print.
const SIZE: Winsize = Winsize { ws_row: 40, ws_col: 160, ws_xpixel: 0, ws_ypixel: 0 };
const BLOCK_BYTES: usize = 16 << 10;

/// A terminal that nobody sits at.
pub(crate) struct Terminal {
    /// Our end.
    outer: OwnedFd,
    /// The command's end.
    inner: OwnedFd,
}

impl Terminal {
    /// A new terminal, which becomes that of our session: we lead one and have none.
    pub(crate) fn open() -> io::Result<Self> {
        let outer = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&outer)?;
        unlockpt(&outer)?;
        let name = ptsname(&outer, Vec::new())?;
        let inner = rustix::fs::open(name, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        tcsetwinsize(&outer, SIZE)?;
        Ok(Self { outer, inner })
    }

    /// The command's three streams.
    pub(crate) fn ends(&self) -> io::Result<[OwnedFd; 3]> {
        Ok([self.inner.try_clone()?, self.inner.try_clone()?, self.inner.try_clone()?])
    }

    /// Gives the terminal to the command and serves it. The receiver is told when all that the command showed is passed on.
    pub(crate) fn serve(self, group: Pid) -> io::Result<oneshot::Receiver<()>> {
        // It leads its own group. One that wants to read before the terminal is its own is stopped, so it is continued.
        tcsetpgrp(&self.inner, group)?;
        let _ended_already = rustix::process::kill_process_group(group, Signal::CONT);
        drop(self.inner);
        let typed = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let keyboard = File::from(self.outer.try_clone()?);
        // Both threads end with this process at the latest.
        thread_with_room("keyboard", move || copy(typed, keyboard))?;
        let (told, shown) = oneshot::channel();
        let (screen, output) =
            (File::from(self.outer), File::from(io::stdout().as_fd().try_clone_to_owned()?));
        thread_with_room("screen", move || {
            copy(screen, output);
            let _nobody_waits = told.send(());
        })?;
        Ok(shown)
    }
}

/// Copies until either end is closed. A terminal whose last user is gone ends with an error.
fn copy(mut from: File, mut to: File) {
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        match from.read(&mut block) {
            Ok(0) => return,
            Ok(got) if to.write_all(&block[..got]).is_ok() => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => return,
        }
    }
}
