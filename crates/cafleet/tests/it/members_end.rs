//! m10, m12: the end of members with their session or their tmux server, and their recovery.

use std::fs;

use crate::members::Team;
use crate::world::{eventually, ok};

#[test]
fn m12_session_delete_with_members_leaves_no_pane() {
    let team = Team::start(true);
    team.create("polite", &["--", "x"]);
    team.create("asks", &["--", "x"]);
    team.set_mode("%2", "dialog", "proceed?");
    let said = team.tmux.world.run(&["session", "delete", "@S", "--with-members"]);
    assert_eq!(said, ok("Deleted session <S>. Deregistered 5 agents.\n  polite: closed\n  asks: killed"));
    assert_eq!(team.panes(), ["%0"]);
    assert_eq!(team.log_of("%2"), Vec::<String>::new(), "nothing was typed into the dialog");
    assert_eq!(team.log_of("%1"), ["submitted \"/exit\""]);
}

#[test]
fn m12_session_delete_says_that_panes_are_open() {
    let team = Team::start(false);
    team.create("rev", &["--", "x"]);
    let said = team.tmux.world.run(&["session", "delete", "@S"]);
    assert_eq!((said.code, said.out.as_str()), (0, "Deleted session <S>. Deregistered 4 agents.\n"));
    assert_eq!(
        said.err,
        "note: the panes of 1 members are still open; 'cafleet session delete --with-members' closes them first\n"
    );
}

#[test]
fn m10_after_a_lost_tmux_server_doctor_names_the_gone_and_recover_brings_one_back() {
    let mut team = Team::start(false);
    team.create("rev", &["--", "x"]);
    assert_eq!(team.member("create", &["--recover", "@rev"]).code, 1, "it is not gone");
    team.tmux.tmux(&["kill-server"]).status().expect("tmux");
    eventually("the server to end", || {
        let up = team.tmux.tmux(&["display-message", "-p", "up"]).output().expect("tmux");
        (!up.status.success()).then_some(())
    });
    let doctor = team.tmux.world.run(&["doctor"]);
    assert_eq!(doctor.code, 0, "{doctor:?}");
    assert!(doctor.out.contains("trouble: ") && doctor.out.contains("gone: <rev8> rev"), "{doctor:?}");
    team.tmux.world.send("LOST", "bob", "rev", "while it was gone");
    team.tmux.new_server();
    let variable = format!("{},{},0", team.tmux.world.path("tmux.sock").display(), team.tmux.ask("#{pid}"));
    team.tmux.world.set("TMUX", variable);
    team.tmux.agent("claude", "free");
    let doctor = team.tmux.world.run(&["doctor"]).out;
    let gone = "  gone: <rev8> rev (there is no pane %1 any more)\n    bring it back: cafleet --session-id <S> \
                member create --agent-id <D> --recover <rev>\n";
    assert!(doctor.contains(gone), "{doctor}");
    assert!(doctor.contains("deliverer: does not run"), "{doctor}");
    fs::remove_dir_all(team.dir("%1")).expect("remove");
    let said = team.member("create", &["--recover", "@rev"]);
    assert_eq!(
        (said.code, said.out.as_str(), said.err.as_str()),
        (0, "<rev8> rev backend=claude pane=%1\n", "note: the Director's pane was gone, too; it is %0 now\n")
    );
    team.is_free("%1");
    team.tmux.world.run(&["--session-id", "@S", "message", "deliver", "--agent-id", "@D"]);
    assert_eq!(
        team.log_of("%1"),
        ["submitted \"[cafleet msg <LOST8> from <bob8> <ts>]\\nwhile it was gone \""]
    );
    assert!(!team.tmux.world.run(&["doctor"]).out.contains("gone:"));
}
