//! Whether a coding agent's input line can take a message, from what its pane shows.
//!
//! A pure decision. Free is only what is seen to be free: an input line that is there and empty.
//! An agent at work with an empty input line is free, because it queues what is entered. A dialog,
//! a draft, or a shape that is not known is not free.

use super::tmux::PaneFacts;

/// The state of the input line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Composer {
    /// There, and empty.
    Free,
    /// Somebody has typed something and not entered it.
    Draft,
    /// The agent asks something; Enter would answer it.
    Dialog,
    /// No input line to be seen.
    Unknown,
}

/// The coding agent in a pane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    Claude,
    Codex,
}

impl Backend {
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "claude" => Some(Self::Claude),
            "codex" => Some(Self::Codex),
            _ => None,
        }
    }

    /// What may stand at the beginning of its input line.
    fn prompts(self) -> &'static [char] {
        match self {
            Self::Claude => &['❯', '>'],
            Self::Codex => &['›'],
        }
    }

    /// What a dialog of it shows and an idle screen does not, as a regular expression for tmux. It may
    /// also stand in what was said before; so what counts is whether the place changes.
    pub(crate) fn dialog_pattern(self) -> &'static str {
        match self {
            Self::Claude => "(❯|>) +[0-9]+[.]|Esc to cancel",
            Self::Codex => "› +[0-9]+[.]|Press enter to confirm",
        }
    }

    /// What tmux checks at the very moment of typing, as a format: that no dialog has come since
    /// the look, and for codex neither its "Action Required" title nor a hidden cursor.
    pub(crate) fn condition(self, looked: &PaneFacts) -> String {
        let unchanged = format!("#{{==:#{{C/r:{}}},{}}}", self.dialog_pattern(), looked.found_at);
        match self {
            Self::Claude => unchanged,
            Self::Codex => format!(
                "#{{&&:{unchanged},#{{&&:#{{cursor_flag}},#{{?#{{m:*Action Required*,#{{pane_title}}}},0,1}}}}}}"
            ),
        }
    }
}

/// Decides from the pane's facts and, for claude, from the word in its own status file.
pub(crate) fn composer(backend: Backend, facts: &PaneFacts, status: Option<&str>) -> Composer {
    let asks = match backend {
        Backend::Claude => status == Some("waiting"),
        Backend::Codex => facts.title.contains("Action Required"),
    };
    if asks {
        return Composer::Dialog;
    }
    if backend == Backend::Codex && !facts.cursor_shown {
        return Composer::Unknown;
    }
    input_line(backend, &facts.screen)
}

/// Whether the message with this marker is on the screen above an empty input line.
pub(crate) fn was_taken(backend: Backend, screen: &str, marker: &str) -> bool {
    input_line(backend, screen) == Composer::Free
        && styled(screen).iter().any(|line| visible(line).contains(marker))
}

fn input_line(backend: Backend, screen: &str) -> Composer {
    let lines = styled(screen);
    for (at, line) in lines.iter().enumerate().rev() {
        let shown = visible(line);
        let Some(rest) = after_prompt(&shown, backend.prompts()) else { continue };
        if is_choice(rest) {
            return Composer::Dialog;
        }
        let typed = solid(line);
        let typed = after_prompt(&typed, backend.prompts()).unwrap_or_default().trim_matches(FRAME);
        // Below an input of one line there is a rule or nothing; else it goes on there.
        let ends = lines.get(at + 1).is_none_or(|below| is_edge(&visible(below)));
        return if typed.is_empty() && ends { Composer::Free } else { Composer::Draft };
    }
    Composer::Unknown
}

/// The frame that some versions draw around the input line.
const FRAME: [char; 5] = [' ', '│', '┃', '|', '\u{a0}'];

fn after_prompt<'a>(line: &'a str, prompts: &[char]) -> Option<&'a str> {
    let rest = line.trim_start_matches(FRAME).strip_prefix(prompts)?;
    (rest.is_empty() || rest.starts_with(FRAME)).then(|| rest.trim_matches(FRAME))
}

/// `1. Yes` is a choice in a dialog, not a draft.
fn is_choice(rest: &str) -> bool {
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    digits > 0 && rest.as_bytes().get(digits).is_some_and(|next| matches!(next, b'.' | b')'))
}

/// A line below a one-line input: empty, or drawn.
fn is_edge(line: &str) -> bool {
    line.trim_matches(FRAME).chars().all(|c| c == ' ' || ('\u{2500}'..='\u{257f}').contains(&c))
}

/// A line's characters.
fn visible(line: &[(char, Look)]) -> String {
    line.iter().map(|(c, _)| *c).collect()
}

/// The same without what is only suggested (dim) and without the drawn cursor (inverse).
fn solid(line: &[(char, Look)]) -> String {
    let mut inverse = 0;
    let counts = |(_, look): &&(char, Look)| {
        inverse += usize::from(look.inverse);
        // One inverse cell is a cursor; more are text.
        !(look.dim || (look.inverse && inverse == 1))
    };
    line.iter().filter(counts).map(|(c, _)| *c).collect()
}

#[derive(Debug, Clone, Copy, Default)]
struct Look {
    dim: bool,
    inverse: bool,
}

/// The lines of a captured screen, each character with its look, which carries on over line ends.
fn styled(screen: &str) -> Vec<Vec<(char, Look)>> {
    let mut lines = vec![Vec::new()];
    let mut look = Look::default();
    let mut rest = screen.chars();
    while let Some(c) = rest.next() {
        match c {
            '\n' => lines.push(Vec::new()),
            '\u{1b}' => match rest.next() {
                Some('[') => {
                    let body: String = rest.by_ref().take_while(|c| !('@'..='~').contains(c)).collect();
                    apply(&mut look, &body);
                }
                // An operating system command (a link) ends with ESC and a backslash, or a bell.
                Some(']') => {
                    while let Some(c) = rest.next() {
                        if c == '\u{7}' || (c == '\u{1b}' && rest.next().is_some()) {
                            break;
                        }
                    }
                }
                _ => {}
            },
            // tmux switches to line drawing and back with SO and SI.
            '\u{e}' | '\u{f}' => {}
            c => lines.last_mut().into_iter().for_each(|line| line.push((c, look))),
        }
    }
    lines
}

fn apply(look: &mut Look, body: &str) {
    let mut codes = body.split(';');
    while let Some(code) = codes.next() {
        match code {
            "" | "0" => *look = Look::default(),
            "2" => look.dim = true,
            "22" => look.dim = false,
            "7" => look.inverse = true,
            "27" => look.inverse = false,
            // Colours carry numbers of their own.
            "38" | "48" => match codes.next() {
                Some("5") => drop(codes.next()),
                Some("2") => drop((codes.next(), codes.next(), codes.next())),
                _ => {}
            },
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Backend, Composer, input_line, was_taken};

    #[track_caller]
    fn check(backend: Backend, screen: &str, expected: Composer) {
        assert_eq!(input_line(backend, screen), expected, "{screen}");
    }

    #[test]
    fn claude_input_lines() {
        let rule = "────────────";
        let claude = |line: &str| format!("● Done.\n\n{rule}\n{line}\n{rule}\n  ? for shortcuts\n");
        check(Backend::Claude, &claude("❯ "), Composer::Free);
        check(Backend::Claude, &claude("❯\u{a0}"), Composer::Free);
        check(
            Backend::Claude,
            &claude("❯ \u{1b}[7mT\u{1b}[0m\u{1b}[2mry \"edit foo\"\u{1b}[0m"),
            Composer::Free,
        );
        check(Backend::Claude, &claude("❯ \u{1b}[38;5;2mx\u{1b}[0m"), Composer::Draft);
        check(Backend::Claude, &claude("❯ fix the bug"), Composer::Draft);
        check(Backend::Claude, &claude("❯ \n  second line"), Composer::Draft);
        check(Backend::Claude, "╭────╮\n│ >      │\n╰────╯\n", Composer::Free);
        check(Backend::Claude, "╭────╮\n│ > hi   │\n╰────╯\n", Composer::Draft);
        check(Backend::Claude, "Do you want to proceed?\n ❯ 1. Yes\n   2. No\n", Composer::Dialog);
        check(Backend::Claude, "$ ls\nfile\n$ \n", Composer::Unknown);
        check(Backend::Claude, "", Composer::Unknown);
        // As tmux captures it: the look of one line is ended on the next.
        let captured =
            "\u{1b}[39m❯\u{a0}\u{1b}[7m \n\u{1b}[0m\u{1b}[38;5;244m────────\n\u{1b}[39m  auto mode on\n";
        check(Backend::Claude, captured, Composer::Free);
        let queued = "❯ \u{1b}[2mPress up to edit\n\u{1b}[0m────────\n";
        check(Backend::Claude, queued, Composer::Free);
    }

    #[test]
    fn codex_input_lines() {
        check(
            Backend::Codex,
            "• Hello\n\n› \u{1b}[2mAsk Codex to do anything\u{1b}[0m\n\n  100% left\n",
            Composer::Free,
        );
        check(Backend::Codex, "› half a thought\n\n  100% left\n", Composer::Draft);
        check(Backend::Codex, "Allow?\n› 1. Yes, proceed (y)\n  2. No\n", Composer::Dialog);
        check(Backend::Codex, "› \n  a second line\n\n  100% left\n", Composer::Draft);
        check(Backend::Codex, "$ \n", Composer::Unknown);
    }

    #[test]
    fn a_message_is_taken_when_it_stands_above_an_empty_input_line() {
        let screen = "> [cafleet msg 0a1b2c3d from …]\n  hello\n────\n❯ \n────\n";
        assert!(was_taken(Backend::Claude, screen, "cafleet msg 0a1b2c3d"));
        assert!(!was_taken(Backend::Claude, screen, "cafleet msg ffffffff"));
        assert!(!was_taken(
            Backend::Claude,
            "────\n❯ [cafleet msg 0a1b2c3d from …]\n  hello\n────\n",
            "cafleet msg 0a1b2c3d"
        ));
    }
}
