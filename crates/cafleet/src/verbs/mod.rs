//! The verbs of the command line, one file each, named like the command.
//!
//! A verb reads its arguments, queries the store, and returns an answer. It prints nothing itself.

mod agent_deregister;
mod agent_list;
mod agent_register;
mod agent_show;
mod completions;
mod db_init;
mod deliver_run;
mod doctor;
mod exec_run;
mod man;
mod member_capture;
mod member_create;
mod member_delete;
mod member_exec;
mod member_list;
mod member_ping;
mod member_run;
mod member_send_input;
mod message_ack;
mod message_broadcast;
mod message_cancel;
mod message_deliver;
mod message_poll;
mod message_send;
mod message_show;
mod monitor;
mod monitor_scan;
mod server;
mod session_create;
mod session_delete;
mod session_list;
mod session_show;
mod setup;
mod team;

use crate::answer::VerbAnswer;
use crate::args::{
    AgentCommand, Command, DbCommand, MemberCommand, MessageCommand, MonitorCommand, SessionCommand,
};
use crate::context::VerbContext;
use crate::failure::Failure;

pub(crate) async fn run(context: &mut VerbContext, command: Command) -> Result<VerbAnswer, Failure> {
    match command {
        Command::Session(SessionCommand::Create(args)) => session_create::run(context, &args).await,
        Command::Session(SessionCommand::List(_)) => session_list::run(context).await,
        Command::Session(SessionCommand::Show(args)) => session_show::run(context, &args).await,
        Command::Session(SessionCommand::Delete(args)) => session_delete::run(context, &args).await,
        Command::Agent(AgentCommand::Register(args)) => agent_register::run(context, &args).await,
        Command::Agent(AgentCommand::List(args)) => agent_list::run(context, &args).await,
        Command::Agent(AgentCommand::Show(args)) => agent_show::run(context, &args).await,
        Command::Agent(AgentCommand::Deregister(args)) => agent_deregister::run(context, &args).await,
        Command::Message(MessageCommand::Send(args)) => message_send::run(context, &args).await,
        Command::Message(MessageCommand::Broadcast(args)) => message_broadcast::run(context, &args).await,
        Command::Message(MessageCommand::Poll(args)) => message_poll::run(context, &args).await,
        Command::Message(MessageCommand::Ack(args)) => message_ack::run(context, &args).await,
        Command::Message(MessageCommand::Cancel(args)) => message_cancel::run(context, &args).await,
        Command::Message(MessageCommand::Show(args)) => message_show::run(context, &args).await,
        Command::Message(MessageCommand::Deliver(args)) => message_deliver::run(context, &args).await,
        Command::Member(MemberCommand::Create(args)) => member_create::run(context, &args).await,
        Command::Member(MemberCommand::Delete(args)) => member_delete::run(context, &args).await,
        Command::Member(MemberCommand::List(args)) => member_list::run(context, &args).await,
        Command::Member(MemberCommand::Capture(args)) => member_capture::run(context, &args).await,
        Command::Member(MemberCommand::SendInput(args)) => member_send_input::run(context, &args).await,
        Command::Member(MemberCommand::Exec(args)) => member_exec::run(context, &args).await,
        Command::Member(MemberCommand::Ping(args)) => member_ping::run(context, &args).await,
        Command::Monitor(args) => match args.command {
            Some(MonitorCommand::Scan(_)) => monitor_scan::run(context).await,
            None => monitor::run(context, args.once).await,
        },
        Command::Server(args) => server::run(context, &args).await,
        Command::ExecRun(args) => exec_run::run(context, &args).await,
        Command::MemberRun(args) => member_run::run(context, &args).await,
        Command::DeliverRun => deliver_run::run(context).await,
        Command::Db(DbCommand::Init) => db_init::run(context).await,
        Command::Doctor => doctor::run(context).await,
        Command::Setup(args) => setup::run(context, &args),
        Command::Man(args) => man::run(&args),
        Command::Completions(args) => Ok(completions::run(&args)),
    }
}
