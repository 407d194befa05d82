//! One attached conversation: what the agent tells goes to the screen, what is typed goes to the agent, and nothing that
//! was typed is lost without a word. Owns the order of things; the looks are the screen's, the meaning is `typed_line.rs`'.

use std::{
    collections::{BTreeMap, VecDeque},
    io::Write,
    time::{Duration, Instant},
};

use anstyle::Style;
use caliban_acp::{
    ClientError, ClientEvent, Link,
    client::Question,
    extension::SEND,
    v1::{ContentBlock, SessionUpdate},
};
use caliban_agent::transcript;
use caliban_contract::tail::Tail;
use caliban_fleet::{Client, protocol::AgentRow};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{
    plain_view::{PlainView, QuestionReader},
    typed_line::{self, Meant, Typed},
};
use crate::{
    fleet::{
        questions::{KeyboardMoment, OpenQuestions, QuestionChange},
        row, say,
    },
    keyboard::{Draft, Keyboard, TypedLine},
    report::{Failure, Result},
};

/// How long an agent may take to tell its history before it is said that it is waited for.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long an agent may take to have what was typed before one leaves.
const LEAVE_LIMIT: Duration = Duration::from_secs(10);
/// The same before it is said that it is waited for.
const LEAVE_PATIENCE: Duration = Duration::from_secs(1);
/// How often it is looked whether an answer was taken.
const LOOK: Duration = Duration::from_millis(20);

/// Why the conversation on the screen is over.
pub(super) enum Over {
    /// The person has left. With what the agent was not told.
    Left(Vec<String>),
    /// The agent has hung up. With what it did not hear.
    HungUp(Vec<String>),
    /// It has hung up, or could not be reached, before it had told its history.
    Unseen(Failure),
}

/// One attached person.
pub(super) struct Talk<'a> {
    pub link: Link,
    pub agent: &'a AgentRow,
    /// None where there is no terminal.
    pub keyboard: &'a mut Option<Keyboard>,
    /// What was typed before the agent could hear it.
    pub early: &'a mut VecDeque<TypedLine>,
    pub memory: TalkMemory,
}

/// What is known of a conversation so far.
#[derive(Default)]
pub(super) struct TalkMemory {
    screen: PlainView,
    /// The question whose call was shown whole on request.
    viewed: Option<String>,
    desk: OpenQuestions<Question>,
    /// The agent's own commands, and what they are for.
    commands: Vec<(String, String)>,
    said: JoinSet<(String, Result<(), ClientError>)>,
    /// Commands that were sent and have not ended, by what was typed.
    ordered: JoinSet<(String, Result<(), ClientError>)>,
    /// Messages that were sent and are not acknowledged, by their id; a transcript has that. A command has none.
    flying: BTreeMap<String, String>,
    /// Questions that were answered here.
    answered: Vec<String>,
    /// What was typed and could not be meant for anybody; `/say` sends it.
    kept: Vec<String>,
}

impl Talk<'_> {
    /// Talks until the person leaves or the agent hangs up. `client` is of the daemon.
    pub(super) async fn run(mut self, client: &mut Client, out: &mut dyn Write) -> Result<Over> {
        let loading = {
            let (client, session, cwd) =
                (self.link.client.clone(), self.link.session.clone(), self.link.cwd.clone());
            async move { client.load_session(&session, &cwd).await }
        };
        tokio::pin!(loading);
        let mut is_loaded = false;
        let head = format!("agent {}: {}", row::name(self.agent), self.agent.prompt);
        self.memory.screen.line(Style::new(), &head, out)?;
        if self.keyboard.is_some() {
            say("type to steer it; Ctrl+D leaves it running");
        }
        if let Some(why) = self.link.client.no_say() {
            say(&format!("its questions are not shown here: {why}"));
        }
        let slow = tokio::time::sleep(PATIENCE);
        tokio::pin!(slow);
        let mut is_slow = false;
        let interrupted = tokio::signal::ctrl_c();
        tokio::pin!(interrupted);
        loop {
            // Somebody else may have answered.
            if self.memory.desk.drop_moot(|question| question.withdrawn().is_cancelled()) {
                self.turn(QuestionChange::Elsewhere);
                self.memory.screen.line(Style::new(), "  (answered elsewhere)", out)?;
                self.show_question(self.reader(), out)?;
            }
            let moot = self.memory.desk.shown().map(|question| question.withdrawn().clone());
            tokio::select! {
                event = self.link.events.next() => match event {
                    Ok(Some(ClientEvent::Update(update))) => match update.update {
                        SessionUpdate::AvailableCommandsUpdate(known) => {
                            let known = known.available_commands.into_iter();
                            self.memory.commands =
                                known.map(|command| (command.name, command.description)).collect();
                        }
                        other => self.memory.screen.update(other, out)?,
                    },
                    Ok(Some(ClientEvent::Permission(question))) => self.asked(question, out)?,
                    Ok(Some(ClientEvent::TurnEnded(ended))) => self.memory.screen.turn_ended(&ended, out)?,
                    // An agent of the fleet has none.
                    Ok(Some(ClientEvent::Background(_) | ClientEvent::Heard(_))) => {}
                    Ok(Some(ClientEvent::Closed(_)) | None) | Err(_) if is_loaded => {
                        self.memory.screen.line(Style::new(), "", out)?;
                        return Ok(Over::HungUp(self.unheard().await?));
                    }
                    Ok(Some(ClientEvent::Closed(_)) | None) | Err(_) => {
                        return Ok(Over::Unseen(Failure::new("the agent has hung up")));
                    }
                },
                answer = &mut loading, if !is_loaded => match answer {
                    Ok(_) => is_loaded = true,
                    Err(error) => return Ok(Over::Unseen(Failure::from(error))),
                },
                () = &mut slow, if !is_loaded && !is_slow => {
                    is_slow = true;
                    say("the agent does not answer; it may be stopped (Ctrl+C leaves)");
                }
                line = next_line(self.early, self.keyboard), if is_loaded => match line {
                    Some(line) if line.is_whole => {
                        self.memory.screen.entered();
                        self.typed(line, out).await?;
                    }
                    Some(unfinished) => {
                        self.memory.screen.typing();
                        self.memory.kept.push(unfinished.text);
                    }
                    // Ctrl+D leaves the cursor where it is.
                    None => {
                        self.memory.screen.end_line(out)?;
                        return Ok(Over::Left(self.leave(client).await?));
                    }
                },
                Some(told) = self.memory.said.join_next(), if !self.memory.said.is_empty() => {
                    self.memory.told(told)?;
                    self.memory.screen.end_line(out)?;
                }
                Some(done) = self.memory.ordered.join_next(), if !self.memory.ordered.is_empty() => {
                    carried_out(done)?;
                    // What came of a command ends without a line's end.
                    self.memory.screen.end_line(out)?;
                }
                () = async { match &moot { Some(moot) => moot.cancelled().await, None => std::future::pending().await } } => {}
                _no_handler = &mut interrupted => {
                    // The terminal has shown the key.
                    if self.keyboard.is_some() {
                        writeln!(out)?;
                    }
                    return Ok(Over::Left(self.leave(client).await?));
                }
            }
        }
    }

    fn reader(&self) -> QuestionReader {
        if self.keyboard.is_some() { QuestionReader::Answers } else { QuestionReader::CannotAnswer }
    }

    /// Another question is shown from now on, or none: what was begun before is not for it.
    fn turn(&mut self, turn: QuestionChange) {
        let mut looks = 0;
        if let Some(keyboard) = self.keyboard {
            let (number, draft) = keyboard.look();
            looks = number;
            if draft == Draft::Some {
                self.memory.screen.typing();
            }
        }
        self.memory.desk.turn(turn, KeyboardMoment { looks, at: Instant::now() });
    }

    /// One at a time: an answer must be to what is shown.
    fn asked(&mut self, question: Question, out: &mut dyn Write) -> Result<()> {
        if !self.memory.desk.is_empty() {
            self.memory.desk.put(question);
            return Ok(());
        }
        let stood = self.agent.asks.iter().any(|ask| *ask.id == *question.request.tool_call.tool_call_id.0);
        self.turn(if stood { QuestionChange::Stood } else { QuestionChange::CameUp });
        self.memory.desk.put(question);
        Ok(self.show_question(self.reader(), out)?)
    }

    /// Shows the question that is to be answered next, if there is one.
    fn show_question(&mut self, reader: QuestionReader, out: &mut dyn Write) -> std::io::Result<()> {
        let TalkMemory { desk, screen, .. } = &mut self.memory;
        desk.shown().map_or(Ok(()), |question| screen.question(question, reader, out))
    }

    async fn typed(&mut self, line: TypedLine, out: &mut dyn Write) -> Result<()> {
        let memory = &mut self.memory;
        match Typed::of(&line.text, &memory.commands) {
            Typed::Nothing => {}
            Typed::Cancel => {
                self.link.client.cancel(&self.link.session).await?;
            }
            Typed::Help => typed_line::help(&memory.commands, &mut memory.screen, out)?,
            Typed::Unknown(name) => {
                let words = format!("there is no command {name}; /help lists them. Nothing was sent");
                memory.screen.line(Style::new(), &words, out)?;
            }
            Typed::Command(text) | Typed::Say(Some(text)) => self.tell(text)?,
            Typed::Say(None) if memory.kept.is_empty() => {
                let words = "nothing is kept; /say with words after it sends those";
                memory.screen.line(Style::new(), words, out)?;
            }
            Typed::Say(None) => {
                for text in std::mem::take(&mut memory.kept) {
                    self.tell(text)?;
                }
            }
            Typed::Words(text) => {
                let mark = KeyboardMoment { looks: line.looks, at: line.at };
                match typed_line::meant(&text, mark, memory.viewed.as_deref(), &mut memory.desk) {
                    Meant::Message => self.tell(text)?,
                    Meant::View => {
                        memory.viewed =
                            memory.desk.shown().map(|asked| asked.request.tool_call.tool_call_id.to_string());
                        self.show_question(QuestionReader::WantsAll, out)?;
                    }
                    Meant::Not(why) => {
                        memory.screen.line(Style::new(), &why, out)?;
                        self.show_question(self.reader(), out)?;
                    }
                    Meant::Keep(why) => {
                        memory.kept.push(text);
                        memory.screen.line(Style::new(), why, out)?;
                        self.show_question(self.reader(), out)?;
                    }
                    Meant::Answer(question, reply) => {
                        let id = question.request.tool_call.tool_call_id.to_string();
                        match question.answer(reply).await {
                            Ok(()) => memory.answered.push(id),
                            // A connection that is gone is seen by the next event.
                            Err(_) => memory.kept.push(text),
                        }
                        if memory.desk.is_empty() {
                            memory.desk.turn(
                                QuestionChange::Answered,
                                KeyboardMoment { looks: 0, at: Instant::now() },
                            );
                        } else {
                            self.turn(QuestionChange::CameUp);
                            self.show_question(self.reader(), out)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Says something to the agent: a command of its own as a prompt, anything else as a message that is on disk when it
    /// is acknowledged, under an id of ours.
    fn tell(&mut self, text: String) -> Result<()> {
        let id = caliban_contract::random_hex::<16>().map_err(|error| Failure::new(error.to_string()))?;
        let (client, session) = (self.link.client.clone(), self.link.session.clone());
        let is_command = Typed::of(&text, &self.memory.commands) == Typed::Command(text.clone());
        if is_command {
            self.memory.ordered.spawn(async move {
                let done = client.prompt(&session, vec![ContentBlock::from(text.as_str())]).await;
                (text, done.map(drop))
            });
            return Ok(());
        }
        self.memory.flying.insert(id.clone(), text.clone());
        self.memory.said.spawn(async move {
            let params = json!({"sessionId": session, "text": text, "id": id});
            let told = client.peer().call::<Value>(SEND, &params).await;
            (id, told.map(drop).map_err(ClientError::from))
        });
        Ok(())
    }

    /// Waits until the agent has what was typed; what it was not told.
    async fn leave(mut self, client: &mut Client) -> Result<Vec<String>> {
        let begun = Instant::now();
        let mut is_said = false;
        let mut look = tokio::time::interval(LOOK);
        let interrupted = tokio::signal::ctrl_c();
        tokio::pin!(interrupted);
        // A command is taken at once or refused at once; one that is being carried out needs nobody who waits for it.
        while !self.memory.said.is_empty()
            || !self.memory.answered.is_empty()
            || (!self.memory.ordered.is_empty() && begun.elapsed() <= LEAVE_PATIENCE)
        {
            tokio::select! {
                event = self.link.events.next() => match event {
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => return self.unheard().await,
                },
                Some(told) = self.memory.said.join_next(), if !self.memory.said.is_empty() => {
                    self.memory.told(told)?;
                }
                Some(done) = self.memory.ordered.join_next(), if !self.memory.ordered.is_empty() => {
                    carried_out(done)?;
                }
                _no_handler = &mut interrupted => break,
                _ = look.tick() => {
                    if !self.memory.answered.is_empty() && let Ok(row) = client.show(&self.agent.id.to_string()).await {
                        self.memory.answered.retain(|id| row.asks.iter().any(|ask| ask.id == *id));
                    }
                    if begun.elapsed() > LEAVE_LIMIT {
                        break;
                    }
                    let is_waited_for = !self.memory.said.is_empty() || !self.memory.answered.is_empty();
                    if is_waited_for && begun.elapsed() > LEAVE_PATIENCE && !std::mem::replace(&mut is_said, true) {
                        say("waiting until the agent has what you typed (Ctrl+C leaves)");
                    }
                }
            }
        }
        if !self.memory.answered.is_empty() {
            say("the agent has not taken your answer yet; `caliban approvals` tells");
        }
        self.unheard().await
    }

    /// Hangs up, and tells what the agent has not got of all that was typed.
    async fn unheard(mut self) -> Result<Vec<String>> {
        self.link.events.close().await;
        while let Some(told) = self.memory.said.join_next().await {
            self.memory.told(told)?;
        }
        // One that was recorded and not acknowledged is heard all the same.
        let mut flying = self.memory.flying;
        if !flying.is_empty() {
            for line in Tail::new(self.agent.dir.join(transcript::FILE_NAME)).all()? {
                flying.retain(|id, _| !line.contains(id.as_str()));
            }
        }
        let later = self.keyboard.iter_mut().flat_map(Keyboard::rest);
        let typed = self.early.drain(..).chain(later).map(|line| line.text);
        let all = flying.into_values().chain(self.memory.kept).chain(typed);
        Ok(all.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()).collect())
    }
}

/// What came of a command. The next event tells that its agent is gone.
fn carried_out(done: Result<(String, Result<(), ClientError>), tokio::task::JoinError>) -> Result<()> {
    let (typed, result) = done.map_err(|error| Failure::new(error.to_string()))?;
    if let Err(error) = result
        && !error.is_gone()
    {
        let mut failure = Failure::from(error);
        failure.message = format!("{typed}: {}", failure.message);
        failure.show();
    }
    Ok(())
}

impl TalkMemory {
    /// What came of something that was said.
    fn told(
        &mut self,
        told: Result<(String, Result<(), ClientError>), tokio::task::JoinError>,
    ) -> Result<()> {
        let (id, result) = told.map_err(|error| Failure::new(error.to_string()))?;
        match result {
            Ok(()) => drop(self.flying.remove(&id)),
            // The next event tells that it is gone; what becomes of the words is seen then.
            Err(error) if error.is_gone() => {}
            Err(error) => {
                Failure::from(error).show();
                self.kept.extend(self.flying.remove(&id));
                say("it was not told that; /say tries again");
            }
        }
        Ok(())
    }
}

/// What was typed early, then what is typed now.
async fn next_line(early: &mut VecDeque<TypedLine>, keyboard: &mut Option<Keyboard>) -> Option<TypedLine> {
    match early.pop_front() {
        Some(line) => Some(line),
        None => Keyboard::next_of(keyboard).await,
    }
}
