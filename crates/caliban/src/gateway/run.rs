//! `caliban gateway run`: one program behind a gateway of its own. Its token is nowhere but in its environment, and ends with it.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    process::{ExitCode, ExitStatus},
};

use caliban_contract::modes;
use caliban_gateway::{Keys, Token};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{
    above, bind, new_token,
    programs::{Lead, name_of},
};
use crate::{
    cli::gateway::RunArgs,
    report::{Code, Failure, Result},
    settings::{Environment, Loaded},
};

pub(super) async fn run(args: &RunArgs, loaded: &Loaded, environment: &Environment) -> Result<Code> {
    let Some((program, arguments)) = args.program.split_first() else {
        return Err(Failure::usage("no program is named"));
    };
    let label = args.label.clone().unwrap_or_else(|| name_of(program));
    let (token, text) = Token::make(new_token(&label, &args.budget, above()?, loaded))?;
    let gateway = bind(0, args.max_wait, Keys::One(Box::new(token)), loaded, environment).await?;
    // It does not outlive us, however we end: nobody would count what it spends, and its token is worth nothing.
    let mut command = Command::new(crate::compose::own_program()?);
    command.arg(modes::WITH_PARENT).arg(std::process::id().to_string()).arg(program);
    let lead = Lead::of(program, gateway.address(), &text);
    command.args(lead.arguments).args(arguments).envs(lead.set);
    for name in lead.unset {
        command.env_remove(name);
    }
    // The token goes to no proxy.
    for name in ["NO_PROXY", "no_proxy"] {
        let mut hosts = OsString::from("127.0.0.1,localhost");
        if let Some((_, own)) = environment.iter().find(|(known, own)| *known == name && !own.is_empty()) {
            hosts.push(",");
            hosts.push(own);
        }
        command.env(name, hosts);
    }
    let child = command.spawn().map_err(|error| cannot_run(program, &error))?;
    let stop = CancellationToken::new();
    let ended = async {
        let ended = wait(child).await;
        stop.cancel();
        ended
    };
    let (ended, ()) = tokio::join!(ended, gateway.serve(stop.clone()));
    Ok(Code::OfProgram(code(ended?)))
}

fn cannot_run(program: &OsStr, error: &io::Error) -> Failure {
    Failure::new(format!("cannot run {}: {error}", program.to_string_lossy()))
        .hint("a program that is not in PATH needs its whole path")
}

/// Runs the mode of [`modes::WITH_PARENT`]: becomes the program, which is asked to end when the process that started us
/// does.
pub(crate) fn with_parent_main(arguments: &[OsString]) -> ExitCode {
    let [parent, program, rest @ ..] = arguments else { return ExitCode::from(2) };
    let asked = rustix::process::set_parent_process_death_signal(Some(Signal::TERM));
    let is_there = rustix::process::getppid().is_some_and(|pid| parent == pid.to_string().as_str());
    if asked.is_err() || !is_there {
        return ExitCode::FAILURE;
    }
    let error = std::process::Command::new(program).args(rest).exec();
    cannot_run(program, &error).show();
    ExitCode::FAILURE
}

/// Waits for the program. What ends us is passed on to it; an interrupt of the terminal reaches it by itself.
async fn wait(mut child: Child) -> Result<ExitStatus> {
    let (mut terminate, mut hangup, mut interrupt, mut quit) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::hangup())?,
        signal(SignalKind::interrupt())?,
        signal(SignalKind::quit())?,
    );
    let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    loop {
        let passed_on = tokio::select! {
            ended = child.wait() => return Ok(ended?),
            _ = terminate.recv() => Signal::TERM,
            _ = hangup.recv() => Signal::HUP,
            _ = interrupt.recv() => continue,
            _ = quit.recv() => continue,
        };
        if let Some(pid) = pid {
            // Not reaped before `wait` has returned: the pid is still its own.
            let _it_may_have_ended = kill_process(pid, passed_on);
        }
    }
}

/// The program's own code, or 128 and the signal that ended it, as a shell has it.
fn code(status: ExitStatus) -> u8 {
    let number = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(number).unwrap_or(1)
}
