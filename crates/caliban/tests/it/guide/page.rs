//! The fenced blocks of a Markdown page, and the commands in them.

/// What a block is for; see the module above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Console,
    Shell,
    Other,
}

/// A fenced block.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) kind: Kind,
    /// The word behind the fence.
    pub(super) language: String,
    pub(super) text: String,
    pub(super) steps: Vec<Step>,
}

impl Block {
    pub(super) fn is_run(&self) -> bool {
        self.kind != Kind::Other
    }
}

/// A command with the output that the page shows; none in a `sh` block.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) command: String,
    pub(super) output: String,
}

pub(super) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.trim_start().strip_prefix("```") else { continue };
        let indent = line.len() - line.trim_start().len();
        let inside = lines.by_ref().take_while(|line| line.trim() != "```");
        let text: Vec<&str> = inside.map(|line| line.get(indent..).unwrap_or_default()).collect();
        let (kind, steps) = match language {
            "console" => (Kind::Console, console(&text)),
            "sh" => (Kind::Shell, shell(&text)),
            _ => (Kind::Other, Vec::new()),
        };
        blocks.push(Block { kind, language: language.to_owned(), text: text.join("\n"), steps });
    }
    blocks
}

fn console(lines: &[&str]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut open = false;
    for line in lines {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command: command.to_owned(), output: String::new() });
            open = command.ends_with('\\');
        } else if let Some(step) = steps.last_mut() {
            let text = if open { &mut step.command } else { &mut step.output };
            if open || !text.is_empty() {
                text.push('\n');
            }
            text.push_str(line);
            open = open && line.ends_with('\\');
        }
    }
    steps
}

fn shell(lines: &[&str]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut open = false;
    for line in lines.iter().filter(|line| !line.trim().is_empty() && !line.trim().starts_with('#')) {
        match steps.last_mut() {
            Some(step) if open => {
                step.command.push('\n');
                step.command.push_str(line);
            }
            _ => steps.push(Step { command: (*line).to_owned(), output: String::new() }),
        }
        open = line.ends_with('\\');
    }
    steps
}

#[test]
fn blocks_are_taken_apart() {
    let page = "x\n```console\n$ a \\\n  b\none\n\ntwo\n$ c\n```\n- y\n  ```sh\n  # about\n  d   # why\n  e\n  ```\n";
    let blocks = blocks(page);
    let step = |command: &str, output: &str| Step { command: command.to_owned(), output: output.to_owned() };
    assert_eq!(blocks[0].steps, [step("a \\\n  b", "one\n\ntwo"), step("c", "")]);
    assert_eq!(blocks[1].steps, [step("d   # why", ""), step("e", "")]);
    assert_eq!(blocks.iter().map(|block| block.kind).collect::<Vec<_>>(), [Kind::Console, Kind::Shell]);
}
