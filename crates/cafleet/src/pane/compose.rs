//! The texts that are typed into a pane: the two lines of a message, and the fixed lines of commands.
//!
//! Owns their inertness: no control character of any kind is left in them, the body has no line break of its own, and
//! the header comes first, so that a body beginning with `!` or `/` is not a command. The space at the end keeps a
//! final `\` or `@word` from changing what Enter does.

use caliban_core::inert;
use caliban_store::broker::{AgentId, ExecId, SessionId, Task};

use crate::render::cut;

/// Replaces a line break inside the body.
const LINE_BREAK: &str = "⏎";

/// The text to paste for a message.
pub(crate) fn preview(task: &Task, max_text_len: usize) -> String {
    format!("{}\n{} ", header(task), body(&task.text, max_text_len))
}

/// The part of the header by which a message is recognized on a screen.
pub(crate) fn marker(task: &Task) -> String {
    format!("cafleet msg {}", task.id.short())
}

/// The line that makes a member run a command that its Director stored. Nothing of the command itself is typed.
/// `program` is the path of this program.
pub(crate) fn exec_line(program: Option<&str>, exec: ExecId) -> String {
    format!("! {} exec-run {exec}", callable(program))
}

/// How a shell that has set its own `PATH` finds this program: by its name if it is in a standard directory, else by
/// its path, if that has no special characters.
fn callable(program: Option<&str>) -> &str {
    const NAME: &str = "cafleet";
    let is_plain = |path: &&str| path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-+".contains(&b));
    let Some(path) = program.filter(is_plain) else { return NAME };
    match path.strip_suffix("/cafleet") {
        Some("/usr/local/bin" | "/usr/bin" | "/bin") => NAME,
        _ => path,
    }
}

/// The line that makes a member read its mailbox. It contains no text of any agent.
pub(crate) fn ping_line(session: SessionId, member: AgentId) -> String {
    format!("cafleet --session-id {session} message poll --agent-id {member} ")
}

fn header(task: &Task) -> String {
    format!("[{} from {} {}]", marker(task), task.from.short(), task.status_at)
}

fn body(text: &str, limit: usize) -> String {
    let cut = cut(text, limit);
    let one_line =
        cut.replace("\r\n", LINE_BREAK).replace(['\r', '\n', '\u{85}', '\u{2028}', '\u{2029}'], LINE_BREAK);
    inert::line(&one_line).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{body, callable};

    #[test]
    fn a_program_is_called_by_its_name_only_where_every_shell_finds_it() {
        assert_eq!(callable(Some("/usr/local/bin/cafleet")), "cafleet");
        assert_eq!(callable(Some("/home/u/.cargo/bin/cafleet")), "/home/u/.cargo/bin/cafleet");
        assert_eq!(callable(Some("/home/u/my dir/cafleet")), "cafleet");
        assert_eq!(callable(Some("/x;touch y/cafleet")), "cafleet");
        assert_eq!(callable(None), "cafleet");
    }

    #[test]
    fn a08_no_control_character_is_left_in_a_preview() {
        let every: String =
            (0..=0x9f).filter_map(char::from_u32).chain(['\u{202e}', '\u{e0041}', '\u{200b}']).collect();
        let typed = body(&every, 1000);
        assert_eq!(typed.chars().find(|c| c.is_control()), None, "{typed:?}");
        assert!(!typed.contains(['\u{202e}', '\u{e0041}', '\u{200b}']));
    }

    #[test]
    fn a_preview_has_one_line_of_body_cut_to_the_limit() {
        assert_eq!(body("a\r\nb\rc\nd", 100), "a⏎b⏎c⏎d");
        assert_eq!(body("\u{1b}[201~!rm -rf ~\u{3}", 100), "␛[201~!rm -rf ~␃");
        assert_eq!(body("äöüß", 3), "äöü…");
    }
}
