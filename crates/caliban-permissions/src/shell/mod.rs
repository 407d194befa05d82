//! Takes a command line apart: every command that it would run, every file that it would redirect to or
//! from, and every reason why that list may be incomplete.
//!
//! It decides nothing and runs nothing. Whatever it does not understand becomes a doubt, never silence.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use brush_parser::{
    Parser, ParserOptions,
    ast::{
        AndOr, AndOrList, Assignment, AssignmentName, AssignmentValue, Command,
        CommandPrefixOrSuffixItem as Item, CompoundCommand, CompoundList, CompoundListItem, ExtendedTestExpr,
        IoFileRedirectKind as Kind, IoFileRedirectTarget as Target, IoHereDocument, IoRedirect, Pipeline,
        RedirectList, SeparatorOperator, SimpleCommand, Word as AstWord,
    },
};

mod bounds;
pub(crate) mod dialect;
mod variables;
pub(crate) mod word;
pub(crate) mod wrappers;

use self::{
    dialect::Dialect,
    variables::Influence,
    word::{QuoteContext, Word, scan},
};
use crate::path::normalise;

/// All that a line would do.
#[derive(Debug, Default)]
pub(crate) struct Analysis {
    pub(crate) runs: Vec<ParsedCommand>,
    pub(crate) files: Vec<FileUse>,
    /// Why the two lists may be incomplete.
    pub(crate) doubts: Vec<String>,
    /// Whether variables are set, but for those that only change output.
    pub(crate) assigns: bool,
}

impl Analysis {
    /// It, and all that its wrappers run.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Self> {
        let mut found = vec![self];
        let mut at = 0;
        while let Some(part) = found.get(at) {
            let inner = part.runs.iter().filter_map(|run| run.inner.as_ref()).map(|inner| &inner.analysis);
            found.extend(inner.collect::<Vec<_>>());
            at += 1;
        }
        found.into_iter()
    }
}

/// One simple command.
#[derive(Debug)]
pub(crate) struct ParsedCommand {
    /// The name and its arguments.
    pub(crate) words: Vec<Word>,
    /// The directories in which it may run; none when that cannot be known.
    pub(crate) directories: Option<Vec<PathBuf>>,
    /// What it runs in turn (`env`, `timeout`, `sh -c`).
    pub(crate) inner: Option<WrappedCommand>,
}

/// What a wrapper runs.
#[derive(Debug)]
pub(crate) struct WrappedCommand {
    pub(crate) trust: WrapperTrust,
    pub(crate) analysis: Analysis,
}

/// What follows from the inner command being allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrapperTrust {
    /// The wrapper adds nothing: it is allowed with it.
    Transparent,
    /// The wrapper needs a rule of its own (`sudo`, `eval`); the inner command can only forbid.
    Opaque,
}

/// How the name of a command was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WrittenName {
    /// As it is, in front.
    Bare,
    /// Quoted, or behind a wrapper.
    Otherwise,
}

/// A redirection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileUse {
    Read(PathBuf),
    Write(PathBuf),
}

/// Builtins that set the variables that they are given.
const DECLARING: &[&str] = &["declare", "typeset", "local", "export", "readonly"];

/// Builtins that take a word for a variable's name or for arithmetic, and expand what is in its brackets, besides those.
const EVALUATING: &[&str] =
    &["let", "read", "printf", "unset", "test", "[", "mapfile", "readarray", "getopts", "wait"];

/// Substitutions and `sh -c` inside each other.
const MAX_LEVELS: usize = 6;
/// Commands in one line, with all that they contain.
const MAX_RUNS: usize = 500;
/// Directories that `cd` may have led to.
const MAX_DIRECTORIES: usize = 8;

pub(crate) fn analyse(line: &str, cwd: &Path, home: &Path, dialect: Dialect) -> Analysis {
    let mut walk = Walk {
        home,
        dialect,
        ascii: line.is_ascii(),
        level: 0,
        count: 0,
        directories: Some(vec![normalise(cwd)]),
        found: Analysis::default(),
    };
    walk.line(line);
    walk.found
}

struct Walk<'a> {
    home: &'a Path,
    /// Who reads the line that is looked at.
    dialect: Dialect,
    /// Whether the whole line has no other characters.
    ascii: bool,
    level: usize,
    count: usize,
    directories: Option<Vec<PathBuf>>,
    found: Analysis,
}

impl Walk<'_> {
    fn doubt(&mut self, why: impl Into<String>) {
        let why = why.into();
        if !self.found.doubts.contains(&why) {
            self.found.doubts.push(why);
        }
    }

    fn line(&mut self, line: &str) {
        if self.level > MAX_LEVELS {
            return self.doubt("commands nested too deep");
        }
        let judged = bounds::check(line).and_then(|()| self.dialect.check(line));
        if let Err(why) = judged.and_then(|()| word::balanced(line)) {
            return self.doubt(why);
        }
        // Extended globs are off in a shell that runs a line.
        let options = ParserOptions { enable_extended_globbing: false, ..ParserOptions::default() };
        let parsed =
            catch_unwind(AssertUnwindSafe(|| Parser::new(line.as_bytes(), &options).parse_program()));
        match parsed {
            Ok(Ok(program)) => program.complete_commands.iter().for_each(|list| self.list(list)),
            Ok(Err(_)) | Err(_) => self.doubt("it cannot be parsed"),
        }
    }

    /// What runs in a shell of its own: what it does to the directory ends with it.
    fn apart(&mut self, walk: impl FnOnce(&mut Self)) {
        let before = self.directories.clone();
        walk(self);
        self.directories = before;
    }

    fn list(&mut self, list: &CompoundList) {
        for CompoundListItem(and_or, separator) in &list.0 {
            match separator {
                SeparatorOperator::Async => self.apart(|walk| walk.and_or(and_or)),
                SeparatorOperator::Sequence => self.and_or(and_or),
            }
        }
    }

    fn and_or(&mut self, list: &AndOrList) {
        // The list may have stopped after any of its pipelines, or before the first, so every directory is possible.
        let mut ends = self.directories.clone();
        self.pipeline(&list.first);
        // Behind `&&` alone everything before has succeeded, a `cd` as well.
        let mut sure = !list.first.bang;
        for next in &list.additional {
            let (AndOr::And(pipeline) | AndOr::Or(pipeline)) = next;
            sure &= matches!(next, AndOr::And(_));
            ends = either(self.directories.clone(), ends);
            if !sure {
                self.directories = ends.clone();
            }
            self.pipeline(pipeline);
            sure &= !pipeline.bang;
        }
        self.directories = either(self.directories.take(), ends);
    }

    fn pipeline(&mut self, pipeline: &Pipeline) {
        match pipeline.seq.as_slice() {
            [command] => self.command(command),
            several => several.iter().for_each(|command| self.apart(|walk| walk.command(command))),
        }
    }

    fn command(&mut self, command: &Command) {
        match command {
            Command::Simple(simple) => self.simple(simple),
            Command::Compound(compound, redirects) => {
                self.redirects(redirects.as_ref());
                self.compound(compound);
            }
            Command::Function(function) => {
                // It is unknown when the function is called, and so in which directory it runs.
                self.directories = None;
                self.redirects(function.body.1.as_ref());
                self.compound(&function.body.0);
                self.directories = None;
            }
            Command::ExtendedTest(test, redirects) => {
                self.redirects(redirects.as_ref());
                self.test(&test.expr);
            }
        }
    }

    fn compound(&mut self, compound: &CompoundCommand) {
        match compound {
            CompoundCommand::Arithmetic(_) | CompoundCommand::ArithmeticForClause(_) => {
                self.doubt("arithmetic with variables can run commands");
                if let CompoundCommand::ArithmeticForClause(clause) = compound {
                    self.list(&clause.body.list);
                }
            }
            CompoundCommand::BraceGroup(group) => self.list(&group.list),
            CompoundCommand::Subshell(subshell) => self.apart(|walk| walk.list(&subshell.list)),
            CompoundCommand::ForClause(clause) => {
                self.assigned(&clause.variable_name);
                clause.values.iter().flatten().for_each(|word| {
                    self.word(word);
                });
                self.repeated(&[&clause.body.list]);
            }
            CompoundCommand::CaseClause(clause) => {
                self.word(&clause.value);
                for case in &clause.cases {
                    case.patterns.iter().for_each(|word| {
                        self.word(word);
                    });
                    let before = self.directories.clone();
                    case.cmd.iter().for_each(|list| self.list(list));
                    self.directories = either(self.directories.take(), before);
                }
            }
            CompoundCommand::IfClause(clause) => {
                self.list(&clause.condition);
                self.list(&clause.then);
                for branch in clause.elses.iter().flatten() {
                    branch.condition.iter().for_each(|list| self.list(list));
                    self.list(&branch.body);
                }
            }
            CompoundCommand::WhileClause(clause) | CompoundCommand::UntilClause(clause) => {
                self.repeated(&[&clause.0, &clause.1.list]);
            }
            CompoundCommand::Coprocess(coprocess) => {
                self.doubt("a coprocess sets variables");
                self.apart(|walk| walk.command(&coprocess.body));
            }
        }
    }

    /// A second round starts where the first one ended.
    fn repeated(&mut self, lists: &[&CompoundList]) {
        let before = self.directories.clone();
        let mark = (self.found.runs.len(), self.found.files.len());
        lists.iter().for_each(|list| self.list(list));
        if self.directories != before {
            self.directories = None;
            self.found.runs.truncate(mark.0);
            self.found.files.truncate(mark.1);
            lists.iter().for_each(|list| self.list(list));
        }
    }

    fn test(&mut self, test: &ExtendedTestExpr) {
        use brush_parser::ast::{BinaryPredicate as B, UnaryPredicate as U};
        match test {
            ExtendedTestExpr::And(left, right) | ExtendedTestExpr::Or(left, right) => {
                self.test(left);
                self.test(right);
            }
            ExtendedTestExpr::Not(inner) | ExtendedTestExpr::Parenthesized(inner) => self.test(inner),
            ExtendedTestExpr::UnaryTest(predicate, operand) => {
                if matches!(predicate, U::ShellVariableIsSetAndAssigned | U::ShellVariableIsSetAndNameRef) {
                    self.doubt("arithmetic with variables can run commands");
                }
                self.word(operand);
            }
            ExtendedTestExpr::BinaryTest(predicate, left, right) => {
                if matches!(
                    predicate,
                    B::ArithmeticEqualTo
                        | B::ArithmeticNotEqualTo
                        | B::ArithmeticLessThan
                        | B::ArithmeticLessThanOrEqualTo
                        | B::ArithmeticGreaterThan
                        | B::ArithmeticGreaterThanOrEqualTo
                ) {
                    self.doubt("arithmetic with variables can run commands");
                }
                self.word(left);
                if !matches!(predicate, B::StringMatchesRegex | B::StringContainsSubstring) {
                    self.word(right);
                } else if right.value.contains(['$', '`']) {
                    // It is not a word: parentheses stand in it unquoted.
                    self.doubt("a regular expression with substitutions");
                }
            }
        }
    }

    fn simple(&mut self, simple: &SimpleCommand) {
        let mut words = Vec::new();
        let items = || {
            let prefix = simple.prefix.iter().flat_map(|prefix| &prefix.0);
            prefix.chain(simple.suffix.iter().flat_map(|suffix| &suffix.0))
        };
        if items().any(|item| matches!(item, Item::IoRedirect(_)))
            && items()
                .filter_map(|item| if let Item::Word(word) = item { Some(word) } else { None })
                .chain(&simple.word_or_name)
                .any(|word| word::names_descriptor(&word.value))
        {
            self.doubt("a descriptor's number goes into a variable");
        }
        for item in simple.prefix.iter().flat_map(|prefix| &prefix.0) {
            match item {
                Item::AssignmentWord(assignment, _) => self.assignment(assignment),
                other => self.item(other, &mut words),
            }
        }
        if let Some(name) = &simple.word_or_name {
            words.extend(self.word(name));
        }
        for item in simple.suffix.iter().flat_map(|suffix| &suffix.0) {
            self.item(item, &mut words);
        }
        if let Some(name) = simple.word_or_name.as_ref().filter(|_| !words.is_empty()) {
            let bare = words[0].literal() == Some(name.value.as_str());
            self.run(words, if bare { WrittenName::Bare } else { WrittenName::Otherwise });
        }
    }

    fn item(&mut self, item: &Item, words: &mut Vec<Word>) {
        match item {
            Item::IoRedirect(redirect) => self.redirect(redirect),
            Item::Word(word) => words.extend(self.word(word)),
            // Behind the name it is an argument.
            Item::AssignmentWord(assignment, word) => match &assignment.value {
                AssignmentValue::Scalar(_) => words.extend(self.word(word)),
                AssignmentValue::Array(_) => {
                    self.assignment(assignment);
                    words.push(Word::Computed(word.value.clone()));
                }
            },
            Item::ProcessSubstitution(_, subshell) => {
                self.apart(|walk| walk.list(&subshell.list));
                words.push(Word::Computed("<(…)".to_owned()));
            }
        }
    }

    fn assignment(&mut self, assignment: &Assignment) {
        match &assignment.name {
            AssignmentName::VariableName(name) => self.assigned(name),
            AssignmentName::ArrayElementName(name, index) => {
                self.assigned(name);
                if !index.chars().all(|c| c.is_ascii_digit()) {
                    self.doubt("arithmetic with variables can run commands");
                }
            }
        }
        match &assignment.value {
            AssignmentValue::Scalar(word) => {
                self.word(word);
            }
            AssignmentValue::Array(elements) => {
                for (key, value) in elements {
                    if key.is_some() {
                        self.doubt("arithmetic with variables can run commands");
                    }
                    self.word(value);
                }
            }
        }
    }

    fn assigned(&mut self, name: &str) {
        // In some encodings a letter has a byte that is a backslash or a quote elsewhere.
        if !self.ascii && (name.starts_with("LC_") || name.starts_with("LANG")) {
            self.doubt("another locale may read the line otherwise");
        }
        let influence = variables::influence(name);
        self.found.assigns |= influence != Influence::None;
        if influence == Influence::Strong {
            self.doubt(format!("setting {name} changes what runs"));
        }
    }

    /// `export A=b` and its kin. Only bash, and only behind the bare name, keeps what it computes in one word.
    fn declared(&mut self, words: &[Word], written: WrittenName) {
        if !words[0].literal().is_some_and(|name| DECLARING.contains(&name)) {
            return;
        }
        let together = written == WrittenName::Bare && self.dialect == Dialect::Bash;
        for word in &words[1..] {
            match (word::declared_name(word), word) {
                (Some(name), Word::Literal(_)) => self.assigned(name),
                (Some(name), _) if together => self.assigned(name),
                (None, Word::Literal(_)) => {}
                (_, _) => self.doubt("the name of a variable is known only when it runs"),
            }
        }
    }

    fn redirects(&mut self, redirects: Option<&RedirectList>) {
        redirects.iter().flat_map(|list| &list.0).for_each(|redirect| self.redirect(redirect));
    }

    fn redirect(&mut self, redirect: &IoRedirect) {
        match redirect {
            IoRedirect::File(_, kind, target) => match target {
                Target::Filename(word) => self.file(word, kind),
                Target::Fd(_) => {}
                Target::ProcessSubstitution(_, subshell) => self.apart(|walk| walk.list(&subshell.list)),
                Target::Duplicate(word) => match self.word(word) {
                    Some(Word::Literal(text)) if is_descriptor(&text) => {}
                    _ => self.file(word, kind),
                },
            },
            IoRedirect::HereDocument(_, document) => self.here_document(document),
            IoRedirect::HereString(_, word) => {
                self.word(word);
            }
            IoRedirect::OutputAndError(word, _) => self.file(word, &Kind::Write),
        }
    }

    fn here_document(&mut self, document: &IoHereDocument) {
        let (end, quoted) = match word::here_delimiter(&document.here_end.value) {
            Ok(found) => found,
            Err(why) => return self.doubt(why),
        };
        let text = &document.doc.value;
        let early = text.lines().any(|line| {
            let line = if document.remove_tabs { line.trim_start_matches('\t') } else { line };
            line == end
        });
        if early || quoted == document.requires_expansion {
            return self.doubt("a here-document that ends elsewhere than it seems");
        }
        if !quoted {
            if text.contains("\\\n") {
                return self.doubt("a joined line in a here-document");
            }
            self.scanned(text, QuoteContext::HereDocument);
        }
    }

    fn file(&mut self, word: &AstWord, kind: &Kind) {
        let Some(word) = self.word(word) else { return };
        let Word::Literal(text) = word else {
            return self.doubt("the file of a redirection is known only when it runs");
        };
        if matches!(text.as_str(), "/dev/null" | "/dev/stdin" | "/dev/stdout" | "/dev/stderr") {
            return;
        }
        let path = Path::new(&text);
        let paths: Vec<PathBuf> = match &self.directories {
            _ if path.is_absolute() => vec![path.to_owned()],
            Some(directories) => directories.iter().map(|directory| directory.join(path)).collect(),
            None => return self.doubt("the directory of a redirection is not known"),
        };
        let reads = matches!(kind, Kind::Read | Kind::DuplicateInput);
        self.found.files.extend(paths.into_iter().map(if reads { FileUse::Read } else { FileUse::Write }));
    }

    fn word(&mut self, word: &AstWord) -> Option<Word> {
        self.scanned(&word.value, QuoteContext::Word)
    }

    fn scanned(&mut self, text: &str, context: QuoteContext) -> Option<Word> {
        match scan(text, context, self.home) {
            Ok(scanned) => {
                self.level += 1;
                scanned.commands.iter().for_each(|line| self.apart(|walk| walk.line(line)));
                self.level -= 1;
                Some(scanned.word)
            }
            Err(why) => {
                self.doubt(why);
                Some(Word::Computed(text.to_owned()))
            }
        }
    }

    fn run(&mut self, words: Vec<Word>, written: WrittenName) {
        self.count += 1;
        if self.count > MAX_RUNS {
            return self.doubt("too many commands in one line");
        }
        if words[0].literal().is_none_or(str::is_empty) {
            self.doubt("the name of a command is known only when it runs");
        }
        self.declared(&words, written);
        let evaluates = |name: &str| EVALUATING.contains(&name) || DECLARING.contains(&name);
        let has_command = |text: &str| text.contains("$(") || text.contains('`');
        if words[0].literal().is_some_and(evaluates)
            && words[1..].iter().filter_map(Word::literal).any(has_command)
        {
            self.doubt("arithmetic with variables can run commands");
        }
        let inner = wrappers::unwrap(&words).map(|wrapped| {
            let mut walk = Walk {
                dialect: wrapped.dialect.unwrap_or(self.dialect),
                level: self.level + 1,
                directories: self.directories.clone(),
                found: Analysis::default(),
                ..*self
            };
            for name in &wrapped.assigned {
                walk.assigned(name);
            }
            for what in wrapped.runs {
                match what {
                    _ if walk.level > MAX_LEVELS => walk.doubt("commands nested too deep"),
                    wrappers::What::Words(words) => walk.run(words, WrittenName::Otherwise),
                    wrappers::What::Line(line) => walk.line(&line),
                    wrappers::What::Unknown(why) => walk.doubt(why),
                }
            }
            self.count = walk.count;
            if walk.directories != self.directories {
                self.directories = None;
            }
            WrappedCommand { trust: wrapped.trust, analysis: walk.found }
        });
        let directories = self.directories.clone();
        self.change_directory(&words);
        self.found.runs.push(ParsedCommand { words, directories, inner });
    }

    fn change_directory(&mut self, words: &[Word]) {
        match words[0].literal() {
            Some("cd") => {}
            // What they run in this shell may go anywhere.
            Some("pushd" | "popd" | "source" | "." | "eval" | "trap") => return self.directories = None,
            _ => return,
        }
        let target = match words {
            [_, Word::Literal(target)] if !target.starts_with('-') && !target.is_empty() => target,
            _ => return self.directories = None,
        };
        for directory in self.directories.iter_mut().flatten() {
            *directory = normalise(&directory.join(target));
        }
    }
}

/// The directories to which one of two ways may have led; none when they are too many, or not known.
fn either(one: Option<Vec<PathBuf>>, other: Option<Vec<PathBuf>>) -> Option<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in one?.into_iter().chain(other?) {
        if !all.contains(&path) {
            all.push(path);
        }
    }
    (all.len() <= MAX_DIRECTORIES).then_some(all)
}

/// `1`, `-`, `2-`: not a file.
fn is_descriptor(text: &str) -> bool {
    let digits = text.strip_suffix('-').unwrap_or(text);
    digits.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn analysed(line: &str, dialect: Dialect) -> Analysis {
        analyse(line, Path::new("/r"), Path::new("/home/me"), dialect)
    }

    #[track_caller]
    fn doubts(line: &str) -> Vec<String> {
        analysed(line, Dialect::Bash).doubts
    }

    /// Where the last command of a line may run.
    fn last_runs_in(line: &str) -> Option<Vec<PathBuf>> {
        analysed(line, Dialect::Bash).runs.pop().unwrap().directories
    }

    /// Of the line, or of what its wrappers run.
    fn is_too_deep(analysis: &Analysis) -> bool {
        analysis.doubts.iter().any(|why| why.contains("too deep"))
            || analysis
                .runs
                .iter()
                .any(|run| run.inner.as_ref().is_some_and(|inner| is_too_deep(&inner.analysis)))
    }

    #[test]
    fn commands_are_looked_at_so_deep_and_so_many() {
        let nested = |depth: usize| format!("{}x{}", "echo $(".repeat(depth), ")".repeat(depth));
        let wrapped = |depth: usize| format!("{}ls", "nohup ".repeat(depth));
        for depth in 0..10 {
            for line in [nested(depth), wrapped(depth)] {
                assert_eq!(is_too_deep(&analysed(&line, Dialect::Bash)), depth > MAX_LEVELS, "{line}");
            }
        }
        assert!(doubts(&"echo $(x);".repeat(3 * MAX_LEVELS)).is_empty(), "one after the other");
        assert!(doubts(&"x;".repeat(MAX_RUNS)).is_empty());
        assert_eq!(doubts(&"x;".repeat(MAX_RUNS + 1)), ["too many commands in one line"]);
    }

    #[test]
    fn where_a_command_runs_is_followed() {
        let known = |path: &str| Some(vec![PathBuf::from(path)]);
        for (line, wanted) in [
            ("cd a && ls", known("/r/a")),
            ("cd /x && ls", known("/x")),
            // It may have failed.
            ("cd a; ls", Some(vec!["/r/a".into(), "/r".into()])),
            ("cd a | cat; ls", known("/r")),
            ("(cd a); ls", known("/r")),
            ("for i in 1 2; do x; done; ls", known("/r")),
            ("for i in 1 2; do cd a; done; ls", None),
            ("nohup x; ls", known("/r")),
            ("command cd a; ls", None),
            ("cd; ls", None),
            ("cd -; ls", None),
            ("cd ''; ls", None),
            ("cd -P a; ls", None),
            ("cd $x; ls", None),
            ("eval x; ls", None),
        ] {
            assert_eq!(last_runs_in(line), wanted, "{line}");
        }
    }

    #[test]
    fn so_many_directories_are_followed() {
        let chain =
            |count: usize| (1..count).map(|number| format!("cd /d{number}; ")).collect::<String>() + "ls";
        assert_eq!(last_runs_in(&chain(MAX_DIRECTORIES)).map(|all| all.len()), Some(MAX_DIRECTORIES));
        assert_eq!(last_runs_in(&chain(MAX_DIRECTORIES + 1)), None);
        let both = Some(vec![PathBuf::from("/r/a"), "/r".into()]);
        assert_eq!(last_runs_in("cd a || true; ls"), both);
        assert_eq!(last_runs_in("case x in a) cd a;; esac; ls"), both);
    }

    #[test]
    fn an_absolute_redirection_is_known_wherever_it_stands() {
        let found = analysed("cd $x; cat < /etc/hosts", Dialect::Bash);
        assert!(matches!(&found.files[..], [FileUse::Read(path)] if path == Path::new("/etc/hosts")));
        assert!(found.doubts.is_empty(), "{:?}", found.doubts);
        assert_eq!(doubts("cd $x; cat < hosts"), ["the directory of a redirection is not known"]);
    }

    #[test]
    fn only_bash_and_only_a_bare_export_keeps_what_it_computes_together() {
        const NAME: &str = "the name of a variable is known only when it runs";
        assert!(doubts("export a=$x").is_empty());
        let inner = |line: &str| {
            let run = analysed(line, Dialect::Bash).runs.pop().unwrap();
            run.inner.map(|inner| inner.analysis.doubts)
        };
        assert_eq!(inner("command export a=$x"), Some(vec![NAME.to_owned()]));
        assert_eq!(analysed("export a=$x", Dialect::Posix).doubts, [NAME]);
        assert!(analysed("export a=x", Dialect::Posix).doubts.is_empty());
    }
}
