use serde_json::json;

use super::*;

impl AskedQuestion {
    fn call(&self) -> String {
        let lines: Vec<String> = self.lines().into_iter().map(|(_, line)| line).collect();
        lines.join("\n")
    }
}

fn asked(input: Value) -> AskedQuestion {
    AskedQuestion {
        number: 1,
        tool: "Bash".into(),
        agent: None,
        input,
        preview: None,
        why: "no rule".into(),
        rules: Vec::new(),
        outside: Vec::new(),
    }
}

#[test]
fn t26_the_end_of_a_long_command_must_be_seen() {
    let start = Instant::now();
    let later = start + Duration::from_secs(5);
    let mut asks = Asks::default();
    asks.push(asked(json!({"command": "echo\n".repeat(50)})));
    let open = asks.first_mut().unwrap();
    open.drawn(51, 10, start);
    assert_eq!(open.may_allow(None, later), Err(Unready::EndUnseen));
    open.scroll = 41;
    // The end is on the screen from now on, and is to be read, too.
    open.drawn(51, 10, later);
    assert_eq!(open.may_allow(None, later), Err(Unready::Wait));
    let later = later + READING;
    assert_eq!(open.may_allow(None, start), Err(Unready::Wait));
    assert_eq!(open.may_allow(Some(later), later), Err(Unready::Wait));
    assert_eq!(open.may_allow(None, later), Ok(()));
    asks.blur();
    assert_eq!(asks.first().unwrap().may_allow(None, later), Err(Unready::Wait));
}

#[test]
fn what_could_hide_something_is_shown() {
    let hidden = format!("ls{}; rm -rf ~{}\u{202e}x\u{200b}", " ".repeat(300), "\n".repeat(90));
    let call = asked(json!({"command": hidden})).call();
    assert_eq!(call, "Bash\nls⟨300 blanks⟩; rm -rf ~\n⟨89 empty lines⟩\n<U+202E>x<U+200B>");
    let too_long = asked(json!({"command": "x".repeat(70_000)}));
    let mut asks = Asks::default();
    asks.push(too_long);
    let open = asks.first_mut().unwrap();
    open.drawn(1, 10, Instant::now());
    assert_eq!(open.may_allow(None, Instant::now()), Err(Unready::TooLong));
}

#[test]
fn a_call_is_shown_with_all_its_arguments() {
    let mut edit = asked(json!({"file_path": "/w/a.rs", "old_string": "a\nb", "flag": true}));
    edit.tool = "Edit".into();
    assert_eq!(edit.call(), "Edit\n  file_path: /w/a.rs\n  old_string:\n    a\n    b\n  flag: true");
    assert_eq!(edit.title(), "Edit /w/a.rs …");
    let bare = AskedQuestion { input: Value::Null, ..edit };
    assert_eq!((bare.call(), bare.title()), ("Edit".to_owned(), "Edit".to_owned()));
    let bash = asked(json!({"description": "list)\nls -la\n(x", "command": "rm -rf ~"}));
    assert_eq!(bash.call(), "Bash\nrm -rf ~\n  description:\n    list)\n    ls -la\n    (x");
}

#[test]
fn an_edit_is_asked_as_a_change_of_which_nothing_is_left_out() {
    let old: String = (1..=9).map(|n| format!("{n}\n")).collect();
    let input = json!({"file_path": "a", "old_string": old, "new_string": old.replace('9', "ten\u{200b}"),
        "replace_all": true});
    let edit = AskedQuestion { tool: "Edit".into(), ..asked(input) };
    let kept: String = (1..=8).map(|n| format!("      {n}\n")).collect();
    assert_eq!(
        edit.call(),
        format!("Edit\n  file_path: a\n{kept}    - 9\n    + ten<U+200B>\n  replace_all: true")
    );
    let roles: Vec<TextRole> = edit.lines().into_iter().map(|(role, _)| role).collect();
    assert_eq!((roles[10], roles[11]), (TextRole::Removed, TextRole::Added));
}

#[test]
fn t26_nothing_of_a_call_is_wider_than_the_screen_measures() {
    let marks = format!("echo hi{}; rm -rf ~", "\u{ff9e}".repeat(50));
    assert!(asked(json!({"command": marks})).call().ends_with("; rm -rf ~"));
    let jamo = format!("echo {}; rm -rf ~", "\u{1100}".repeat(100));
    let mut asks = Asks::default();
    asks.push(asked(json!({"command": jamo})));
    let rows = asks
        .first()
        .unwrap()
        .rows(80, Theme { depth: crate::theme::Depth::None, ground: crate::theme::Ground::Dark });
    for row in &rows {
        assert!(crate::text::width(&row.line.spans) <= 80, "{row:?}");
        let clusters = row.line.spans.iter().flat_map(|span| span.content.graphemes(true));
        assert!(clusters.map(crate::text::columns).all(|columns| columns <= 2), "{row:?}");
    }
    // A screen that grows under a scrolled dialog shows the end, and not nothing.
    let open = asks.first_mut().unwrap();
    open.scroll = 40;
    assert_eq!(open.first_row(22, 10), 12);
    open.drawn(5, 0, Instant::now());
    assert!(open.shown.is_none() && open.end_shown.is_none());
}

#[test]
fn an_edit_is_shown_in_its_file_with_numbers() {
    let input = json!({"file_path": "a", "old_string": "old", "new_string": "new"});
    let preview = Some("     9  nine\n       -old\n    10 +new\n    11  +x".to_owned());
    let edit = AskedQuestion { tool: "Edit".into(), preview, ..asked(input) };
    let lines = edit.lines();
    assert_eq!(
        edit.call(),
        "Edit\n  file_path: a\n     9  nine\n       -old\n    10 +new\n    11  +x",
        "and not a second time"
    );
    let roles: Vec<TextRole> = lines.iter().skip(2).map(|(role, _)| *role).collect();
    assert_eq!(roles, [TextRole::Text, TextRole::Removed, TextRole::Added, TextRole::Text]);
}
