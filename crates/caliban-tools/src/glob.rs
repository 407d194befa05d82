//! Glob: files by name, newest first.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use caliban_core::{access::Access, message::ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    BuiltinTool, CallContext, ToolOutput, Workspace, blocking, error_text, input,
    judged::CallTarget,
    limits::{GLOB_PATHS, SEARCH_TIME, WALK_ENTRIES},
    walk::{self, Bounds, Ignored, PathGlob},
};

pub(crate) struct Glob(pub(crate) Arc<Workspace>);

#[derive(Deserialize)]
struct GlobInput {
    pattern: String,
    #[serde(default, deserialize_with = "input::text")]
    path: Option<String>,
}

impl GlobInput {
    /// What the judgement is kept under.
    fn words(&self) -> String {
        format!("{}\0{}", self.path.as_deref().unwrap_or_default(), self.pattern)
    }
}

/// What to look for and where.
struct Search {
    base: PathBuf,
    glob: PathGlob,
    listing: Listing,
}

/// Whether the pattern asks for the entries of one directory; then its subdirectories are named too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Listing {
    Files,
    OneDirectory,
}

impl Glob {
    fn search(&self, input: &Value) -> Result<(GlobInput, Search), String> {
        let input: GlobInput = input::parse("Glob", input)?;
        let base = match &input.path {
            Some(path) => self.0.absolute(path)?,
            None => self.0.cwd(),
        };
        let (directory, rest) = walk::split_literal(&input.pattern);
        if rest.is_empty() {
            return Err("Glob: the pattern is empty".into());
        }
        // The slash that `split_literal` took away said "not at any depth".
        let rooted = input.pattern.contains('/');
        let listing = if rest == "*" { Listing::OneDirectory } else { Listing::Files };
        let glob = match (rooted, listing) {
            (true, _) | (_, Listing::OneDirectory) => PathGlob::new(&format!("/{rest}"))?,
            (false, Listing::Files) => PathGlob::new(&rest)?,
        };
        let base = base.join(directory).components().collect();
        Ok((input, Search { base, glob, listing }))
    }
}

impl BuiltinTool for Glob {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "Glob".into(),
            description: "Find files by name, newest first (`**/*.rs`, `src/*`). .gitignore is respected."
                .into(),
            input_schema: json!({"type": "object", "properties": {
                "pattern": {"type": "string"},
                "path": {"type": "string", "description": "directory; default: the working directory"}
            }, "required": ["pattern"]}),
        }
    }

    fn access(&self, input: &Value) -> Result<Vec<Access>, String> {
        let (input, search) = self.search(input)?;
        self.0.judged.note(&input.words(), &search.base);
        Ok(vec![Access::Read(search.base)])
    }

    async fn run(&self, input: &Value, call: &CallContext<'_>) -> Result<ToolOutput, String> {
        let (input, mut search) = self.search(input)?;
        let target = self.0.judged.claim(&input.words(), || Ok(search.base.clone()))?;
        search.base = target.path.clone();
        let workspace = self.0.clone();
        let work = move |cancel: &CancellationToken| {
            glob_now(&workspace, &input, &search, &target, cancel).unwrap_or_else(ToolOutput::error)
        };
        Ok(blocking::run(call.cancel, work).await)
    }
}

fn glob_now(
    workspace: &Workspace,
    input: &GlobInput,
    search: &Search,
    target: &CallTarget,
    cancel: &CancellationToken,
) -> Result<ToolOutput, String> {
    let shown = workspace.shown(&search.base);
    let real = target.real(&shown)?;
    if !real.exists() {
        return Err(error_text::missing(&shown, &search.base));
    }
    if !real.is_dir() {
        return Err(format!("{shown} is not a directory"));
    }
    let bounds = Bounds::new(cancel);
    let mut found = find(&real, search, Ignored::Skip, bounds);
    let mut notes = Vec::new();
    if found.paths.is_empty() && !found.stopped {
        found = find(&real, search, Ignored::Include, bounds);
        if !found.paths.is_empty() {
            notes.push("[only files that .gitignore excludes]".to_owned());
        }
    }
    if found.stopped {
        notes.push(format!(
            "[stopped: over {WALK_ENTRIES} entries or more than {} s; name a smaller directory]",
            SEARCH_TIME.as_secs()
        ));
    }
    if found.unreadable > 0 {
        let directories = error_text::counted(found.unreadable, "directory", "directories");
        notes.push(format!("[{directories} could not be read]"));
    }
    let count = error_text::counted(found.paths.len() as u64, "file", "files");
    if found.paths.is_empty() {
        notes.insert(0, format!("no files match {}", input.pattern));
        return Ok(ToolOutput::text(notes.join("\n"), count));
    }
    found.paths.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.path.cmp(&b.path)));
    if found.paths.len() > GLOB_PATHS {
        notes.push(format!(
            "[{GLOB_PATHS} of {} shown, the newest; use a narrower pattern]",
            found.paths.len()
        ));
    }
    let lines: Vec<String> = found
        .paths
        .iter()
        .take(GLOB_PATHS)
        .map(|found| {
            let path = workspace.shown(&search.base.join(&found.path));
            if found.directory { format!("{path}/") } else { path }
        })
        .collect();
    Ok(workspace.output("glob", &lines.join("\n"), &notes, count))
}

struct GlobMatches {
    paths: Vec<FoundPath>,
    stopped: bool,
    unreadable: u64,
}

struct FoundPath {
    path: PathBuf,
    time: SystemTime,
    directory: bool,
}

fn find(base: &Path, search: &Search, ignored: Ignored, bounds: Bounds<'_>) -> GlobMatches {
    let mut found = GlobMatches { paths: Vec::new(), stopped: false, unreadable: 0 };
    let mut builder = walk::walk(base, ignored);
    if search.listing == Listing::OneDirectory {
        builder.max_depth(Some(1));
    }
    for (seen, entry) in builder.build().enumerate() {
        if bounds.cancelled() {
            break;
        }
        if seen >= WALK_ENTRIES || bounds.out_of_time() {
            found.stopped = true;
            break;
        }
        let Ok(entry) = entry else {
            found.unreadable += 1;
            continue;
        };
        let Ok(relative) = entry.path().strip_prefix(base) else { continue };
        if relative.as_os_str().is_empty() || !search.glob.matches(relative) {
            continue;
        }
        // Through a link, so that a link to a file is found and one to a directory is not.
        #[expect(clippy::disallowed_methods, reason = "a link to a file counts as a file; it is not opened")]
        let Ok(meta) = entry.path().metadata() else { continue };
        if meta.is_file() || search.listing == Listing::OneDirectory {
            let time = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            found.paths.push(FoundPath { path: relative.to_owned(), time, directory: meta.is_dir() });
        }
    }
    found
}
