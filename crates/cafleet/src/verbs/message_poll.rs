//! `message poll`: the messages that wait for an agent, now or within some seconds.

use std::time::Duration;

use caliban_store::Stamp;
use caliban_store::broker::{DEFAULT_PAGE, MailboxScope, PollQuery};

use crate::answer::VerbAnswer;
use crate::args::MessagePollArgs;
use crate::context::VerbContext;
use crate::failure::Failure;
use crate::render::json::Style;
use crate::render::task::StateShown;
use crate::render::{self, Detail};
use crate::usage;

pub(crate) async fn run(context: &mut VerbContext, args: &MessagePollArgs) -> Result<VerbAnswer, Failure> {
    let detail = Detail::choose(args.full, context.settings.max_text_len);
    let since = args
        .since
        .as_deref()
        .map(Stamp::parse)
        .transpose()
        .map_err(|error| usage::invalid_value(&["message", "poll"], "--since", &format!("{error}.")))?;
    let agent = context.reading(&args.agent_id).await?;
    let query = PollQuery {
        agent: agent.id,
        scope: if args.all { MailboxScope::All } else { MailboxScope::Open },
        since,
        after: args.after,
        page_size: args.page_size.unwrap_or(DEFAULT_PAGE),
    };
    let broker = context.broker().await?;
    let page = match args.wait {
        None => broker.poll(&query).await?,
        Some(seconds) => broker.wait(&query, Duration::from_secs(u64::from(seconds))).await?,
    };
    // A page that the caller limited needs no note; one that our default cut does.
    let cut = page.more && args.page_size.is_none();
    let note = cut.then(|| format!("there are more than {DEFAULT_PAGE}; walk through them with --after SEQ"));
    let write = move |style| match style {
        Style::Text if page.tasks.is_empty() => "No messages found.".to_owned(),
        Style::Text => {
            let blocks = page.tasks.iter().map(|task| render::task::text(task, detail, StateShown::IfEnded));
            blocks.collect::<Vec<_>>().join("\n\n")
        }
        style => {
            let tasks: Vec<_> = page.tasks.iter().map(|task| render::task::shown(task, detail)).collect();
            render::json::write(&tasks, style)
        }
    };
    Ok(VerbAnswer::large(write).note(note))
}
