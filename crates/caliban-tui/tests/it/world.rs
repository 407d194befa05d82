//! A screen in memory with a clock of its own.

use std::time::{Duration, Instant};

use caliban_acp::v1::{
    ContentBlock, ContentChunk, Cost, MessageId, Meta, SessionMode, SessionModeState, SessionUpdate,
    ToolCall, ToolCallContent, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind, UsageUpdate,
};
use caliban_tui::{
    ScreenFacts, ScreenState,
    asks::AskedQuestion,
    draw,
    events::{AgentEvent, BackgroundRow, BackgroundStatus, PromptDone, ScreenEffect, ScreenEvent},
    theme::{Depth, Ground, Theme},
};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::{buffer::Buffer, layout::Position, layout::Rect};
use serde_json::{Value, json};

pub(crate) struct World {
    pub(crate) state: ScreenState,
    pub(crate) now: Instant,
    size: (u16, u16),
}

impl World {
    /// A session that is open and idle.
    pub(crate) fn new(size: (u16, u16)) -> Self {
        let mut world = Self::closed(size);
        world.open(false);
        world
    }

    /// Before the session is open.
    pub(crate) fn closed(size: (u16, u16)) -> Self {
        let facts = ScreenFacts {
            version: "0.1.0".into(),
            branch: Some("main".into()),
            place: "~/work/project".into(),
            ..ScreenFacts::default()
        };
        Self::with_facts(size, facts)
    }

    pub(crate) fn with_facts(size: (u16, u16), facts: ScreenFacts) -> Self {
        let theme = Theme { depth: Depth::True, ground: Ground::Dark };
        Self { state: ScreenState::new(size, theme, facts), now: Instant::now(), size }
    }

    /// The same screen for somebody who listens to it.
    pub(crate) fn listens(&mut self) {
        self.state.set_theme(Theme { depth: Depth::Words, ground: Ground::Dark });
    }

    pub(crate) fn open(&mut self, is_running: bool) -> Vec<ScreenEffect> {
        let modes = ["default", "accept-edits", "plan", "unattended"];
        let modes = SessionModeState::new("default", modes.map(|mode| SessionMode::new(mode, mode)).into());
        self.agent(AgentEvent::Opened {
            modes: Some(modes),
            is_running,
            model: Some("claude-fable-5".into()),
        })
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    pub(crate) fn agent(&mut self, event: AgentEvent) -> Vec<ScreenEffect> {
        self.state.update(ScreenEvent::Agent(event), self.now)
    }

    pub(crate) fn update(&mut self, update: SessionUpdate) {
        self.agent(AgentEvent::Update(update));
    }

    pub(crate) fn key(&mut self, code: KeyCode) -> Vec<ScreenEffect> {
        self.chord(code, KeyModifiers::NONE)
    }

    pub(crate) fn control(&mut self, c: char) -> Vec<ScreenEffect> {
        self.chord(KeyCode::Char(c), KeyModifiers::CONTROL)
    }

    pub(crate) fn chord(&mut self, code: KeyCode, modifiers: KeyModifiers) -> Vec<ScreenEffect> {
        self.state.update(ScreenEvent::Key(KeyEvent::new(code, modifiers)), self.now)
    }

    pub(crate) fn types(&mut self, text: &str) {
        for c in text.chars() {
            self.key(KeyCode::Char(c));
        }
    }

    /// Types a message and sends it.
    pub(crate) fn says(&mut self, text: &str) -> Vec<ScreenEffect> {
        self.types(text);
        self.key(KeyCode::Enter)
    }

    pub(crate) fn resize(&mut self, columns: u16, rows: u16) {
        self.size = (columns, rows);
        self.state.update(ScreenEvent::Resize(columns, rows), self.now);
    }

    pub(crate) fn buffer(&mut self) -> (Buffer, Position) {
        let mut buffer = Buffer::empty(Rect::new(0, 0, self.size.0, self.size.1));
        let cursor = draw(&self.state, self.now, &mut buffer);
        self.state.drawn(self.now);
        (buffer, cursor)
    }

    /// The rows of the screen, trailing blanks cut.
    pub(crate) fn rows(&mut self) -> Vec<String> {
        let (buffer, _) = self.buffer();
        let area = buffer.area;
        (0..area.height)
            .map(|y| {
                let row: String = (0..area.width).map(|x| buffer[(x, y)].symbol().to_owned()).collect();
                row.trim_end().to_owned()
            })
            .collect()
    }

    pub(crate) fn screen(&mut self) -> String {
        self.rows().join("\n")
    }

    pub(crate) fn streams(&mut self, id: &str, text: &str) {
        let chunk = ContentChunk::new(ContentBlock::from(text)).message_id(MessageId::new(id.to_owned()));
        self.update(SessionUpdate::AgentMessageChunk(chunk));
    }

    pub(crate) fn thinks(&mut self, text: &str) {
        self.update(SessionUpdate::AgentThoughtChunk(ContentChunk::new(ContentBlock::from(text))));
    }

    pub(crate) fn calls(&mut self, id: &str, title: &str, kind: ToolKind) {
        self.update(SessionUpdate::ToolCall(
            ToolCall::new(id.to_owned(), title).kind(kind).status(ToolCallStatus::InProgress),
        ));
    }

    pub(crate) fn call_update(&mut self, id: &str, fields: ToolCallUpdateFields) {
        self.update(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(id.to_owned(), fields)));
    }

    pub(crate) fn output(&mut self, id: &str, text: &str) {
        let content = vec![ToolCallContent::from(ContentBlock::from(text))];
        self.call_update(id, ToolCallUpdateFields::new().content(content));
    }

    pub(crate) fn ends(&mut self, id: &str, summary: &str, is_ok: bool) {
        let status = if is_ok { ToolCallStatus::Completed } else { ToolCallStatus::Failed };
        let raw = json!({"summary": summary, "ms": 1_400});
        self.call_update(id, ToolCallUpdateFields::new().status(status).raw_output(raw));
    }

    pub(crate) fn asks(&mut self, number: u64, input: Value) {
        self.agent(AgentEvent::Asked(AskedQuestion {
            number,
            tool: "Bash".into(),
            agent: None,
            input,
            preview: None,
            why: "no rule allows it".into(),
            rules: vec!["Bash(git push *)".into()],
            outside: vec!["Bash(git push *) outside".into()],
        }));
    }

    /// What the session has spent so far.
    pub(crate) fn spends(&mut self, tokens: u64, cost: f64) {
        let meta = Meta::from_iter([("caliban".to_owned(), json!({"tokens": tokens}))]);
        let usage = UsageUpdate::new(1_000, 200_000).cost(Cost::new(cost, "USD")).meta(meta);
        self.update(SessionUpdate::UsageUpdate(usage));
    }

    /// Background agents, each with its number and whether it runs.
    pub(crate) fn background(&mut self, agents: &[(u32, bool)]) -> Vec<ScreenEffect> {
        let row = |(id, runs): &(u32, bool)| BackgroundRow {
            id: *id,
            status: if *runs { BackgroundStatus::Running } else { BackgroundStatus::Completed },
            summary: "find the callers".into(),
            model: "m".into(),
            started_ms: 0,
            ended_ms: None,
            tokens: 10,
            cached: 0,
            activity: None,
        };
        self.agent(AgentEvent::Background(agents.iter().map(row).collect()))
    }

    pub(crate) fn turn_ends(&mut self) -> Vec<ScreenEffect> {
        self.agent(AgentEvent::PromptEnded(Ok(PromptDone::default())))
    }
}

/// The prompts among effects.
pub(crate) fn prompts(effects: &[ScreenEffect]) -> Vec<&str> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            ScreenEffect::Prompt(text) => Some(text.as_str()),
            _ => None,
        })
        .collect()
}
