//! The two lines that are typed into a pane.
//!
//! Owns their inertness: no control character of any kind is left in them, the body has no line
//! break of its own, and the header comes first, so that a body beginning with `!` or `/` is not a
//! command. The blank at the end keeps a final `\` or `@word` from changing what Enter does.

use caliban_core::inert;
use caliban_store::broker::Task;

use crate::render::cut;

/// What stands for a line break inside the body.
const LINE_BREAK: &str = "⏎";

/// The text to paste for a message.
pub(crate) fn preview(task: &Task, max_text_len: usize) -> String {
    format!("{}\n{} ", header(task), body(&task.text, max_text_len))
}

/// The part of the header by which a message is found on a screen again.
pub(crate) fn marker(task: &Task) -> String {
    format!("cafleet msg {}", task.id.short())
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
    use super::body;

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
