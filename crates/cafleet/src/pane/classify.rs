//! What a coding agent's pane shows, above all whether its input line can take a message.
//!
//! A pure decision. A pane counts as free only on evidence: the agent is idle, its input line is visible and empty, and
//! the cursor is in it. Keys go where the cursor is: in a search field, a picker or a list it is elsewhere.

use super::backend::{Backend, InputLine, Knows};
use super::tmux::PaneFacts;

/// What the pane shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Composer {
    /// An empty input line with the cursor in it; the agent is idle.
    Free,
    /// The agent works.
    Working,
    /// The input line has text that was not entered.
    Draft,
    /// The agent asks a question; Enter would answer it.
    Dialog,
    /// There is an input line, but the keys go elsewhere.
    Elsewhere,
    /// No input line is visible.
    Unknown,
}

/// The marks that begin an agent's words and actions.
const SAID: [char; 10] = ['●', '•', '⏺', '✻', '✶', '✢', '◦', '⎿', '✦', '▣'];

/// Number of lines above the input line that are checked for signs of work.
const NEAR: usize = 6;

impl Backend {
    /// The tmux format that is watched in a pane: the positions of the first sign of a dialog and of work, and the
    /// program in the foreground.
    pub(crate) fn watched(&self) -> String {
        format!("#{{C/r:{}}}/#{{C:{}}}/#{{pane_current_command}}", self.dialog_pattern, self.at_work)
    }

    /// The condition that tmux checks at the moment of typing, as a format: everything that a look can see is as it
    /// was, no dialog and no work has begun, and the title (where it can show a question) shows none.
    pub(crate) fn condition(&self, looked: &PaneFacts) -> String {
        let mut checks = vec![
            format!("#{{==:{},{}}}", self.watched(), literal(&looked.watched)),
            format!("#{{==:#{{cursor_x}}/#{{cursor_y}},{}/{}}}", looked.cursor.0, looked.cursor.1),
            "#{?pane_in_mode,0,1}".to_owned(),
        ];
        if self.knows == Knows::CodexTitle {
            checks.push("#{cursor_flag}".to_owned());
        }
        if matches!(self.knows, Knows::CodexTitle | Knows::GeminiTitle) {
            checks.push("#{?#{m:*Action Required*,#{pane_title}},0,1}".to_owned());
        }
        checks.into_iter().reduce(|all, check| format!("#{{&&:{all},{check}}}")).unwrap_or_default()
    }
}

/// Escapes a text for use in a tmux format.
fn literal(text: &str) -> String {
    text.chars().flat_map(|c| matches!(c, '#' | ',' | '}').then_some('#').into_iter().chain([c])).collect()
}

/// Decides from the pane's facts and, for claude, from the status in its own file.
pub(crate) fn composer(backend: &Backend, facts: &PaneFacts, status: Option<&str>) -> Composer {
    let (asks, works) = match backend.knows {
        Knows::ClaudeStatus => (status == Some("waiting"), status == Some("busy")),
        Knows::CodexTitle => (
            facts.title.contains("Action Required"),
            facts.title.starts_with(|c| ('\u{2801}'..='\u{28ff}').contains(&c)),
        ),
        Knows::GeminiTitle => (facts.title.contains("Action Required"), facts.title.contains("Working")),
        Knows::Screen => (false, false),
        Knows::Itself | Knows::Nothing => return Composer::Unknown,
    };
    if asks {
        return Composer::Dialog;
    }
    let input = input_line(backend, &facts.screen);
    if input.kind == Composer::Dialog {
        return Composer::Dialog;
    }
    // The agent's own status takes precedence over its screen.
    let seen_working = status.is_none() && input.is_working;
    if works || seen_working {
        return Composer::Working;
    }
    if backend.knows == Knows::CodexTitle && !facts.cursor_shown {
        return Composer::Unknown;
    }
    match input.kind {
        Composer::Free if input.place == Some(facts.cursor) => Composer::Free,
        Composer::Free => Composer::Elsewhere,
        Composer::Draft if !(input.first..=input.last).contains(&facts.cursor.1) => Composer::Elsewhere,
        other => other,
    }
}

/// Whether the message with this marker is on the screen above the input line, and a turn began after it.
pub(crate) fn was_taken(backend: &Backend, screen: &str, marker: &str) -> bool {
    let input = input_line(backend, screen);
    if !matches!(input.kind, Composer::Free | Composer::Draft) {
        return false;
    }
    let lines: Vec<String> = styled(screen).iter().map(|line| visible(line)).take(input.first).collect();
    let Some(at) = lines.iter().rposition(|line| line.contains(marker)) else { return false };
    // The message ends at the first empty line. Lines after it are the agent's if they have the agent's mark.
    let mut after = lines.iter().skip(at).skip_while(|line| !is_edge(line));
    input.is_working || after.any(|line| line.trim_start().starts_with(SAID))
}

/// Whether the input line holds the message with this marker: it was typed, and Enter had no effect.
pub(crate) fn is_in_composer(backend: &Backend, screen: &str, marker: &str) -> bool {
    let input = input_line(backend, screen);
    input.kind == Composer::Draft
        && styled(screen)
            .iter()
            .take(input.last + 1)
            .skip(input.first)
            .any(|line| visible(line).contains(marker))
}

/// The numbered choices of a question on the screen, with their labels.
pub(crate) fn choices(backend: &Backend, screen: &str) -> Vec<(u32, String)> {
    let lines: Vec<String> = styled(screen).iter().map(|line| visible(line)).collect();
    let marks: Vec<char> = backend.marks().iter().copied().chain(['●']).collect();
    lines
        .iter()
        .filter_map(|line| {
            let line = line.trim_start_matches(FRAME).trim_start_matches(marks.as_slice()).trim_start();
            let digits = line.bytes().take_while(u8::is_ascii_digit).count();
            let label = line.get(digits..)?.strip_prefix(['.', ')'])?;
            Some((line.get(..digits)?.parse().ok()?, label.trim().to_owned()))
        })
        .collect()
}

/// The input line of a screen.
struct ScreenInput {
    kind: Composer,
    /// The cursor's position when the line is empty.
    place: Option<(usize, usize)>,
    /// Its first and last line on the screen.
    first: usize,
    last: usize,
    is_working: bool,
}

fn input_line(backend: &Backend, screen: &str) -> ScreenInput {
    let lines = styled(screen);
    let shown: Vec<String> = lines.iter().map(|line| visible(line)).collect();
    let works = |at: usize| {
        shown[at.saturating_sub(NEAR)..shown.len().min(at + NEAR)]
            .iter()
            .any(|line| !backend.at_work.is_empty() && line.contains(backend.at_work))
    };
    let none = ScreenInput { kind: Composer::Unknown, place: None, first: 0, last: 0, is_working: false };
    let is_placeholder =
        |text: &str| backend.placeholder.is_some_and(|words| text.trim_start().starts_with(words));
    if backend.input == InputLine::Boxed {
        let Some(found) = boxed(&shown) else {
            // A dialog is shown in place of the box.
            let asks = shown.iter().any(|line| line.contains(backend.dialog_pattern));
            return ScreenInput { kind: if asks { Composer::Dialog } else { Composer::Unknown }, ..none };
        };
        let text = found.text.trim();
        let kind = if text.is_empty() || is_placeholder(text) { Composer::Free } else { Composer::Draft };
        let is_working = works(found.last);
        return ScreenInput {
            kind,
            place: Some(found.place),
            first: found.first,
            last: found.last,
            is_working,
        };
    }
    for (at, line) in lines.iter().enumerate().rev() {
        let Some(rest) = after_prompt(&shown[at], backend.marks()) else { continue };
        if is_choice(rest) {
            return ScreenInput { kind: Composer::Dialog, first: at, last: at, ..none };
        }
        let typed = solid(line);
        let typed = after_prompt(&typed, backend.marks()).unwrap_or_default().trim_matches(FRAME);
        // Below a one-line input there is a rule or nothing; otherwise the input continues there.
        let below = shown[at + 1..].iter().take_while(|below| !is_edge(below)).count();
        let is_empty = typed.is_empty() || is_placeholder(typed);
        let kind = if is_empty && below == 0 { Composer::Free } else { Composer::Draft };
        let prompt = shown[at].chars().position(|c| backend.marks().contains(&c)).unwrap_or_default();
        let place = Some((prompt + 2, at));
        return ScreenInput { kind, place, first: at, last: at + below, is_working: works(at) };
    }
    ScreenInput { is_working: works(shown.len().saturating_sub(1)), ..none }
}

/// An input line in a box.
struct Boxed {
    text: String,
    /// The cursor's position when the line is empty.
    place: (usize, usize),
    first: usize,
    last: usize,
}

/// The lowest box on the screen. There may be other things beside it.
fn boxed(shown: &[String]) -> Option<Boxed> {
    const EDGE: char = '╹';
    let edge = shown.iter().rposition(|line| line.contains(EDGE))?;
    let left = shown[edge].chars().position(|c| c == EDGE)?;
    let width = shown[edge].chars().skip(left + 1).take_while(|c| *c == '▀').count();
    let has_bar = |line: &&String| line.chars().nth(left) == Some('┃');
    let height = shown[..edge].iter().rev().take_while(has_bar).count();
    // From top to bottom: an empty line, the text, an empty line, the agent's name.
    let (first, last) = (edge.checked_sub(height)? + 1, edge.checked_sub(3)?);
    if width == 0 || last < first {
        return None;
    }
    let inner = |line: &String| line.chars().skip(left + 1).take(width).collect::<String>();
    let text: Vec<String> = shown[first..=last].iter().map(inner).collect();
    Some(Boxed { text: text.join("\n"), place: (left + 3, first), first, last })
}

impl Backend {
    /// The marks that can begin its input line.
    fn marks(&self) -> &'static [char] {
        match self.input {
            InputLine::Marked(marks) => marks,
            InputLine::Boxed | InputLine::Unknown => &[],
        }
    }
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

/// A line below a one-line input: empty, or a drawn rule.
fn is_edge(line: &str) -> bool {
    // Box drawing and block characters.
    line.trim_matches(FRAME).chars().all(|c| c == ' ' || ('\u{2500}'..='\u{259f}').contains(&c))
}

/// A line's characters.
fn visible(line: &[(char, Look)]) -> String {
    line.iter().map(|(c, _)| *c).collect()
}

/// The characters without suggestions (dim) and without the drawn cursor (inverse).
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

/// The lines of a captured screen, each character with its style, which carries over line ends.
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
                // An operating system command (a link) ends with ESC and a backslash, or with BEL.
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
            // Colours have parameters of their own.
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
    use super::super::backend::Backend;
    use super::super::tmux::PaneFacts;
    use super::{Composer, choices, composer, input_line, is_in_composer, was_taken};

    fn row(name: &str) -> &'static Backend {
        Backend::named(name).expect("a row")
    }

    #[track_caller]
    fn check(name: &str, screen: &str, expected: Composer) {
        assert_eq!(input_line(row(name), screen).kind, expected, "{screen}");
    }

    #[test]
    fn claude_input_lines() {
        let rule = "────────────";
        let claude = |line: &str| format!("● Done.\n\n{rule}\n{line}\n{rule}\n  ? for shortcuts\n");
        check("claude", &claude("❯ "), Composer::Free);
        check("claude", &claude("❯\u{a0}"), Composer::Free);
        check("claude", &claude("❯ \u{1b}[7mT\u{1b}[0m\u{1b}[2mry \"edit foo\"\u{1b}[0m"), Composer::Free);
        check("claude", &claude("❯ \u{1b}[38;5;2mx\u{1b}[0m"), Composer::Draft);
        check("claude", &claude("❯ fix the bug"), Composer::Draft);
        check("claude", &claude("❯ \n  second line"), Composer::Draft);
        check("claude", "╭────╮\n│ >      │\n╰────╯\n", Composer::Free);
        check("claude", "╭────╮\n│ > hi   │\n╰────╯\n", Composer::Draft);
        check("claude", "Do you want to proceed?\n ❯ 1. Yes\n   2. No\n", Composer::Dialog);
        check("claude", "$ ls\nfile\n$ \n", Composer::Unknown);
        check("claude", "", Composer::Unknown);
        // As tmux captures it: the style of one line is reset on the next.
        let captured =
            "\u{1b}[39m❯\u{a0}\u{1b}[7m \n\u{1b}[0m\u{1b}[38;5;244m────────\n\u{1b}[39m  auto mode on\n";
        check("claude", captured, Composer::Free);
        let queued = "❯ \u{1b}[2mPress up to edit\n\u{1b}[0m────────\n";
        check("claude", queued, Composer::Free);
    }

    #[test]
    fn codex_input_lines() {
        check(
            "codex",
            "• Hello\n\n› \u{1b}[2mAsk Codex to do anything\u{1b}[0m\n\n  100% left\n",
            Composer::Free,
        );
        check("codex", "› half a thought\n\n  100% left\n", Composer::Draft);
        check("codex", "Allow?\n› 1. Yes, proceed (y)\n  2. No\n", Composer::Dialog);
        check("codex", "› \n  a second line\n\n  100% left\n", Composer::Draft);
        check("codex", "$ \n", Composer::Unknown);
    }

    fn facts(title: &str, cursor: (usize, usize), screen: &str) -> PaneFacts {
        PaneFacts {
            server_pid: 1,
            pane_pid: 2,
            pane: "%0".to_owned(),
            window: "@0".to_owned(),
            tty: "/dev/pts/0".to_owned(),
            dead: false,
            ended: None,
            cursor_shown: true,
            in_mode: false,
            cursor,
            watched: "0/0/claude".to_owned(),
            session: "main".to_owned(),
            title: title.to_owned(),
            screen: screen.to_owned(),
        }
    }

    /// Screens of codex 0.166.0 and claude 2.1.325, with their cursor positions.
    #[test]
    fn a08_keys_go_where_the_cursor_is() {
        let codex = |title: &str, cursor, footer: &str| {
            let screen = format!(
                "• Understood.\n\n› \u{1b}[2mAsk Codex to do anything\u{1b}[0m\n\n  gpt-5\n  {footer}\n"
            );
            composer(row("codex"), &facts(title, cursor, &screen), None)
        };
        assert_eq!(codex("work", (2, 2), "? for shortcuts"), Composer::Free);
        assert_eq!(codex("work", (20, 5), "reverse-i-search: "), Composer::Elsewhere, "Ctrl+R");
        assert_eq!(codex("⠼ work", (2, 2), "? for shortcuts"), Composer::Working);
        assert_eq!(codex("[ ! ] Action Required", (2, 2), "? for shortcuts"), Composer::Dialog);
        let claude = |cursor, status| {
            let screen = "● Understood.\n\n────────\n❯\u{a0}\n────────\n  ? for shortcuts\n";
            composer(row("claude"), &facts("✳ rev", cursor, screen), status)
        };
        assert_eq!(claude((2, 3), Some("idle")), Composer::Free);
        assert_eq!(claude((2, 3), None), Composer::Free);
        assert_eq!(claude((2, 3), Some("busy")), Composer::Working);
        assert_eq!(claude((2, 3), Some("waiting")), Composer::Dialog);
        assert_eq!(claude((6, 5), Some("idle")), Composer::Elsewhere);
        let search = "❯ 28s ago  hello  ╰────╯\n╭────╮\n│ ⌕ Filter history… │\n╰────╯\n";
        assert_eq!(composer(row("claude"), &facts("", (6, 2), search), Some("idle")), Composer::Elsewhere);
        let working = "✻ Cogitating… (3s · esc to interrupt)\n\n────────\n❯\u{a0}\n────────\n";
        assert_eq!(composer(row("claude"), &facts("", (2, 3), working), None), Composer::Working);
    }

    /// The lower parts of screens of gemini 0.61.0 and opencode 1.18.33 as tmux captured them; the first line has the
    /// cursor's position, whether it was visible, and the title.
    #[test]
    fn m08_states_of_gemini_and_opencode_are_known_from_their_screens() {
        let seen = |name: &str, recorded: &str| {
            let (head, screen) = recorded.split_once('\n').expect("two parts");
            let mut words = head.splitn(4, ' ');
            let mut number = || words.next().and_then(|word| word.parse::<usize>().ok()).expect("a number");
            let (cursor, cursor_shown) = ((number(), number()), number() == 1);
            let facts = facts(words.next().unwrap_or_default(), cursor, screen);
            composer(row(name), &PaneFacts { cursor_shown, ..facts }, None)
        };
        assert_eq!(seen("gemini", include_str!("screens/gemini-free.txt")), Composer::Free);
        assert_eq!(seen("gemini", include_str!("screens/gemini-answered.txt")), Composer::Free);
        assert_eq!(seen("gemini", include_str!("screens/gemini-busy.txt")), Composer::Working);
        assert_eq!(seen("gemini", include_str!("screens/gemini-dialog.txt")), Composer::Dialog);
        assert_eq!(seen("gemini", include_str!("screens/gemini-draft.txt")), Composer::Draft);
        assert_eq!(seen("opencode", include_str!("screens/opencode-free.txt")), Composer::Free);
        assert_eq!(seen("opencode", include_str!("screens/opencode-answered.txt")), Composer::Free);
        assert_eq!(seen("opencode", include_str!("screens/opencode-wide.txt")), Composer::Free);
        assert_eq!(seen("opencode", include_str!("screens/opencode-busy.txt")), Composer::Working);
        assert_eq!(seen("opencode", include_str!("screens/opencode-dialog.txt")), Composer::Dialog);
        assert_eq!(seen("opencode", include_str!("screens/opencode-draft.txt")), Composer::Draft);
        let marker = "cafleet msg 0a1b2c3d";
        for (name, recorded) in [
            ("gemini", include_str!("screens/gemini-draft.txt")),
            ("opencode", include_str!("screens/opencode-draft.txt")),
        ] {
            assert!(is_in_composer(row(name), recorded, marker), "{name}");
            assert!(!was_taken(row(name), recorded, marker), "{name}");
        }
        // The conversation begins with a message of ours.
        let taken = |name: &str, recorded: &str| was_taken(row(name), recorded, "answer slowly");
        assert!(taken("gemini", include_str!("screens/gemini-busy.txt")));
        assert!(taken("gemini", include_str!("screens/gemini-answered.txt")));
        assert!(was_taken(
            row("opencode"),
            include_str!("screens/opencode-answered.txt"),
            "make a file opencode"
        ));
    }

    #[test]
    fn a_message_is_taken_when_a_turn_began_and_the_input_line_is_empty() {
        let claude = row("claude");
        let marker = "cafleet msg 0a1b2c3d";
        let taken = "> [cafleet msg 0a1b2c3d from …]\n  hello\n\n● Understood.\n\n────\n❯ \n────\n";
        assert!(was_taken(claude, taken, marker));
        assert!(!was_taken(claude, taken, "cafleet msg ffffffff"));
        let working =
            "> [cafleet msg 0a1b2c3d from …]\n  hello\n\n✻ Mulling (esc to interrupt)\n────\n❯ \n────\n";
        assert!(was_taken(claude, working, marker));
        // On the screen without a turn: a list that shows the message is no evidence.
        assert!(!was_taken(claude, "> [cafleet msg 0a1b2c3d from …]\n  hello\n────\n❯ \n────\n", marker));
        // Below the input line, as in codex's search field.
        assert!(!was_taken(
            row("codex"),
            "• Hi\n\n› \n\n  reverse-i-search: [cafleet msg 0a1b2c3d\n",
            marker
        ));
        let typed = "────\n❯ [cafleet msg 0a1b2c3d from …]\n  hello\n────\n";
        assert!(!was_taken(claude, typed, marker));
        assert!(is_in_composer(claude, typed, marker));
        assert!(!is_in_composer(claude, taken, marker));
    }

    #[test]
    fn choices_of_a_question() {
        let screen = "Which color?\n\n❯ 1. Red\n     r\n  2. Blue\n  3. Type something.\n";
        let expected = [(1, "Red"), (2, "Blue"), (3, "Type something.")];
        assert_eq!(choices(row("claude"), screen), expected.map(|(n, label)| (n, label.to_owned())));
    }
}
