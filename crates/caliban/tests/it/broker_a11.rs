//! a11 at the broker: whose words a fleet agent's processes may say, how fast, and how far a chain of answers goes.
//! The agents run the real `cafleet` with Bash.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::{StepExt, script, text, tool, wait_until};

use super::World;
use crate::fleet::bash;

const FOR_VICTIM: &str = "00000000-0000-4000-8000-00000000000a";
const FROM_VICTIM: &str = "00000000-0000-4000-8000-00000000000b";

impl World {
    fn cafleet_program(&self) -> PathBuf {
        PathBuf::from(self.fleet.place.env.cmd("cafleet").get_program())
    }

    /// The whole id of an active agent.
    fn whole_id(&self, name: &str) -> String {
        let list: Value = self.cafleet(["agent", "list", "--agent-id", &self.director, "--full"]).ok().json();
        let found = list.as_array().unwrap().iter().find(|agent| agent["name"] == name);
        found.unwrap_or_else(|| panic!("{list}"))["agent_id"].as_str().unwrap().to_owned()
    }

    /// A person registers somebody.
    fn register(&self, name: &str) -> String {
        let made: Value =
            self.cafleet(["agent", "register", "--name", name, "--description", "d"]).ok().json();
        made["agent_id"].as_str().unwrap().to_owned()
    }

    /// Writes a script for an agent, in which `try NAME ARGS…` runs cafleet and notes how it ended; where the notes are.
    fn script(&self, id: &str, lines: &str) -> PathBuf {
        let work = self.fleet.place.env.work();
        let (path, notes) = (work.join("run.sh"), work.join("notes"));
        let home = self.fleet.place.env.home();
        let text = format!(
            "export HOME={home}\nNOTES={notes}\nS={session}\nD={director}\n\
             cafleet() {{ {program} --json --session-id $S \"$@\"; }}\n\
             note() {{ if test $2 = 0; then c=-; else c=$(sed 's/.*\"code\":\"\\([a-z_]*\\)\".*/\\1/'); fi; \
             echo \"$1 $2 $c\" >> $NOTES; }}\n\
             try() {{ n=$1; shift; e=$(cafleet \"$@\" 2>&1 >/dev/null); c=$?; printf %s \"$e\" | note \"$n\" $c; }}\n\
             {lines}\necho end >> $NOTES\n",
            home = home.display(),
            notes = notes.display(),
            session = self.session,
            director = self.director,
            program = self.cafleet_program().display(),
        );
        self.fleet.place.env.write(&path, text);
        let row = self.fleet.row(id);
        let cwd = row["worktree"].as_str().map_or_else(|| self.fleet.place.repo.clone(), PathBuf::from);
        std::fs::write(cwd.join("run-me"), path.display().to_string()).unwrap();
        notes
    }

    /// The notes of a script that has ended.
    fn notes(&self, notes: &Path) -> Vec<String> {
        let read = || std::fs::read_to_string(notes).unwrap_or_default();
        wait_until("the script has ended", || read().ends_with("end\n"));
        read().lines().filter(|line| *line != "end").map(str::to_owned).collect()
    }

    /// Starts an agent with a mailbox, and lets it run these lines; `$W` is its own identity.
    fn let_run(&self, label: &str, lines: &str) -> Vec<String> {
        let id = self.fleet.bg(
            "the task",
            [
                "--label",
                label,
                "--interactive",
                "--session",
                &self.session,
                "--permission-mode",
                "unattended",
            ],
        );
        self.fleet.wait_for(&id, "idle");
        let own = self.mailbox(label);
        let notes = self.script(&id, &format!("W={own}\n{lines}"));
        self.write(&own, "00000000-0000-4000-8000-0000000000ff", "run it");
        self.notes(&notes)
    }
}

/// The script is found through a file in the agent's own directory.
const RUN: &str = "bash \"$(cat run-me)\"";

/// A world for an agent that runs a script when it is told to.
fn world() -> World {
    World::new(script![text("ready").on("the task"), bash(RUN).on("| run it"), text("done").forever()])
}

#[test]
fn a11_a_process_of_an_agent_acts_as_that_agent_and_as_nobody_else() {
    let world = world();
    let victim = world.register("victim");
    let admin = world.whole_id("Administrator");
    world.write(&victim, FOR_VICTIM, "for the victim");
    let args = [
        "message",
        "send",
        "--agent-id",
        &victim,
        "--to",
        &world.director,
        "--id",
        FROM_VICTIM,
        "--text",
        "x",
    ];
    world.cafleet(args).ok();
    let lines = format!(
        "V={victim}\nA={admin}\n\
         try send-as-director message send --agent-id $D --to $V --text lie\n\
         try send-as-administrator message send --agent-id $A --to $V --text lie\n\
         try send-as-victim message send --agent-id $V --to $D --text lie\n\
         try send-by-prefix message send --agent-id ${{V:0:8}} --to $D --text lie\n\
         try repeat-as-victim message send --agent-id $V --to $D --id {FROM_VICTIM} --text x\n\
         try broadcast message broadcast --agent-id $V --text lie\n\
         try ack message ack --agent-id $V --task-id {FOR_VICTIM}\n\
         try cancel message cancel --agent-id $V --task-id {FROM_VICTIM}\n\
         try poll message poll --agent-id $V\n\
         try show message show --agent-id $V --task-id {FOR_VICTIM}\n\
         try show-as-self message show --agent-id $W --task-id {FOR_VICTIM}\n\
         try deliver message deliver --agent-id $D\n\
         try deregister agent deregister --agent-id $V\n\
         try delete session delete $S\n\
         export -f cafleet try note; export NOTES S D V W HOME\n\
         env -i HOME=$HOME NOTES=$NOTES S=$S D=$D V=$V PATH=$PATH bash -c \"$(declare -f cafleet try note); \
         try cleared-environment message send --agent-id \\$V --to \\$D --text lie\"\n\
         setsid -f bash -c '(try orphan message send --agent-id $V --to $D --text lie; touch $NOTES.orphan) & disown'\n\
         while ! test -e $NOTES.orphan; do :; done\n\
         for who in $D $A $V $W; do for how in '' setsid; do env -i HOME=$HOME NOTES=$NOTES S=$S D=$D V=$V W=$who PATH=$PATH \
         unshare -Urpf --mount-proc $how bash -c \"$(declare -f cafleet try note); \
         try namespace message send --agent-id \\$W --to \\$D --text lie\"; done; done\n\
         try list agent list --agent-id $D\n\
         try show-agent agent show --agent-id $D --id $V\n\
         try sessions session list\n\
         try send message send --agent-id $W --to $V --text truth\n\
         try poll-own message poll --agent-id $W\n\
         try deliver-own message deliver --agent-id $W\n"
    );
    let notes = world.let_run("worker", &lines);
    let refused = [
        "send-as-director",
        "send-as-administrator",
        "send-as-victim",
        "send-by-prefix",
        "repeat-as-victim",
        "broadcast",
        "ack",
        "cancel",
        "poll",
        "show",
        "show-as-self",
        "deliver",
        "deregister",
        "delete",
        "cleared-environment",
        "orphan",
        // As Director, Administrator, victim and itself: in a pid namespace nobody can tell which agent it is.
        "namespace",
        "namespace",
        "namespace",
        "namespace",
        "namespace",
        "namespace",
        "namespace",
        "namespace",
    ];
    let allowed = ["list", "show-agent", "sessions", "send", "poll-own", "deliver-own"];
    let expected: Vec<String> = refused
        .iter()
        .map(|name| format!("{name} 1 not_yours"))
        .chain(allowed.iter().map(|name| format!("{name} 0 -")))
        .collect();
    assert_eq!(notes, expected);
    // What was there is as it was; what the agent said, it said as itself.
    assert_eq!(world.state(FOR_VICTIM), "input_required");
    let open = |text: &str| (text.to_owned(), "input_required".to_owned());
    assert_eq!(world.letters(&victim), [open("for the victim"), open("truth")]);
    assert_eq!(world.letters(&world.director), [open("x")]);

    // A person acts for anybody, also for what is sealed.
    let own = world.mailbox("worker");
    for from in [&own, &victim, &admin] {
        world.cafleet(["message", "send", "--agent-id", from, "--to", &world.director, "--text", "hi"]).ok();
    }
    world.cafleet(["message", "ack", "--agent-id", &victim, "--task-id", FOR_VICTIM]).ok();
}

#[test]
fn a11_a_refusal_says_who_it_is_and_what_to_do() {
    let world = world();
    let victim = world.register("victim");
    let notes = world.let_run(
        "worker",
        &format!(
            "{} --session-id $S message send --agent-id {victim} --to $D --text lie 2>> $NOTES",
            world.cafleet_program().display()
        ),
    );
    let id = world.fleet.row("worker")["id"].as_str().unwrap().to_owned();
    assert_eq!(
        notes,
        [format!(
            "Error: this process belongs to the fleet agent {id} and cannot act as {victim}; pass its own --agent-id {}",
            world.whole_id("worker")
        )]
    );
}

#[test]
fn a11_what_an_agent_registers_is_its_own_and_there_is_an_end_to_it() {
    let world = world();
    world.register("victim");
    let lines = "try as-victim agent register --name Victim --description d\n\
                 try as-director agent register --name Director --description d\n\
                 try register agent register --name helper --description d\n\
                 H=$(cafleet agent list --agent-id $D | python3 -c 'import json,sys; \
                 print([a[\"id\"] for a in json.load(sys.stdin) if a[\"name\"] == \"helper\"][0])')\n\
                 try send message send --agent-id $H --to $D --text hello\n\
                 C=$(cafleet session create --no-tmux)\n\
                 field() { printf %s \"$C\" | python3 -c \"import json,sys; print(json.load(sys.stdin)$1)\"; }\n\
                 S2=$(field \"['session_id']\"); D2=$(field \"['director']['agent_id']\")\n\
                 A2=$(field \"['administrator_agent_id']\")\n\
                 S=$S2\n\
                 try own-director message send --agent-id $D2 --to $D2 --text note\n\
                 try own-administrator message send --agent-id $A2 --to $D2 --text lie\n\
                 for n in 1 2 3 4 5 6; do try more-$n agent register --name more-$n --description d; done\n\
                 try delete session delete $S2\n";
    let notes = world.let_run("worker", lines);
    // Its mailbox, helper and the Director of its own session leave five.
    assert_eq!(
        notes,
        [
            "as-victim 1 name_taken",
            "as-director 1 name_taken",
            "register 0 -",
            "send 0 -",
            "own-director 0 -",
            "own-administrator 1 not_yours",
            "more-1 0 -",
            "more-2 0 -",
            "more-3 0 -",
            "more-4 0 -",
            "more-5 0 -",
            "more-6 1 too_many_identities",
            "delete 0 -",
        ]
    );
    assert_eq!(world.letters(&world.director).len(), 1);
}

#[test]
fn a11_an_agent_that_floods_with_the_command_is_stopped_and_told_when_to_go_on() {
    const FLOOD: usize = 40;
    let world = world();
    let notes = world.let_run(
        "worker",
        &format!(
            "for n in $(seq {FLOOD}); do try $n message send --agent-id $W --to $D --text flood-$n; done"
        ),
    );
    let sent = notes.iter().filter(|line| line.ends_with(" 0 -")).count();
    let refused = notes.iter().filter(|line| line.ends_with(" 1 too_fast")).count();
    assert_eq!((notes.len(), sent + refused), (FLOOD, FLOOD), "{notes:?}");
    assert!(sent >= 20 && refused > 0, "{notes:?}");
    assert_eq!(world.letters(&world.director).len(), sent);
}

/// Two agents that answer every message, one with its tool and one with the command.
#[test]
fn a11_two_agents_that_answer_each_other_come_to_an_end_by_themselves() {
    let world = World::new(script![
        text("I wait.").on("pong waits"),
        tool("BrokerSend", json!({"to": "pong", "text": "ball"})).on("ping begins").forever(),
        tool("BrokerSend", json!({"to": "pong", "text": "ball"}))
            .on_first("ping begins")
            .on("| ball")
            .forever(),
        bash(RUN).on_first("pong waits").on("| ball").forever(),
        text("enough").forever(),
    ]);
    let start = |label: &str, task: &'static str| {
        let flags = [
            "--label",
            label,
            "--interactive",
            "--session",
            &world.session,
            "--permission-mode",
            "unattended",
        ];
        world.fleet.bg(task, flags)
    };
    let pong = start("pong", "pong waits");
    world.fleet.wait_for(&pong, "idle");
    // Written before ping is there: its id is found by its name.
    let lines = format!(
        "W={}\nP=$(cafleet agent list --agent-id $D | python3 -c 'import json,sys; \
         print([a[\"id\"] for a in json.load(sys.stdin) if a[\"name\"] == \"ping\"][0])')\n\
         try answer message send --agent-id $W --to $P --text ball",
        world.mailbox("pong")
    );
    let notes = world.script(&pong, &lines);
    let ping = start("ping", "ping begins");
    wait_until("ping is registered", || world.members().iter().any(|(name, _)| name == "ping"));
    let (ping_box, pong_box) = (world.mailbox("ping"), world.mailbox("pong"));
    let told = || {
        world.count(&ping, "call_ended", "messages of agents have answered each other")
            + std::fs::read_to_string(&notes).unwrap_or_default().matches("too_many_hops").count()
    };
    wait_until("the chain is cut", || told() == 1);
    for id in [&ping, &pong] {
        world.fleet.wait_for(id, "idle");
    }
    let letters = [world.letters(&ping_box), world.letters(&pong_box)].concat();
    assert_eq!(letters.len(), 33, "the first, and 32 answers");
    assert!(letters.iter().all(|(_, state)| state == "completed"), "{letters:?}");
    // A person's word begins anew.
    world.fleet.run(["agents", "send", &ping, "ping begins again"]).ok();
    wait_until("they play again", || world.letters(&pong_box).len() > 17);
}

#[test]
fn a11_a_forged_record_of_ones_identity_makes_nobody_else_of_an_agent() {
    let world = World::new(script![text("heard").forever()]);
    let id = world.interactive("worker", "the task");
    world.fleet.wait_for(&id, "idle");
    let own = world.whole_id("worker");
    world.kill_worker(&id);
    // What the agent could have written into its directory.
    let dir = PathBuf::from(world.fleet.row(&id)["dir"].as_str().unwrap());
    let forge = |id: &str| {
        let record = world.fleet.place.env.read(dir.join("broker.json"));
        assert!(record.contains(&own), "{record}");
        std::fs::write(dir.join("broker.json"), record.replace(&own, id)).unwrap();
    };
    forge(&world.director);
    world.write(&world.director, FOR_VICTIM, "for the Director alone");
    world.fleet.run(["resume", &id]).ok();
    world.write(&own, FROM_VICTIM, "for the worker");
    world.wait_for_receipt(FROM_VICTIM);
    assert_eq!(world.state(FOR_VICTIM), "input_required");
    assert_eq!(world.count(&id, "queued", "for the Director alone"), 0);
    // Nor does removing it take anybody else out.
    let victim = world.register("victim");
    world.fleet.run(["kill", &id]).ok();
    forge(&victim);
    world.fleet.run(["rm", &id]).ok();
    assert_eq!(world.whole_id("victim"), victim);
}
