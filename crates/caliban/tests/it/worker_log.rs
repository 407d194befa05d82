//! `worker.log`: nothing is written there that may not be on the disk (a12).

use testkit::{script, text};

use crate::fleet::Fleet;

const CANARY: &str = "canary-jira-7c1e0f";

#[test]
fn a12_what_an_mcp_server_says_of_its_token_is_not_in_the_log_of_the_worker() {
    let mut fleet = Fleet::new(script![text("done")]);
    fleet.place.env.set("JIRA_TOKEN", CANARY);
    fleet.settings(
        "[mcp.servers.jira]\ncommand = \"sh\"\nargs = [\"-c\", \"echo bad token $T >&2; exit 1\"]\n\
         env = { T = \"${JIRA_TOKEN}\" }\n",
    );
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    let log = fleet.run(["logs", &id, "--raw"]).ok().stdout;
    assert!(log.contains("the MCP server jira is left out"), "{log}");
    assert!(log.contains("bad token [redacted:JIRA_TOKEN]"), "{log}");
    assert!(!log.contains(CANARY), "{log}");
}

#[test]
fn a12_why_an_agent_could_not_begin_is_told_without_secrets() {
    let mut fleet = Fleet::new(script![text("done")]);
    fleet.place.env.set("JIRA_TOKEN", CANARY);
    // The command that sets a worktree up fails, and says with what.
    fleet.settings(
        "[worktrees]\nsetup = \"cat /dev/null; echo no entry for $(cat secret.txt) >&2; exit 3\"\n\
         [mcp.servers.jira]\ncommand = \"false\"\nenv = { T = \"${JIRA_TOKEN}\" }\n",
    );
    fleet.place.env.write(fleet.place.repo.join("secret.txt"), CANARY);
    fleet.place.env.git(&fleet.place.repo, &["add", "secret.txt"]);
    fleet.place.env.git(&fleet.place.repo, &["commit", "-qm", "secret"]);
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).expect_code(1);
    let log = fleet.run(["logs", &id, "--raw"]).ok().stdout;
    let row = fleet.row(&id).to_string();
    assert!(log.contains("no entry for [redacted:JIRA_TOKEN]"), "{log}");
    assert!(row.contains("no entry for [redacted:JIRA_TOKEN]"), "{row}");
    assert!(!log.contains(CANARY) && !row.contains(CANARY), "{log}\n{row}");
}
