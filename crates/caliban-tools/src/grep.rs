//! Grep: lines by regular expression, with ripgrep's libraries.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use caliban_core::{access::Access, message::ToolSpec};
use caliban_rooted::real_path;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use ignore::types::{Types, TypesBuilder};
use rustix::fs::{FileType, Stat};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    BuiltinTool, CallContext, ToolOutput, Workspace, blocking, error_text,
    grep::search::{FileHits, Hits, Search},
    input,
    judged::CallTarget,
    limits::{GREP_LINES, SEARCH_TIME, WALK_ENTRIES},
    walk::{Bounds, Ignored, PathGlob},
};

mod search;

/// Lines of context that a call may ask for.
const CONTEXT_MAX: u64 = 100;
/// How long ignored files are searched when there is no match in the others.
const IGNORED_TIME: Duration = Duration::from_secs(2);
/// Ignored files that are named.
const IGNORED_NAMED: usize = 3;

pub(crate) struct Grep(pub(crate) Arc<Workspace>);

#[derive(Deserialize)]
struct GrepInput {
    pattern: String,
    #[serde(default, deserialize_with = "input::text")]
    path: Option<String>,
    #[serde(default, deserialize_with = "input::text")]
    glob: Option<String>,
    #[serde(default, rename = "type", deserialize_with = "input::text")]
    file_type: Option<String>,
    #[serde(default)]
    output_mode: Option<GrepMode>,
    #[serde(default, rename = "-i", deserialize_with = "input::flag")]
    ignore_case: bool,
    #[serde(default = "yes", rename = "-n", deserialize_with = "input::flag")]
    line_numbers: bool,
    #[serde(default, rename = "-A", deserialize_with = "input::number")]
    after: Option<u64>,
    #[serde(default, rename = "-B", deserialize_with = "input::number")]
    before: Option<u64>,
    #[serde(default, rename = "-C", deserialize_with = "input::number")]
    context: Option<u64>,
    #[serde(default, deserialize_with = "input::flag")]
    multiline: bool,
    #[serde(default, deserialize_with = "input::number")]
    head_limit: Option<u64>,
}

impl GrepInput {
    /// Who asks for lines of context wants to see lines.
    fn mode(&self) -> GrepMode {
        let context = self.before.or(self.after).or(self.context).is_some();
        self.output_mode.unwrap_or(if context { GrepMode::Content } else { GrepMode::FilesWithMatches })
    }

    /// What the judgement is kept under; the empty path is the working directory.
    fn words(&self) -> &str {
        self.path.as_deref().unwrap_or_default()
    }
}

fn yes() -> bool {
    true
}

/// What is returned of a file with matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum GrepMode {
    FilesWithMatches,
    Content,
    Count,
}

impl Grep {
    fn base(&self, input: &GrepInput) -> Result<PathBuf, String> {
        match &input.path {
            Some(path) => self.0.absolute(path),
            None => Ok(self.0.cwd()),
        }
    }
}

impl BuiltinTool for Grep {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "Grep".into(),
            description: "Search file contents with a regular expression (ripgrep). .gitignore is respected. Use this, \
                not grep in Bash."
                .into(),
            input_schema: json!({"type": "object", "properties": {
                "pattern": {"type": "string"},
                "path": {"type": "string", "description": "file or directory"},
                "glob": {"type": "string", "description": "e.g. *.{ts,tsx}"},
                "type": {"type": "string", "description": "e.g. rust, py"},
                "output_mode": {"type": "string", "enum": ["files_with_matches", "content", "count"],
                    "description": "default files_with_matches"},
                "-i": {"type": "boolean"},
                "-n": {"type": "boolean", "description": "line numbers, default true"},
                "-A": {"type": "integer"}, "-B": {"type": "integer"}, "-C": {"type": "integer"},
                "multiline": {"type": "boolean", "description": "matches may span lines"},
                "head_limit": {"type": "integer", "description": format!("lines returned, default {GREP_LINES}")}
            }, "required": ["pattern"]}),
        }
    }

    fn access(&self, input: &Value) -> Result<Vec<Access>, String> {
        let input: GrepInput = input::parse("Grep", input)?;
        let base = self.base(&input)?;
        self.0.judged.note(input.words(), &base);
        Ok(vec![Access::Read(base)])
    }

    async fn run(&self, input: &Value, call: &CallContext<'_>) -> Result<ToolOutput, String> {
        let input: GrepInput = input::parse("Grep", input)?;
        let target = self.0.judged.claim(input.words(), || self.base(&input))?;
        let workspace = self.0.clone();
        let work = move |cancel: &CancellationToken| {
            grep_now(&workspace, &input, &target, cancel).unwrap_or_else(ToolOutput::error)
        };
        Ok(blocking::run(call.cancel, work).await)
    }
}

fn grep_now(
    workspace: &Workspace,
    input: &GrepInput,
    target: &CallTarget,
    cancel: &CancellationToken,
) -> Result<ToolOutput, String> {
    let base = &target.path;
    let shown = workspace.shown(base);
    let real = target.real(&shown)?;
    let kind = |found: &Stat| FileType::from_raw_mode(found.st_mode);
    match real_path::stat(&real) {
        Ok(None) => return Err(error_text::missing(&shown, base)),
        Ok(Some(found)) if !matches!(kind(&found), FileType::Directory | FileType::RegularFile) => {
            return Err(format!("{shown} is a pipe, a socket or a device, not a file"));
        }
        // What cannot be looked at cannot be searched either, which the search says.
        Ok(Some(_)) | Err(_) => {}
    }
    let around = |lines: Option<u64>| lines.or(input.context).unwrap_or(0).min(CONTEXT_MAX) as usize;
    let search = Search {
        base: real,
        matcher: matcher(input)?,
        glob: input.glob.as_deref().map(PathGlob::new).transpose()?,
        off_limits: workspace.off_limits(),
        types: input.file_type.as_deref().map(types).transpose()?,
        multiline: input.multiline,
        lines: input.mode() == GrepMode::Content,
        first_only: input.mode() == GrepMode::FilesWithMatches,
        before: around(input.before),
        after: around(input.after),
    };
    let bounds = Bounds::new(cancel);
    let mut hits = search.run(Ignored::Skip, bounds);
    if hits.files.is_empty() && !hits.stopped {
        let search = Search { lines: false, first_only: true, ..search };
        hits.ignored = search.run(Ignored::Include, bounds.within(IGNORED_TIME)).files;
    }
    Ok(told(workspace, input, base, hits))
}

/// That there are matches in files that are not searched, when there are.
fn ignored_note(files: &mut [FileHits], path_of: impl Fn(&Path) -> String) -> Option<String> {
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let names: Vec<String> = files.iter().take(IGNORED_NAMED).map(|file| path_of(&file.path)).collect();
    let more = if files.len() > names.len() { ", …" } else { "" };
    let count = error_text::counted(files.len() as u64, "file", "files");
    let text =
        format!("[matches in {count} that .gitignore excludes: {}{more}; give the path]", names.join(", "));
    (!names.is_empty()).then_some(text)
}

fn matcher(input: &GrepInput) -> Result<RegexMatcher, String> {
    let mut builder = RegexMatcherBuilder::new();
    builder.case_insensitive(input.ignore_case).multi_line(true);
    if input.multiline {
        builder.dot_matches_new_line(true);
    } else {
        builder.line_terminator(Some(b'\n'));
    }
    builder.build(&input.pattern).map_err(|error| {
        let hint = if input.pattern.contains("\\n") && !input.multiline {
            "set multiline to match line ends"
        } else {
            "escape characters that are meant literally, such as \\{ \\( \\["
        };
        format!("Grep: not a valid regular expression: {error}\n{hint}")
    })
}

fn types(name: &str) -> Result<Types, String> {
    let mut builder = TypesBuilder::new();
    builder.add_defaults();
    builder.select(name);
    builder
        .build()
        .map_err(|_| format!("Grep: unknown file type `{name}`; use glob instead, such as *.{name}"))
}

fn told(workspace: &Workspace, input: &GrepInput, base: &Path, mut hits: Hits) -> ToolOutput {
    let mode = input.mode();
    let mut notes = Vec::new();
    if hits.stopped {
        notes.push(format!(
            "[stopped: over {WALK_ENTRIES} entries, too many matches or more than {} s; narrow the search]",
            SEARCH_TIME.as_secs()
        ));
    }
    if hits.unreadable > 0 {
        let files = error_text::counted(hits.unreadable, "file", "files");
        notes.push(format!("[{files} could not be searched (unreadable, or lines too long)]"));
    }
    let files = error_text::counted(hits.files.len() as u64, "file", "files");
    let matches: u64 = hits.files.iter().map(|file| file.count).sum();
    let path_of = |relative: &Path| {
        if relative.as_os_str().is_empty() {
            workspace.shown(base)
        } else {
            workspace.shown(&base.join(relative))
        }
    };
    if hits.files.is_empty() {
        notes.insert(0, "no matches".into());
        notes.extend(ignored_note(&mut hits.ignored, path_of));
        return ToolOutput::text(notes.join("\n"), "no matches");
    }
    match mode {
        GrepMode::FilesWithMatches => {
            hits.files.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.path.cmp(&b.path)));
        }
        GrepMode::Content | GrepMode::Count => hits.files.sort_by(|a, b| a.path.cmp(&b.path)),
    }
    let mut lines: Vec<String> = Vec::new();
    for file in &hits.files {
        let path = path_of(&file.path);
        match mode {
            GrepMode::FilesWithMatches => lines.push(path),
            GrepMode::Count => lines.push(format!("{path}:{}", file.count)),
            GrepMode::Content => {
                let context = input.before.or(input.after).or(input.context).unwrap_or(0) > 0;
                if context && !lines.is_empty() {
                    lines.push("--".into());
                }
                lines.extend(file.lines.iter().map(|line| line.shown(&path, input.line_numbers)));
            }
        }
    }
    let limit = match input.head_limit {
        None => GREP_LINES,
        Some(0) => usize::MAX,
        Some(limit) => usize::try_from(limit).unwrap_or(usize::MAX),
    };
    if lines.len() > limit {
        notes.push(format!("[{limit} of {} lines; narrow the search or raise head_limit]", lines.len()));
        lines.truncate(limit);
    }
    let summary = match mode {
        GrepMode::FilesWithMatches => files,
        GrepMode::Content | GrepMode::Count => {
            format!("{} in {files}", error_text::counted(matches, "match", "matches"))
        }
    };
    workspace.output("grep", &lines.join("\n"), &notes, summary)
}
