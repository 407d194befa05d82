//! The terminal UI for a session of our own: `caliban`, `caliban "prompt"`, `caliban --continue` on a terminal.
//!
//! The agent is served over an in-memory stream by the same host as `caliban acp`; the screen is its client.

use std::{
    io::IsTerminal as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use caliban_acp_host::{ServeOptions, Sessions as Served, serve};
use caliban_contract::detached;
use caliban_core::redact::Redactor;
use caliban_tui::{
    FleetView, LeaveReason, Look, Machine, NoticeKind, OnLeave, ProgramLine, ScreenEnd, ScreenFacts,
    ScreenOptions, SessionChoice,
    theme::{Depth, Ground, Theme},
};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    acp::{Editor, Resumes},
    broker::Identity,
    cli::{Cli, Command, agents::AgentsCommand, run::OutputFormat},
    member::Membership,
    report::{Code, Failure, Result, note},
    session_places::Sessions,
    settings::{
        Environment, Layer,
        schema::{Ui, UiNotify, UiOnLeave, UiStart, UiTheme},
        tool_environment::spoken_secrets,
    },
};

/// Bytes that may be on their way between the agent and the screen.
const PIPE_BYTES: usize = 256 * 1024;

/// Whether there is a terminal for the screen.
pub(crate) fn is_possible(environment: &Environment) -> bool {
    let is_dumb = environment.raw("TERM").is_none_or(|term| term == "dumb");
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && !is_dumb
}

/// Whether this command line may open a screen on the terminal that stderr is: a log there would be written over it.
pub(crate) fn takes_terminal(cli: &Cli, environment: &Environment) -> bool {
    let opens = match &cli.command {
        None => cli.run.bg.is_none() && is_wanted(cli, environment),
        Some(Command::Agents(AgentsCommand::Attach(args))) => !args.plain,
        Some(Command::Agents(AgentsCommand::View)) => true,
        Some(_) => false,
    };
    opens && is_possible(environment) && std::io::stderr().is_terminal()
}

/// Whether this command line opens the screen.
pub(crate) fn is_wanted(cli: &Cli, environment: &Environment) -> bool {
    let run = &cli.run;
    let is_plain = run.plain || run.verbose || run.is_print() || run.output_format() != OutputFormat::Text;
    !is_plain && is_possible(environment)
}

/// Whether `caliban` opens the agent view: `ui.start = "agents"`, and neither a prompt nor a session is named.
pub(crate) fn starts_with_agents(cli: &Cli, environment: &Environment, cwd: &Path) -> Result<bool> {
    if cli.run.prompt().is_some()
        || cli.run.member.is_some()
        || cli.run.resume.is_some()
        || cli.run.continue_last
    {
        return Ok(false);
    }
    let loaded = crate::settings::load(environment, cwd, Layer::default())?;
    Ok(loaded.settings.ui.start == UiStart::Agents)
}

/// Opens the screen until the person leaves.
pub(crate) async fn screen(cli: &Cli, environment: &Environment, cwd: &Path) -> Result<Code> {
    cli.agent.check_dirs(cwd)?;
    let cwd = std::path::absolute(cwd)?;
    let root = crate::settings::project_root(&cwd)?;
    let repo_dir = environment.paths()?.repo(&root);
    let open = match cli.run.chooses_session() {
        true => SessionChoice::Ask,
        false => which(cli, &Sessions::new(repo_dir.clone()))?,
    };
    let mailbox = match &cli.run.member {
        Some(id) => Some(Identity::of_member(id, environment, &cwd).await?),
        None => None,
    };
    let (noted, notes) = mpsc::unbounded_channel();
    let factory = Editor {
        flags: cli.agent.clone(),
        environment: environment.clone(),
        append: cli.run.system_prompt_append.clone(),
        noted: Some(noted),
        resumes: Resumes::UnfinishedTurns,
        mailbox: mailbox.clone(),
        before: std::sync::Mutex::default(),
    };
    let sessions = Arc::new(Served::made_by(Arc::new(factory)));
    let membership = mailbox.map(|mailbox| Membership::begin(&mailbox, &sessions)).transpose()?;
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    let (reader, writer) = tokio::io::split(theirs);
    let version = env!("CARGO_PKG_VERSION");
    let server = AbortOnDropHandle::new(tokio::spawn(serve(
        reader,
        writer,
        sessions.clone(),
        ServeOptions::private(version),
    )));
    let (reader, writer) = tokio::io::split(ours);
    let (client, events) = caliban_acp::AcpClient::connect(reader, writer, version)
        .await
        .map_err(|error| Failure::new(crate::compose::chain(&error)))?;
    let view_cwd = cwd.clone();
    let ui = crate::settings::load(environment, &cwd, Layer::default())?.settings.ui;
    let ui = Ui {
        alt_screen: ui.alt_screen && !cli.run.no_alt_screen,
        screen_reader: ui.screen_reader || cli.run.screen_reader,
        ..ui
    };
    let jobs = repo_dir.join(detached::DIRECTORY);
    let options = ScreenOptions {
        facts: ScreenFacts { place: place(&cwd, environment), ..facts(&cwd) },
        theme: theme(environment, &ui),
        look: look(environment, &ui),
        machine: Machine { pictures: Some(repo_dir.join("pasted")), ..machine(environment, &ui) },
        cwd,
        open,
        prompt: cli.run.prompt().map(str::to_owned).filter(|prompt| !prompt.trim().is_empty()),
        history: Some(repo_dir.join("history.jsonl")),
        redactor: Redactor::new(spoken_secrets(environment)),
        notes: Some(notes),
        fleet: Some(fleet_view(environment, &view_cwd)),
    };
    let left = caliban_tui::run(client, events, options).await;
    drop(membership);
    tokio::select! {
        () = sessions.close_all() => {}
        // The screen is gone, and somebody does not want to wait for what still ends.
        () = signalled() => crate::report::give_up(),
    }
    drop(server);
    let left = left.map_err(|error| Failure::new(format!("the terminal cannot be used: {error}")))?;
    let code = ended(&left);
    if let Some(failure) = left.failure {
        return Err(Failure::hinted(failure.message, failure.hint));
    }
    if let Some(farewell) = &left.farewell {
        note(farewell);
    } else if let Some(session) = left.session.as_ref().filter(|_| !left.is_empty) {
        note(&format!("session {session}; `caliban --continue` goes on with it"));
    }
    if let Some(session) = &left.session {
        let running = detached::running_of(&jobs, session);
        if let Some(text) = detached::left_running(&running) {
            note(&text);
        }
    }
    Ok(code)
}

/// Shows the agents of the fleet of this repo, from a session.
fn fleet_view(environment: &Environment, cwd: &Path) -> FleetView {
    let (environment, cwd) = (environment.clone(), cwd.to_owned());
    FleetView(Box::new(move || {
        let (environment, cwd) = (environment.clone(), cwd.clone());
        Box::pin(async move {
            crate::fleet::agent_view(&environment, &cwd).await.map(drop).map_err(|failure| failure.message)
        })
    }))
}

/// What is around the screen.
pub(crate) fn machine(environment: &Environment, ui: &Ui) -> Machine {
    let [copy, paste_text, paste_picture] = clipboard(environment);
    Machine {
        editor: editor(environment),
        shell: shell(environment),
        copy,
        paste_picture,
        paste_text,
        pictures: None,
        notice: notice(environment, ui.notify),
        tells_ground: tells_ground(environment, ui),
    }
}

/// Whether the terminal is asked for its ground: where a setting leaves that open, and colours depend on it.
pub(crate) fn tells_ground(environment: &Environment, ui: &Ui) -> bool {
    let depth = theme(environment, ui).depth;
    ui.theme == UiTheme::Auto && matches!(depth, Depth::True | Depth::Indexed)
}

/// How this terminal tells the person something. In tmux it rings: what it does not know it does not pass on.
pub(crate) fn notice(environment: &Environment, wanted: UiNotify) -> NoticeKind {
    match wanted {
        UiNotify::Auto => {}
        UiNotify::Bell => return NoticeKind::Bell,
        UiNotify::Osc9 => return NoticeKind::Nine,
        UiNotify::Osc777 => return NoticeKind::SevenHundred,
        UiNotify::Off => return NoticeKind::Nothing,
    }
    let value = |name: &str| environment.raw(name).and_then(|value| value.to_str()).unwrap_or_default();
    if environment.raw("TMUX").is_some() {
        return NoticeKind::Bell;
    }
    match (value("TERM_PROGRAM"), value("TERM")) {
        ("iTerm.app" | "WezTerm" | "ghostty", _) => NoticeKind::Nine,
        (_, "xterm-kitty") => NoticeKind::NinetyNine,
        (_, term) if term.starts_with("foot") || term.starts_with("rxvt-unicode") => NoticeKind::SevenHundred,
        _ => NoticeKind::Bell,
    }
}

/// The programs of the clipboard that the person sees: those that take a text, print the text, and print the picture. None
/// over SSH, but for tmux, which asks the terminal.
fn clipboard(environment: &Environment) -> [Vec<ProgramLine>; 3] {
    let has = |name: &str| environment.raw(name).is_some();
    let is_local = !is_remote(environment);
    let all: [(bool, [&str; 3]); 4] = [
        (is_local && cfg!(target_os = "macos"), ["pbcopy", "pbpaste", "pngpaste -"]),
        (
            is_local && has("WAYLAND_DISPLAY"),
            ["wl-copy", "wl-paste --no-newline", "wl-paste --type image/png"],
        ),
        (
            is_local && has("DISPLAY"),
            [
                "xclip -selection clipboard",
                "xclip -selection clipboard -o",
                "xclip -selection clipboard -t image/png -o",
            ],
        ),
        (has("TMUX"), ["tmux load-buffer -w -", "tmux save-buffer -", ""]),
    ];
    [0, 1, 2].map(|which| {
        let lines = all.iter().filter(|(is_there, _)| *is_there).map(|(_, lines)| lines[which]);
        let words = lines.map(|line| line.split_whitespace().map(str::to_owned).collect::<ProgramLine>());
        words.filter(|words| !words.is_empty()).collect()
    })
}

/// Whether the person sits at another machine.
fn is_remote(environment: &Environment) -> bool {
    ["SSH_CONNECTION", "SSH_TTY"].iter().any(|name| environment.raw(name).is_some())
}

/// The person's shell.
fn shell(environment: &Environment) -> PathBuf {
    let shell = environment.raw("SHELL").map(PathBuf::from).filter(|shell| shell.is_absolute());
    shell.unwrap_or_else(|| PathBuf::from("/bin/sh"))
}

/// Ends with the next signal that wants the program to end.
async fn signalled() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()), signal(SignalKind::hangup()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}

/// What is said about how the screen was left, and its exit code.
pub(crate) fn ended(left: &ScreenEnd) -> Code {
    for text in &left.unsent {
        note(&format!("this was not sent: {text}"));
    }
    match left.why {
        LeaveReason::Person => Code::Done,
        LeaveReason::Signal => Code::Interrupted,
        LeaveReason::Panic => Code::Failed,
    }
}

/// The session that is opened.
fn which(cli: &Cli, sessions: &Sessions) -> Result<SessionChoice> {
    let wanted = sessions.wanted(&cli.run, "start one: caliban \"…\"")?;
    Ok(wanted.map_or(SessionChoice::New, |found| SessionChoice::Load(found.id.to_string())))
}

/// What is known of the program and the directory.
pub(crate) fn facts(cwd: &Path) -> ScreenFacts {
    ScreenFacts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        branch: branch(cwd),
        ..ScreenFacts::default()
    }
}

/// The working directory, with `~` for the home directory.
pub(crate) fn place(cwd: &Path, environment: &Environment) -> String {
    let home = environment.raw("HOME").map(PathBuf::from);
    match home.and_then(|home| cwd.strip_prefix(home).ok().map(Path::to_owned)) {
        Some(below) => Path::new("~").join(below).display().to_string(),
        None => cwd.display().to_string(),
    }
}

/// The branch that is checked out, read from the files of git; none where that is not plain to see.
fn branch(cwd: &Path) -> Option<String> {
    let git = cwd.ancestors().map(|dir| dir.join(".git")).find(|git| git.symlink_metadata().is_ok())?;
    let git = if git.is_file() {
        let link = std::fs::read_to_string(&git).ok()?;
        git.parent()?.join(link.strip_prefix("gitdir:")?.trim())
    } else {
        git
    };
    let head = std::fs::read_to_string(git.join("HEAD")).ok()?;
    Some(head.trim().strip_prefix("ref: refs/heads/")?.to_owned())
}

/// The person's editor.
fn editor(environment: &Environment) -> Option<String> {
    let editor = environment.raw("VISUAL").or_else(|| environment.raw("EDITOR"));
    editor.and_then(|editor| editor.to_str()).map(str::to_owned)
}

/// How the screen is used. Emacs has no alternate screen worth the name, and nobody scrolls in that of a screen reader.
pub(crate) fn look(environment: &Environment, ui: &Ui) -> Look {
    let is_emacs = environment.raw("INSIDE_EMACS").is_some();
    let is_alternate = ui.alt_screen && !ui.screen_reader && !is_emacs && !is_control_mode(environment);
    Look {
        is_alternate,
        has_mouse: ui.mouse && is_alternate,
        wheel_rows: ui.wheel_rows.get(),
        copy_on_select: ui.copy_on_select,
        on_leave: match ui.on_leave {
            UiOnLeave::Ask => OnLeave::Ask,
            UiOnLeave::Keep => OnLeave::Keep,
            UiOnLeave::End => OnLeave::End,
        },
    }
}

/// Whether this is a pane of `tmux -CC`, which the terminal draws itself.
fn is_control_mode(environment: &Environment) -> bool {
    environment.raw("TMUX").is_some()
        && std::process::Command::new("tmux")
            .args(["display-message", "-p", "#{client_control_mode}"])
            .stderr(std::process::Stdio::null())
            .output()
            .is_ok_and(|output| output.stdout.trim_ascii() == b"1")
}

/// The settings of the screen; a mistake in them keeps nobody from seeing what runs.
pub(crate) fn ui(environment: &Environment, cwd: &Path) -> Ui {
    crate::settings::load(environment, cwd, Layer::default())
        .map(|loaded| loaded.settings.ui)
        .unwrap_or_default()
}

/// As many colours as the terminal says it has, and its ground where it says that.
pub(crate) fn theme(environment: &Environment, ui: &Ui) -> Theme {
    let has = |name: &str, words: &[&str]| {
        let value = environment.raw(name).and_then(|value| value.to_str()).unwrap_or_default();
        words.iter().any(|word| value.contains(word))
    };
    let depth = if ui.screen_reader {
        Depth::Words
    } else if environment.raw("NO_COLOR").is_some() {
        Depth::None
    } else if has("COLORTERM", &["truecolor", "24bit"]) {
        Depth::True
    } else if has("TERM", &["256color", "kitty", "alacritty", "ghostty"]) {
        Depth::Indexed
    } else {
        Depth::Sixteen
    };
    // `COLORFGBG` is "letters;ground": 7 and 15 are light.
    let colours = environment.raw("COLORFGBG").and_then(|value| value.to_str()).unwrap_or_default();
    let is_light = matches!(colours.rsplit(';').next(), Some("7" | "15"));
    let ground = match ui.theme {
        UiTheme::Light => Ground::Light,
        UiTheme::Dark => Ground::Dark,
        UiTheme::Auto if is_light => Ground::Light,
        UiTheme::Auto => Ground::Dark,
    };
    Theme { depth, ground }
}
