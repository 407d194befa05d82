//! Runs one command in an agent's worktree as the agent would, with its private git: `private-git REPO NAME COMMAND`. The
//! command is a line for `sh`. With `--publish` in its place, what an earlier one left is published.

#![expect(clippy::print_stderr, reason = "a program for people")]

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use caliban_core::fence::Profile;
use caliban_core::names::Slug;
use caliban_fence::{Access, ByteText, Fence, Fenced, FencedCommand};
use caliban_worktrees::{GitOptions, Repo};
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if args.first().is_some_and(|mode| mode == caliban_contract::modes::FENCE) {
        return caliban_fence::fence_main(&args[1..]);
    }
    let args: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    match run(&args) {
        Ok(code) => ExitCode::from(code),
        Err(problem) => {
            eprintln!("private-git: {problem}");
            ExitCode::from(124)
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn run(args: &[String]) -> Result<u8, String> {
    let [repo, name, line] = args else { return Err("usage: private-git REPO NAME COMMAND".to_owned()) };
    let name = Slug::parse(name).map_err(|error| error.to_string())?;
    let helper = std::env::current_exe().map_err(|error| error.to_string())?;
    let (cancel, root) = (CancellationToken::new(), Path::new(repo));
    let repo = Repo::open(root, GitOptions::default(), &cancel).await.map_err(|error| error.to_string())?;
    let git = repo.private_git(&name, &helper, &cancel).await.map_err(|error| error.to_string())?;
    let git = Arc::new(git);
    if line == "--publish" {
        git.settle().map_err(|error| error.to_string())?.iter().for_each(|note| eprintln!("{note}"));
        return Ok(0);
    }
    let tree = repo.path_of(&name);
    let home = std::env::home_dir().unwrap_or_default();
    let mut fence = Fence::new(Profile::Edit, &home);
    let shown = [(home.join(".gitconfig"), Access::ReadOnly), (root.to_owned(), Access::ReadOnly)];
    let git_file = tree.join(".git");
    let more = [
        (repo.common_dir().to_owned(), Access::ReadOnly),
        (tree.clone(), Access::ReadWrite),
        (git_file, Access::ReadOnly),
    ];
    for (place, access) in shown.into_iter().chain(more) {
        if let Ok(place) = caliban_rooted::Root::pin(&place) {
            fence.show(&place, access);
        }
    }
    let (fence, steps) = Fenced { fence, around: vec![git.around()], again: None }.begin()?;
    #[expect(clippy::disallowed_methods, reason = "the command has the environment of whoever runs this")]
    let variables = std::env::vars_os();
    let order = FencedCommand {
        fence,
        program: ByteText::from("sh"),
        arguments: vec![ByteText::from("-c"), ByteText::from(line.as_str())],
        directory: ByteText::from(tree),
        environment: variables
            .map(|(name, value)| (ByteText::from(name.as_os_str()), ByteText::from(value.as_os_str())))
            .collect(),
        descriptors: Vec::new(),
    };
    let (mut command, order) = order.command(&helper).map_err(|error| error.to_string())?;
    let status = command.status().map_err(|error| error.to_string())?;
    drop(order);
    steps.finish().iter().for_each(|note| eprintln!("{note}"));
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(123))
}
