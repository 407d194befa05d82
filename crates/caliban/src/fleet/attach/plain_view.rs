//! What a person sees who attached with `--plain`: updates of the agent as lines and streamed text.
//!
//! Owns the looks only. Everything that comes from the agent is made inert before it is written.

use std::{collections::BTreeMap, io::Write};

use anstyle::{AnsiColor, Style};
use caliban_acp::{
    TurnEndedNotice,
    client::Question,
    v1::{
        ContentBlock, ContentChunk, MessageId, SessionUpdate, ToolCallContent, ToolCallStatus,
        ToolCallUpdateFields,
    },
};
use caliban_core::{call_text, inert};

use crate::{consent::OfferedRules, sessions::replay::outcome_in_words};

const DIM: Style = Style::new().dimmed();
const YELLOW: Style = AnsiColor::Yellow.on_default();
const CYAN: Style = AnsiColor::Cyan.on_default();

/// Said of a call that cannot be allowed here.
pub(super) const TOO_LONG: &str = "an argument is too long to be shown here, so it can only be refused; `caliban approvals N` shows all of it";

/// Of a tool's output, so many lines are shown.
const OUTPUT_LINES: usize = 12;

/// One attached terminal, or pipe.
#[derive(Debug, Default)]
pub(super) struct PlainView {
    /// What kind of text the cursor stands behind, if it is in a line.
    inside: Option<Voice>,
    /// The message that was shown last.
    message: Option<MessageId>,
    calls: BTreeMap<String, PlainCall>,
    /// The call that was shown last: output below it is taken for its own.
    last_call: Option<String>,
}

/// Who reads a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuestionReader {
    /// Somebody who can only look.
    CannotAnswer,
    /// Somebody who can answer.
    Answers,
    /// The same, who wants to see all of a long call.
    WantsAll,
}

/// How much of a call was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SeenCall {
    Whole,
    /// A part is left out until the person views all of it.
    Part,
    /// The agent itself has cut an argument: it cannot be shown whole here.
    Cut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Voice {
    Agent,
    Thought,
    User,
    /// The person's own, unfinished.
    Typing,
}

#[derive(Debug, Default)]
struct PlainCall {
    title: String,
    content: Vec<ToolCallContent>,
    is_shown: bool,
}

impl PlainView {
    /// Shows an update.
    pub(super) fn update(&mut self, update: SessionUpdate, out: &mut dyn Write) -> std::io::Result<()> {
        match update {
            SessionUpdate::UserMessageChunk(chunk) => self.chunk(Voice::User, &chunk, out),
            SessionUpdate::AgentMessageChunk(chunk) => self.chunk(Voice::Agent, &chunk, out),
            SessionUpdate::AgentThoughtChunk(chunk) => self.chunk(Voice::Thought, &chunk, out),
            SessionUpdate::ToolCall(call) => {
                let known = self.calls.entry(call.tool_call_id.to_string()).or_default();
                known.title = call.title;
                known.content = call.content;
                Ok(())
            }
            SessionUpdate::ToolCallUpdate(update) => {
                self.call(&update.tool_call_id.to_string(), update.fields, out)
            }
            SessionUpdate::Notice(notice) => {
                let more = notice.description.map(|text| format!(" ({text})")).unwrap_or_default();
                self.line(YELLOW, &format!("note: {}{more}", notice.title), out)
            }
            SessionUpdate::CurrentModeUpdate(mode) => {
                self.line(DIM, &format!("permission mode: {}", mode.current_mode_id), out)
            }
            _ => Ok(()),
        }
    }

    /// Shows what the agent asks: the exact call.
    pub(super) fn question(
        &mut self,
        question: &Question,
        reader: QuestionReader,
        out: &mut dyn Write,
    ) -> std::io::Result<()> {
        let call = &question.request.tool_call;
        let about = call.meta.as_ref().and_then(|meta| meta.get("caliban")?.get("ask").cloned());
        let said = |name: &str| about.as_ref().and_then(|about| about.get(name)?.as_str());
        let who = said("agent").map(|agent| format!("{agent}: ")).unwrap_or_default();
        let tool = said("tool").or(call.fields.title.as_deref()).unwrap_or("a call");
        let input = call.fields.raw_input.clone().unwrap_or_default();
        let is_cut = caliban_acp::cut_arguments::is_cut(&input);
        let whole = call_text::asked_call(tool, &input, said("preview"));
        let excerpt = caliban_agent::excerpt(&whole);
        let shown = if reader == QuestionReader::WantsAll { &whole } else { &excerpt.text };
        for (number, line) in shown.lines().enumerate() {
            let mark = if number == 0 { format!("? {who}") } else { "  ".to_owned() };
            self.line(YELLOW, &format!("{mark}{line}"), out)?;
        }
        if let Some(why) = said("why") {
            self.line(Style::new(), &format!("  {why}"), out)?;
        }
        if reader == QuestionReader::CannotAnswer {
            return self.line(Style::new(), "  answer with `caliban approvals`", out);
        }
        let [always, outside] = question.rules();
        let offered = OfferedRules { always: &always, outside: &outside };
        let always = offered.words();
        if is_cut {
            return self.line(Style::new(), &format!("  {TOO_LONG}; n = no, or say what to do instead"), out);
        }
        let is_hidden = excerpt.hidden > 0 && reader != QuestionReader::WantsAll;
        if let Some(how_long) = offered.how_long().filter(|_| !is_hidden) {
            self.line(Style::new(), &format!("  {how_long}"), out)?;
        }
        let yes = if is_hidden { String::new() } else { format!("y = yes{always}, ") };
        let view = if is_hidden { ", v = view all of it first" } else { "" };
        self.line(Style::new(), &format!("  {yes}n = no{view}, or say what to do instead"), out)
    }

    /// How much of a question's call was shown; `viewed` is the question whose call was shown whole on request.
    pub(super) fn shown(question: &Question, viewed: Option<&str>) -> SeenCall {
        let call = &question.request.tool_call;
        let input = call.fields.raw_input.clone().unwrap_or_default();
        if caliban_acp::cut_arguments::is_cut(&input) {
            return SeenCall::Cut;
        }
        // The name of the tool is short: it hides nothing.
        let about = caliban_acp::extension::field(call.meta.as_ref(), "ask");
        let preview = about.and_then(|about| about.get("preview")?.as_str());
        let hidden = caliban_agent::excerpt(&call_text::asked_call("", &input, preview)).hidden;
        let is_viewed = viewed == Some(&*call.tool_call_id.0);
        if hidden > 0 && !is_viewed { SeenCall::Part } else { SeenCall::Whole }
    }

    pub(super) fn turn_ended(&mut self, ended: &TurnEndedNotice, out: &mut dyn Write) -> std::io::Result<()> {
        let how = outcome_in_words(&ended.outcome);
        self.line(DIM, &format!("-- turn over: {how} --"), out)
    }

    /// A line of its own.
    pub(super) fn line(&mut self, style: Style, text: &str, out: &mut dyn Write) -> std::io::Result<()> {
        self.end_line(out)?;
        writeln!(out, "{style}{}{style:#}", inert::line(text))?;
        out.flush()
    }

    /// The person has pressed Enter: the cursor stands at the start of a line.
    pub(super) fn entered(&mut self) {
        self.inside = None;
    }

    /// A line that the person has begun stands on the screen.
    pub(super) fn typing(&mut self) {
        self.inside = Some(Voice::Typing);
    }

    fn chunk(&mut self, voice: Voice, chunk: &ContentChunk, out: &mut dyn Write) -> std::io::Result<()> {
        let text = match &chunk.content {
            ContentBlock::Text(text) => text.text.as_str(),
            _ => "[something that a terminal cannot show]",
        };
        if text.is_empty() {
            return Ok(());
        }
        let style = match voice {
            Voice::Agent | Voice::Typing => Style::new(),
            Voice::Thought => DIM,
            Voice::User => CYAN,
        };
        // Two answers in a row: what was said in between, and by this person, is not told again.
        let is_another = chunk.message_id.is_some() && chunk.message_id != self.message;
        if self.inside != Some(voice) || is_another {
            self.end_line(out)?;
            if voice == Voice::User {
                write!(out, "{style}> {style:#}")?;
            }
        }
        write!(out, "{style}{}{style:#}", inert::block(text))?;
        self.message.clone_from(&chunk.message_id);
        self.inside = if text.ends_with('\n') { None } else { Some(voice) };
        if voice == Voice::User {
            // Whole, and what is typed next does not stand behind it.
            self.end_line(out)?;
        }
        out.flush()
    }

    fn call(&mut self, id: &str, fields: ToolCallUpdateFields, out: &mut dyn Write) -> std::io::Result<()> {
        let call = self.calls.entry(id.to_owned()).or_default();
        if let Some(title) = fields.title {
            call.title = title;
        }
        if let Some(content) = fields.content {
            call.content = content;
        }
        let is_over = matches!(fields.status, Some(ToolCallStatus::Completed | ToolCallStatus::Failed));
        let begins = fields.status == Some(ToolCallStatus::InProgress) || is_over;
        let first = (begins && !call.is_shown).then(|| call.title.clone());
        call.is_shown |= begins;
        if let Some(title) = first {
            self.line(CYAN, &format!("• {title}"), out)?;
            self.last_call = Some(id.to_owned());
        }
        if !is_over {
            return Ok(());
        }
        let failed = fields.status == Some(ToolCallStatus::Failed);
        let PlainCall { title, content, .. } = self.calls.remove(id).unwrap_or_default();
        // Another began meanwhile: it is said whose end this is.
        if self.last_call.as_deref() != Some(id) {
            self.line(CYAN, &format!("↳ {title}"), out)?;
            self.last_call = Some(id.to_owned());
        }
        for block in &content {
            self.content(block, out)?;
        }
        let summary = fields.raw_output.as_ref().and_then(|raw| raw.get("summary")?.as_str());
        match summary.filter(|summary| !summary.is_empty()) {
            Some(summary) => self.line(if failed { YELLOW } else { DIM }, &format!("  ({summary})"), out),
            None => Ok(()),
        }
    }

    fn content(&mut self, content: &ToolCallContent, out: &mut dyn Write) -> std::io::Result<()> {
        match content {
            ToolCallContent::Content(content) => {
                let ContentBlock::Text(text) = &content.content else { return Ok(()) };
                self.output(caliban_acp::code_fence::unfenced(&text.text), out)
            }
            ToolCallContent::Diff(diff) => {
                let old = diff.old_text.as_deref().unwrap_or_default().lines().count();
                let new = diff.new_text.lines().count();
                let line = format!("  {}: {old} lines become {new}", diff.path.display());
                self.line(DIM, &line, out)
            }
            _ => Ok(()),
        }
    }

    fn output(&mut self, text: &str, out: &mut dyn Write) -> std::io::Result<()> {
        for line in text.lines().take(OUTPUT_LINES) {
            self.line(DIM, &format!("  {line}"), out)?;
        }
        match text.lines().count().saturating_sub(OUTPUT_LINES) {
            0 => Ok(()),
            more => self.line(DIM, &format!("  … {more} more lines"), out),
        }
    }

    /// Puts the cursor at the start of a line.
    pub(super) fn end_line(&mut self, out: &mut dyn Write) -> std::io::Result<()> {
        if self.inside.take().is_some() { writeln!(out) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use caliban_acp::v1::{ToolCall, ToolCallUpdate};
    use serde_json::json;

    use super::*;

    fn shown(updates: Vec<SessionUpdate>) -> String {
        let (mut screen, mut out) = (PlainView::default(), Vec::new());
        for update in updates {
            screen.update(update, &mut out).unwrap();
        }
        let text = String::from_utf8(out).unwrap();
        anstream::adapter::strip_str(&text).to_string()
    }

    fn text(text: &str) -> ContentChunk {
        ContentChunk::new(ContentBlock::from(text))
    }

    #[test]
    fn a_conversation_reads_like_one() {
        let fields = || ToolCallUpdateFields::new();
        let result = vec![ToolCallContent::from(ContentBlock::from("ok\nfine"))];
        let update = |fields| SessionUpdate::ToolCallUpdate(ToolCallUpdate::new("c1", fields));
        let got = shown(vec![
            SessionUpdate::UserMessageChunk(text("do it")),
            SessionUpdate::AgentMessageChunk(text("I will")),
            SessionUpdate::AgentMessageChunk(text(" \u{1b}[2Jtry.")),
            SessionUpdate::ToolCall(ToolCall::new("c1", "Bash")),
            update(fields().title("Bash: make".to_owned())),
            update(fields().status(ToolCallStatus::InProgress)),
            update(
                fields()
                    .status(ToolCallStatus::Completed)
                    .content(result)
                    .raw_output(json!({"summary": "exit 0"})),
            ),
            SessionUpdate::AgentMessageChunk(text("Done.")),
        ]);
        assert_eq!(got, "> do it\nI will ␛[2Jtry.\n• Bash: make\n  ok\n  fine\n  (exit 0)\nDone.");
    }

    #[test]
    fn output_of_calls_side_by_side_says_whose_it_is() {
        let update =
            |id: &str, fields| SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(id.to_owned(), fields));
        let begins = || ToolCallUpdateFields::new().status(ToolCallStatus::InProgress);
        let ends = |text: &str| {
            let content = vec![ToolCallContent::from(ContentBlock::from(text))];
            ToolCallUpdateFields::new().status(ToolCallStatus::Completed).content(content)
        };
        let mut updates: Vec<SessionUpdate> = ["a", "b", "c"]
            .map(|id| SessionUpdate::ToolCall(ToolCall::new(id, format!("Bash: {id}"))))
            .into();
        updates.extend(["a", "b"].map(|id| update(id, begins())));
        updates.push(update("b", ends("of b")));
        updates.push(update("c", begins()));
        updates.extend(["a", "c"].map(|id| update(id, ends(&format!("of {id}")))));
        assert_eq!(
            shown(updates),
            "• Bash: a\n• Bash: b\n  of b\n• Bash: c\n↳ Bash: a\n  of a\n↳ Bash: c\n  of c\n"
        );
    }

    #[test]
    fn a_call_that_never_began_is_shown_with_its_end() {
        let update = ToolCallUpdateFields::new().title("Bash: rm".to_owned()).status(ToolCallStatus::Failed);
        let got = shown(vec![
            SessionUpdate::ToolCall(ToolCall::new("c1", "Bash")),
            SessionUpdate::ToolCallUpdate(ToolCallUpdate::new("c1", update)),
        ]);
        assert_eq!(got, "• Bash: rm\n");
    }

    #[test]
    fn another_answer_begins_a_line() {
        let says = |id: &str, words: &str| {
            SessionUpdate::AgentMessageChunk(text(words).message_id(MessageId::new(id.to_owned())))
        };
        let got = shown(vec![says("1", "one "), says("1", "two"), says("2", "three\n"), says("3", "four")]);
        assert_eq!(got, "one two\nthree\nfour");
    }

    #[test]
    fn what_a_person_said_ends_its_line() {
        assert_eq!(shown(vec![SessionUpdate::UserMessageChunk(text("hi"))]), "> hi\n");
    }
}
