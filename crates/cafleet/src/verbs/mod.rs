//! The verbs of the command line, one file each, named like the command.
//!
//! A verb reads its arguments, asks the store, and answers. It prints nothing itself.

mod agent_deregister;
mod agent_list;
mod agent_register;
mod agent_show;
mod completions;
mod db_init;
mod doctor;
mod man;
mod message_ack;
mod message_broadcast;
mod message_cancel;
mod message_deliver;
mod message_poll;
mod message_send;
mod message_show;
mod session_create;
mod session_delete;
mod session_list;
mod session_show;
mod setup;

use crate::answer::Answer;
use crate::args::{AgentCommand, Command, DbCommand, MessageCommand, SessionCommand};
use crate::context::Context;
use crate::failure::Failure;

pub(crate) async fn run(context: &mut Context, command: Command) -> Result<Answer, Failure> {
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
        Command::Db(DbCommand::Init) => db_init::run(context).await,
        Command::Doctor => doctor::run(context).await,
        Command::Setup(args) => setup::run(context, &args),
        Command::Man(args) => man::run(&args),
        Command::Completions(args) => Ok(completions::run(&args)),
    }
}
