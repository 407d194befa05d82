//! Somebody else has the terminal for a while: the shell, an editor, the agent view; and at the end for good.

use std::{
    io::{self, Write as _},
    time::Instant,
};

use super::{FleetView, LoopStep, Runner, input::TerminalInput, machine, signals::Signals};
use crate::events::{AgentEvent, ScreenEvent};

/// How long a signal may take that came with the end of the editor.
const AFTER_EDITOR: std::time::Duration = std::time::Duration::from_millis(20);

impl Runner {
    /// Ctrl+Z: the shell has the terminal until it continues us.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        self.give_terminal();
        let _not_stopped =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TSTP);
        self.take_terminal()
    }

    /// Somebody else has the terminal for a while; the agent works on. None when a signal ends all of it.
    pub(super) async fn away_for(&mut self, next: LoopStep, signals: &mut Signals) -> io::Result<Option<()>> {
        let now = Instant::now();
        match next {
            LoopStep::Quit => {}
            LoopStep::Edit(text) => {
                let Some(edited) = self.edited(&text, signals).await? else { return Ok(None) };
                self.take(ScreenEvent::Agent(AgentEvent::Edited(edited)), Instant::now())?;
            }
            LoopStep::View(text) => {
                let Some(viewed) = self.edited(&text, signals).await? else { return Ok(None) };
                if let Err(why) = viewed {
                    self.take(ScreenEvent::Agent(AgentEvent::Told(why)), Instant::now())?;
                }
            }
            LoopStep::Print(text) => {
                self.give_terminal();
                let mut out = io::stdout().lock();
                write!(out, "{text}\n-- Enter goes back to the screen --\n")?;
                out.flush()?;
                drop(out);
                // The terminal is not raw: a line comes when Enter is pressed.
                let mut keys = TerminalInput::new()?;
                tokio::select! {
                    _ = keys.next() => {}
                    () = signals.end() => return Ok(None),
                }
                drop(keys);
                self.take_terminal()?;
            }
            LoopStep::Fleet => {
                let Some(FleetView(show)) = &mut self.options.fleet else {
                    let told = "Ctrl+D leaves this agent; `caliban agents` shows all of them".to_owned();
                    self.take(ScreenEvent::Agent(AgentEvent::Told(told)), now)?;
                    return Ok(Some(()));
                };
                let shown = show();
                self.give_terminal();
                let shown = shown.await;
                self.take_terminal()?;
                if let Err(why) = shown {
                    self.take(ScreenEvent::Agent(AgentEvent::Told(why)), Instant::now())?;
                }
            }
        }
        Ok(Some(()))
    }

    /// What the person's editor makes of a text, or why nothing; none when a signal ends all of it.
    async fn edited(
        &mut self,
        text: &str,
        signals: &mut Signals,
    ) -> io::Result<Option<Result<String, String>>> {
        let Some(editor) = self.options.machine.editor.clone() else {
            return Ok(Some(Err("there is no editor: set EDITOR".to_owned())));
        };
        self.give_terminal();
        let edited = tokio::select! {
            edited = machine::edit(&editor, text) => edited,
            () = signals.end() => return Ok(None),
        };
        // Ctrl+C in the editor was meant for the editor. It may be told a moment after the editor's end.
        tokio::time::sleep(AFTER_EDITOR).await;
        signals.forget_interrupts();
        self.take_terminal()?;
        Ok(Some(edited))
    }

    /// The terminal is as it was before the screen.
    fn give_terminal(&mut self) {
        self.keys = None;
        self.presenter.give_way();
        self.modes.pause();
    }

    /// The screen has the terminal again.
    fn take_terminal(&mut self) -> io::Result<()> {
        self.modes.resume()?;
        self.keys = Some(TerminalInput::new()?);
        let size = crossterm::terminal::size()?;
        self.state.update(ScreenEvent::Resize(size.0, size.1), Instant::now());
        self.state.returned(Instant::now());
        self.presenter.resized(size.1);
        self.presenter.repaint();
        self.title.clear();
        Ok(())
    }

    /// The terminal is as it was, with the end of the conversation in its scrollback. Best effort: it may be gone.
    pub(super) fn leave_terminal(&mut self) {
        self.keys = None;
        self.presenter.give_way();
        let lines = self.presenter.rest(&mut self.state);
        self.modes.pause();
        let mut out = io::stdout().lock();
        for line in lines {
            if writeln!(out, "{line}").is_err() {
                return;
            }
        }
    }
}
