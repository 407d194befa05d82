//! Makes one worktree as an agent's is made, for `cargo xtask bench worktree`: `create REPO NAME [BASE_REF]`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::path::Path;
use std::process::ExitCode;

use caliban_core::names::Slug;
use caliban_worktrees::{BaseRef, CreateRequest, GitOptions, Repo};
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match made(&args).await {
        Ok(path) => {
            println!("{path}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

async fn made(args: &[String]) -> Result<String, String> {
    let [repo, name, base @ ..] = args else { return Err("usage: create REPO NAME [BASE_REF]".to_owned()) };
    let name = Slug::parse(name).map_err(|error| error.to_string())?;
    let base_ref = base.first().cloned().map(BaseRef::from).unwrap_or_default();
    let cancel = CancellationToken::new();
    let repo = Repo::open(Path::new(repo), GitOptions::default(), &cancel).await;
    let repo = repo.map_err(|error| error.to_string())?;
    let request = CreateRequest { base_ref, ..CreateRequest::new(name) };
    let made = repo.create(request, &|_| {}, &cancel).await.map_err(|error| error.to_string())?;
    Ok(made.created.path.display().to_string())
}
