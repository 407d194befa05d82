//! Where a page's commands run: the project of the examples, with a scripted model.

use std::path::PathBuf;
use std::time::Instant;

use testkit::{Env, LIMIT, ProgramRun, wait_until};

use super::compare::Names;
use super::page::{Block, Kind, Step};

/// What the model answers, on all pages: told apart by the first prompt.
const ANSWERS: &str = include_str!("../../guide/answers.json");

/// Commands that run again until they do what the page says, since agents work meanwhile. They only look, or do nothing
/// when they fail.
const AGAIN: [&str; 7] = [
    "caliban agents list",
    "caliban approvals",
    "caliban approve ",
    "caliban logs",
    "caliban daemon status",
    "caliban sessions list",
    " agent list ",
];

pub(super) struct World {
    env: Env,
    repo: PathBuf,
    names: Names,
    code: i32,
}

impl World {
    pub(super) fn new(page: &str) -> Self {
        let mut env = Env::new();
        let program = PathBuf::from(env.cmd("caliban").get_program());
        let mut path = program.parent().unwrap().as_os_str().to_owned();
        path.push(":");
        path.push(env.var("PATH").unwrap());
        env.set("PATH", path);
        let repo = env.home().join("project");
        env.write(repo.join("src/main.rs"), "fn main() {\n    println!(\"hi\");\n}\n");
        env.write(repo.join("Makefile"), "check:\n\t@echo checked\ntest:\n\t@false\n");
        env.write(repo.join(".gitignore"), "*.db\n");
        env.git(&repo, &["init", "--quiet"]);
        env.git(&repo, &["add", "."]);
        env.git(&repo, &["commit", "--quiet", "-m", "first commit"]);
        let world = Self { env, repo, names: Names::default(), code: 0 };
        if page != "getting-started.md" {
            world.give_model();
        }
        world
    }

    /// The user's settings with the scripted model.
    fn give_model(&self) {
        let answers = self.env.write(self.env.root().join("answers.json"), ANSWERS);
        let settings = format!(
            "provider = \"scripted\"\n[providers.scripted]\nscript = {:?}\n",
            answers.to_str().unwrap()
        );
        self.env.write(self.env.config().join("caliban/settings.toml"), settings);
    }

    /// What a block that is not run does for those after it: the key brings the model, a file is written.
    pub(super) fn pass(&mut self, block: &Block) {
        if block.text.starts_with("export ANTHROPIC_API_KEY=") {
            self.give_model();
        }
        if let Some((_, name)) = block.language.split_once(" file=") {
            let path = self.env.write(self.repo.join(name), format!("{}\n", block.text));
            // A reader has written it before: by the clock of a file system, a file of this moment may be the agent's.
            let written = Instant::now();
            wait_until("it was there before", || written.elapsed().as_millis() > 40);
            if block.text.starts_with("#!") {
                std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            }
        }
    }

    /// Runs a command and compares. Returns what is wrong.
    pub(super) fn follow(&mut self, kind: Kind, step: &Step) -> Option<String> {
        let command = self.names.put_into(&step.command);
        let again = AGAIN.iter().any(|known| command.contains(known));
        let start = Instant::now();
        let (mut printed, mut good) = (String::new(), false);
        wait_until("the command was run", || {
            printed = self.run(&command);
            good = match kind {
                Kind::Shell => self.code == 0,
                Kind::Console | Kind::Other => self.names.agree(&step.output, &printed),
            };
            good || !again || start.elapsed() > LIMIT / 4
        });
        let shown = match kind {
            Kind::Shell => format!("ended with {} and printed", self.code),
            Kind::Console | Kind::Other => format!("--- is shown with\n{}\n--- and printed", step.output),
        };
        (!good).then(|| format!("$ {command}\n{shown}\n{printed}"))
    }

    /// Both streams, with the paths of the examples.
    fn run(&mut self, command: &str) -> String {
        let line = format!("exec 2>&1; (exit {}); {command}", self.code);
        let output = ProgramRun::new(self.env.program("bash")).args(["-c", &line]).dir(&self.repo).output();
        self.code = output.code;
        let root = self.env.root().to_str().unwrap();
        let mut text = output.stdout;
        for (dir, shown) in [
            ("/data", "/home/me/.local/share"),
            ("/config", "/home/me/.config"),
            ("/home", "/home/me"),
            ("/run", "/run/user/1000"),
        ] {
            text = text.replace(&format!("{root}{dir}"), shown);
        }
        text
    }
}
