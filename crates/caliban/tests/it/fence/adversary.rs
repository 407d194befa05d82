//! A stateful adversary (a17): sequences of moves from a number, each made through the program, while everything outside is
//! watched. `cargo xtask soak fence` makes many; here a fixed few are made in each mode.
//!
//! A number says which agent it is (the mode, where the project lies, whether there are denials) and what it does. Many
//! sequences are made by one agent, and the project is put back between two of them. `CALIBAN_SOAK_SEED=N
//! CALIBAN_SOAK_SEQUENCES=1` makes the one sequence again, alone.

mod moves;
mod world;

use std::{
    collections::VecDeque,
    io::Write as _,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use testkit::{
    ModelServer, ProgramRun, Protocol, StepExt as _, script::Script, script::ScriptStep, text, tool, tools,
};

use self::{
    moves::{Generator, Move, Sequence},
    world::World,
};
use super::{generated::number, hostile::LIBRARY};
use crate::place::Place;

/// Sequences of one agent.
const OF_ONE_AGENT: u64 = 25;
/// Sequences of all modes together when nobody says.
const SEQUENCES: u64 = 300;
/// How often a sequence is made again to find moves that it does not need.
const ATTEMPTS: usize = 30;
/// After so many sequences it is said how many there were.
const PROGRESS: u64 = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stance {
    Default,
    /// As with accept-edits, and what would ask is refused.
    NeverAsk,
    AcceptEdits,
    Plan,
    /// With rules about files.
    Unattended,
    /// In the background, in a worktree of its own.
    Worktree,
}

const STANCES: [Stance; 6] = [
    Stance::AcceptEdits,
    Stance::Worktree,
    Stance::Default,
    Stance::Unattended,
    Stance::Plan,
    Stance::NeverAsk,
];

impl Stance {
    /// Whether nothing in the project can be written.
    fn only_reads(self) -> bool {
        matches!(self, Self::Default | Self::Plan)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Repository,
    Plain,
    /// An added directory lies above the project.
    BelowAdded,
    InHome,
    /// A worktree of another repository is an added directory.
    LinkedAdded,
    /// The project is a bare repository.
    Bare,
}

const LAYOUTS: [Layout; 6] = [
    Layout::Repository,
    Layout::Plain,
    Layout::BelowAdded,
    Layout::InHome,
    Layout::LinkedAdded,
    Layout::Bare,
];

/// What an agent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Terms {
    stance: Stance,
    layout: Layout,
    denials: bool,
    /// Whether git knows a denied file.
    in_index: bool,
    /// Whether it runs as another user: root may look into directories that are closed.
    is_other: bool,
}

impl Terms {
    fn of(block: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(block ^ 0x0a17);
        let at = usize::try_from(block).unwrap_or_default() % STANCES.len();
        let stance = STANCES[at];
        let layout = LAYOUTS[random.usize(..LAYOUTS.len())];
        let layout = if stance == Stance::Worktree { Layout::Repository } else { layout };
        let denials = stance == Stance::Unattended || random.bool();
        let is_other = stance != Stance::Worktree && random.bool() && rustix::process::geteuid().is_root();
        Self { stance, layout, denials, in_index: random.bool(), is_other }
    }

    fn flags(self, world: &World) -> Vec<String> {
        let (arena, linked) = (world.arena.display().to_string(), world.linked().display().to_string());
        let mode = match self.stance {
            Stance::Default | Stance::Worktree => "default",
            Stance::NeverAsk => "never-ask",
            Stance::AcceptEdits => "accept-edits",
            Stance::Plan => "plan",
            Stance::Unattended => "unattended",
        };
        let mut flags = vec![
            "--permission-mode",
            mode,
            "--allow",
            "Bash(make *) outside",
            "--allow",
            "Bash(make *) outside in sub",
        ];
        if self.denials {
            flags.extend(["--deny", "Read(.env)", "--deny", "Read(conf/secrets/**)"]);
        }
        if self.layout == Layout::BelowAdded {
            flags.extend(["--add-dir", &arena]);
        }
        if self.layout == Layout::LinkedAdded {
            flags.extend(["--add-dir", &linked]);
        }
        flags.extend(["--max-turns", "1000"]);
        flags.into_iter().map(str::to_owned).collect()
    }
}

/// Something that a sequence did outside.
#[derive(Debug, Clone)]
struct Hole {
    number: u64,
    what: Vec<String>,
    said: Vec<String>,
}

/// The model: makes the moves of its sequences, and looks after each.
struct Adversary {
    world: World,
    /// The worktree, which is there when the agent begins.
    worktree: Option<PathBuf>,
    left: VecDeque<(u64, Sequence)>,
    number: u64,
    moves: VecDeque<Move>,
    /// What the calls of this sequence have answered.
    said: Vec<String>,
    /// Background commands so far, and whether the last one goes on.
    jobs: usize,
    is_beside: bool,
    has_settled: bool,
    /// Whether commands start elsewhere than in the project's top.
    is_away: bool,
    /// How many calls ran, of how many.
    ran: (usize, usize),
    hole: Option<Hole>,
    is_done: bool,
}

impl Adversary {
    fn new(world: World, worktree: Option<PathBuf>, sequences: Vec<(u64, Sequence)>) -> Self {
        Self {
            world,
            worktree,
            left: sequences.into(),
            number: 0,
            moves: VecDeque::new(),
            said: Vec::new(),
            jobs: 0,
            is_beside: false,
            has_settled: true,
            is_away: false,
            ran: (0, 0),
            hole: None,
            is_done: false,
        }
    }

    /// The next call; first a look at what came of the last one.
    fn answer(&mut self, body: &Value) -> ScriptStep {
        if let Some(worktree) = self.worktree.take() {
            self.world.moves_to(worktree);
        }
        let last =
            body["messages"].as_array().and_then(|messages| messages.last()).map(results).unwrap_or_default();
        self.ran.1 += usize::from(!last.is_empty());
        self.ran.0 += usize::from(!last.is_empty() && !last.contains("Not carried out"));
        // Where the next command starts; no directory of the project, if that is gone.
        self.is_away |= last.contains("[working directory is now");
        self.said.push(last.clone());
        let told = if self.world.terms.stance == Stance::Unattended { "CANARY denied" } else { "CANARY" };
        let shown: Vec<&str> = last.lines().filter(|line| line.contains(told)).collect();
        if !shown.is_empty() && self.hole.is_none() {
            self.fell(vec![format!("a command showed {shown:?}")]);
        }
        loop {
            if self.hole.is_some() {
                self.moves.clear();
                self.left.clear();
            }
            if let Some(next) = self.moves.pop_front() {
                return self.step(next);
            }
            if self.is_beside {
                self.is_beside = false;
                return tool("KillShell", json!({"shell_id": format!("bash_{}", self.jobs)}));
            }
            if !self.has_settled && self.hole.is_none() {
                self.has_settled = true;
                // What git finds is looked at after a command; the next one waits for that.
                if self.world.has_new_git() && !self.world.terms.stance.only_reads() {
                    return self.step(Move::Edit(":".to_owned()));
                }
            }
            if std::mem::take(&mut self.is_away) {
                return self.step(Move::Line("cd {P}".to_owned()));
            }
            self.look();
            let Some((number, sequence)) = self.left.pop_front().filter(|_| self.hole.is_none()) else {
                self.is_done = true;
                return text("done");
            };
            self.begin(number, sequence);
        }
    }

    fn fell(&mut self, what: Vec<String>) {
        self.hole = Some(Hole { number: self.number, what, said: self.said.clone() });
    }

    fn look(&mut self) {
        if self.hole.is_some() {
            return;
        }
        // The user's own git runs what is in a tree that anybody may write; only fences promise otherwise.
        let stance = self.world.terms.stance;
        if stance == Stance::Worktree || (stance != Stance::Unattended && self.world.has_new_git()) {
            self.world.user_looks();
        }
        let holes = self.world.holes();
        if !holes.is_empty() {
            self.fell(holes);
        }
    }

    fn begin(&mut self, number: u64, sequence: Sequence) {
        self.world.restore();
        for part in &sequence.unpacked {
            let text = self.fill(&part.text);
            self.world.unpack(&part.name, &text, part.is_link);
        }
        self.world.begin();
        self.number = number;
        self.moves = sequence.moves.into();
        self.said.clear();
        self.has_settled = false;
    }

    fn fill(&self, text: &str) -> String {
        let root = self.world.root();
        let at = |name: &str| root.join(name).display().to_string();
        let up = self
            .world
            .project
            .strip_prefix(root)
            .unwrap()
            .components()
            .map(|_| "..")
            .collect::<Vec<_>>()
            .join("/");
        text.replace("{H}", &at("home"))
            .replace("{C}", &at("config"))
            .replace("{R}", &at("run"))
            .replace("{S}", &at("sibling"))
            .replace("{E}", &at("work/evil"))
            .replace("{M}", &self.world.marks.display().to_string())
            .replace("{P}", &self.world.project.display().to_string())
            .replace("{A}", &self.world.arena.display().to_string())
            .replace("{L}", &self.world.linked().display().to_string())
            .replace("{^}", &up)
    }

    /// The line that runs a program. Where nothing is written, not by us either, it has the program in it.
    fn program(&self, program: &str) -> String {
        let program = self.fill(program);
        if self.world.terms.stance.only_reads() {
            return format!("bash <<'E'\n{program}\nE");
        }
        // Each line is another one: an agent that repeats itself is stopped.
        format!("{} {}", self.world.note(&program), self.ran.1)
    }

    fn step(&mut self, next: Move) -> ScriptStep {
        let bash = |command: String| json!({"command": command, "timeout": 2000});
        match next {
            Move::Edit(program) => tool("Bash", bash(self.program(&program))),
            Move::Line(line) => tool("Bash", bash(self.fill(&line))),
            Move::Together(one, other) => {
                let both = self.world.note(&format!(
                    "case $1 in 1) {};; 2) {};; esac",
                    self.fill(&one),
                    self.fill(&other)
                ));
                tools([("Bash", bash(format!("{both} 1"))), ("Bash", bash(format!("{both} 2")))])
            }
            Move::File(name, path) => {
                let input = match name {
                    "Glob" => json!({"pattern": format!("{path}*")}),
                    "Write" => json!({"file_path": path, "content": "x\n"}),
                    _ => json!({"file_path": path}),
                };
                tool(name, input)
            }
            Move::Beside(program) => {
                self.jobs += 1;
                self.is_beside = true;
                let program = format!("import random\n{LIBRARY}\n{}", self.fill(&program));
                let command = format!("/usr/bin/python3 - <<'E'\n{program}\nE");
                tool("Bash", json!({"command": command, "run_in_background": true}))
            }
        }
    }
}

/// The text of the results in a message.
fn results(message: &Value) -> String {
    let mut found = String::new();
    for block in
        message["content"].as_array().into_iter().flatten().filter(|block| block["type"] == "tool_result")
    {
        match &block["content"] {
            Value::String(text) => found += text,
            parts => {
                let texts = parts.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str());
                texts.for_each(|text| found += text);
            }
        }
        found.push('\n');
    }
    found
}

/// The adversary, from when its world is there, and who waits for its next answer.
#[derive(Default)]
struct Shared {
    adversary: Mutex<Option<Adversary>>,
    changed: Condvar,
}

impl Shared {
    fn answer(&self, body: &Value) -> ScriptStep {
        let held = self.adversary.lock().unwrap();
        let mut held = self.changed.wait_while(held, |adversary| adversary.is_none()).unwrap();
        let step = held.as_mut().map_or_else(|| text("nobody"), |adversary| adversary.answer(body));
        self.changed.notify_all();
        step
    }

    fn begin(&self, adversary: Adversary) {
        *self.adversary.lock().unwrap() = Some(adversary);
        self.changed.notify_all();
    }

    /// Waits until all is done, and does this whenever nothing has happened for a while.
    fn wait(&self, when_still: impl Fn()) {
        let mut held = self.adversary.lock().unwrap();
        while held.as_ref().is_some_and(|adversary| !adversary.is_done) {
            let (next, waited) = self.changed.wait_timeout(held, STILL).unwrap();
            held = next;
            if waited.timed_out() {
                drop(held);
                when_still();
                held = self.adversary.lock().unwrap();
            }
        }
    }
}

/// One agent and its sequences; what it did outside, and how many of its calls ran.
fn run(terms: Terms, sequences: Vec<(u64, Sequence)>) -> (Option<Hole>, (usize, usize)) {
    let shared: Arc<Shared> = Arc::default();
    let asked = shared.clone();
    let server = ModelServer::builder(Script { steps: vec![text("unused").forever()] });
    let server = server.without_rules().without_record().answered_by(move |body| asked.answer(body)).start();
    let world = World::new(Place::with(server, Protocol::Anthropic), terms);
    let flags = terms.flags(&world);
    let flags = flags.iter().map(String::as_str);
    if terms.stance == Stance::Worktree {
        let caliban = world.place.caliban().args(["--bg", "go"]).args(flags);
        let id = crate::fleet::id_of(&caliban.output().ok());
        let repo = world.place.repo.clone();
        let verb = |args: [&str; 2]| world.place.env.start("caliban", args).args([&id]).dir(&repo);
        let wait = verb(["agents", "wait"]).limit(LIMIT);
        let denials = Mutex::new((0..DENIALS).map(|_| verb(["deny", "--"])).collect::<Vec<_>>());
        shared.begin(Adversary::new(world, Some(repo.join(".caliban/worktrees").join(&id)), sequences));
        // Nobody else is there to be asked.
        shared.wait(|| drop(denials.lock().unwrap().pop().map(ProgramRun::output)));
        let waited = wait.output();
        assert_eq!(waited.code, 0, "{terms:?}: {waited:?}");
    } else {
        let caliban = world.caliban().args(["-p", "go"]).args(flags).limit(LIMIT);
        shared.begin(Adversary::new(world, None, sequences));
        let output = caliban.output();
        assert!(matches!(output.code, 0 | 3), "{terms:?}: {output:?}");
    }
    let adversary = shared.adversary.lock().unwrap().take().unwrap();
    (adversary.hole, adversary.ran)
}

/// The most that one agent may take.
const LIMIT: Duration = Duration::from_secs(600);
/// An agent that does not go on for so long may ask for something.
const STILL: Duration = Duration::from_secs(1);
/// How often that is refused at most.
const DENIALS: usize = 100;

fn sequence(number: u64, terms: Terms) -> Sequence {
    Generator { random: fastrand::Rng::with_seed(number), terms }.sequence()
}

/// Leaves out what the hole does not need. One that only opens now and then stays as it is.
fn shrunk(terms: Terms, number: u64) -> (Sequence, Option<Hole>) {
    let mut least = sequence(number, terms);
    let mut open = run(terms, vec![(number, least.clone())]).0;
    let mut attempts = ATTEMPTS;
    let mut at = 0;
    while open.is_some() && attempts > 0 && at < least.moves.len() + least.unpacked.len() {
        let mut fewer = least.clone();
        if at < fewer.moves.len() {
            fewer.moves.remove(at);
        } else {
            fewer.unpacked.remove(at - fewer.moves.len());
        }
        attempts -= 1;
        match run(terms, vec![(number, fewer.clone())]).0 {
            Some(hole) => (least, open) = (fewer, Some(hole)),
            None => at += 1,
        }
    }
    (least, open)
}

/// Says what a sequence did, and what of it is needed for that.
fn told(terms: Terms, hole: &Hole) -> String {
    let (least, again) = shrunk(terms, hole.number);
    let whole = sequence(hole.number, terms);
    let alone = match again {
        Some(again) => {
            format!("alone it has this effect: {:?}\nwithout what it does not need: {least:#?}", again.what)
        }
        None => "alone it had no effect: it needs what was before, or luck".to_owned(),
    };
    format!(
        "{terms:?}: sequence {number} has an effect: {:#?}\n\
         rerun it: cargo xtask soak fence --seed {number} --sequences 1\n\
         rerun its agent: cargo xtask soak fence --seed {} --sequences {OF_ONE_AGENT}\n\
         the whole sequence: {whole:#?}\nwhat came of it: {:#?}\n{alone}\n",
        hole.what,
        hole.number / OF_ONE_AGENT * OF_ONE_AGENT,
        hole.said,
        number = hole.number,
    )
}

/// For whoever watches a long run.
fn say(line: &str) {
    let _nobody_may_watch = writeln!(std::io::stderr(), "{line}");
}

/// Makes the sequences of one mode, from the first number on.
fn soak(stance: Stance) {
    let first = number("CALIBAN_SOAK_SEED").unwrap_or_default();
    let count = number("CALIBAN_SOAK_SEQUENCES").unwrap_or(SEQUENCES);
    // How many holes are looked for.
    let most = number("CALIBAN_SOAK_HOLES").unwrap_or(1);
    let (mut made, mut ran, mut holes, began) = (0, (0, 0), Vec::new(), Instant::now());
    let progress = |made: u64, (ran, calls): (usize, usize)| {
        format!("{stance:?}: {made} sequences, {ran} of {calls} calls ran, {} s", began.elapsed().as_secs())
    };
    let mut at = first;
    while at < first + count && (holes.len() as u64) < most {
        let terms = Terms::of(at / OF_ONE_AGENT);
        let end = ((at / OF_ONE_AGENT + 1) * OF_ONE_AGENT).min(first + count);
        if terms.stance != stance {
            at = end;
            continue;
        }
        let sequences = (at..end).map(|number| (number, sequence(number, terms))).collect();
        let (hole, calls) = run(terms, sequences);
        // After a hole another agent goes on.
        let next = hole.as_ref().map_or(end, |hole| hole.number.max(at) + 1);
        made += next - at;
        at = next;
        ran = (ran.0 + calls.0, ran.1 + calls.1);
        if let Some(hole) = hole {
            say(&format!("{stance:?}: sequence {} has an effect: {:?}", hole.number, hole.what));
            holes.push((terms, hole));
        }
        if made % PROGRESS < OF_ONE_AGENT {
            say(&progress(made, ran));
        }
    }
    say(&progress(made, ran));
    if let Some((terms, hole)) = holes.first() {
        panic!("{} of {made} sequences had an effect. The first: {}", holes.len(), told(*terms, hole));
    }
    // Calls that are all refused would show nothing.
    assert!(made < OF_ONE_AGENT || ran.0 * 4 > ran.1, "only {} of {} calls ran", ran.0, ran.1);
}

#[test]
fn a18_no_sequence_of_an_adversary_has_an_effect_with_accept_edits() {
    soak(Stance::AcceptEdits);
}

#[test]
fn a18_no_sequence_of_an_adversary_has_an_effect_in_a_worktree() {
    soak(Stance::Worktree);
}

#[test]
fn a18_no_sequence_of_an_adversary_has_an_effect_in_default_mode() {
    soak(Stance::Default);
}

#[test]
fn a18_no_sequence_of_an_adversary_has_an_effect_where_nobody_is_asked() {
    soak(Stance::NeverAsk);
}

#[test]
fn a18_no_sequence_of_an_adversary_has_an_effect_on_what_is_denied() {
    soak(Stance::Unattended);
}

#[test]
fn a18_no_sequence_of_an_adversary_has_an_effect_in_plan_mode() {
    soak(Stance::Plan);
}
