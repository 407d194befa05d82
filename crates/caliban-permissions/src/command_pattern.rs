//! The words of a `Bash(…)` rule against the words of one command.
//!
//! `*` alone stands for any number of words, inside a word for any characters of it; a trailing `:*` is the
//! same as ` *`. An allow rule is read narrowly: a computed word fits only a lone `*`. A deny or ask rule is
//! read widely: further options and their values, the order of options and the directory of the program do not hide
//! what it is about.

use std::path::Path;

use crate::shell::word::Word;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandPattern {
    /// What stands in quotes is one word.
    words: Vec<String>,
    /// The same without regard to quotes, where that is something else: a rule that forbids is read both ways.
    unquoted: Option<Vec<String>>,
}

/// How a rule fits a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fit {
    No,
    /// It depends on what the shell computes.
    Maybe,
    Yes,
}

impl CommandPattern {
    /// An error says where (in bytes) and what.
    pub(crate) fn new(text: &str) -> Result<Self, (usize, &'static str)> {
        let text = match text.trim_end().strip_suffix(":*") {
            Some(prefix) => format!("{prefix} *"),
            None => text.to_owned(),
        };
        let words = quoted_words(&text)?;
        let unquoted: Vec<String> = text
            .split_whitespace()
            .map(|word| word.chars().filter(|c| !is_quote(*c)).collect::<String>())
            .collect();
        if words.is_empty() {
            return Err((0, "no command is named"));
        }
        Ok(Self { unquoted: (unquoted != words).then_some(unquoted), words })
    }

    /// `Bash(*)`
    pub(crate) fn is_everything(&self) -> bool {
        self.words.iter().all(|word| word == "*")
    }

    /// Without a wildcard: exactly these words.
    pub(crate) fn is_exact(&self) -> bool {
        self.words.iter().all(|word| !word.contains('*'))
    }

    /// Whether an allow rule is about these words. `stays` tells whether a path is below a directory, links followed: of
    /// `build/*` neither `build/../x` nor what a link in `build` leads out to is a part.
    pub(crate) fn allows(&self, words: &[Word], stays: &dyn Fn(&str, &str) -> bool) -> bool {
        let narrow = |pattern: &str, text: &str| {
            // A pattern that names no place; `*.txt` is no path that leads elsewhere, either.
            let Some((fixed, _)) = pattern.split_once('*').filter(|_| pattern.contains('/')) else {
                return true;
            };
            let end = fixed.rfind('/').map_or(0, |at| at + 1);
            path_starts(fixed).all(|at| stays(fixed.get(at..end).unwrap_or_default(), &text[at..]))
        };
        fit(&self.words, words, &|pattern, word| match word {
            Word::Literal(text) if wildcard(pattern, text) && narrow(pattern, text) => Fit::Yes,
            _ => Fit::No,
        }) == Fit::Yes
    }

    /// The same rule about a program by its absolute path; none when it names no path.
    pub(crate) fn below(&self, base: &Path) -> Option<Self> {
        let (name, arguments) = self.words.split_first()?;
        if !name.contains('/') || name.starts_with(['/', '~']) {
            return None;
        }
        let name = base.join(name.trim_start_matches("./")).to_string_lossy().into_owned();
        let unquoted = self.unquoted.as_ref().and_then(|words| words.split_first());
        Some(Self {
            unquoted: unquoted.map(|(_, arguments)| [std::slice::from_ref(&name), arguments].concat()),
            words: [std::slice::from_ref(&name), arguments].concat(),
        })
    }

    /// The words of a rule that forbids, in each reading.
    fn readings(&self) -> impl Iterator<Item = &[String]> {
        [Some(self.words.as_slice()), self.unquoted.as_deref()].into_iter().flatten()
    }

    /// How a deny or ask rule fits these words.
    pub(crate) fn fit_widely(&self, words: &[Word]) -> Fit {
        self.readings().map(|rule| fit_rule_widely(rule, words)).max().unwrap_or(Fit::No)
    }

    /// Whether the rule's fixed beginning stands among the arguments of some other program, which may run it. Of
    /// one word that says too little.
    pub(crate) fn stands_among(&self, words: &[Word]) -> bool {
        self.readings().map(fixed).filter(|fixed| fixed.len() > 1).any(|fixed| {
            (1..words.len()).any(|at| {
                let here = words[at..].iter().map(|word| word.literal().unwrap_or_default());
                let mut here = here.map(|text| text.rsplit('/').next().unwrap_or(text));
                fixed.iter().all(|wanted| here.next() == Some(wanted))
            })
        })
    }

    /// Whether the rule's fixed beginning stands anywhere in a text that could not be parsed.
    pub(crate) fn stands_in(&self, line: &str) -> bool {
        // The text is cut at blanks without regard to quotes, and so is the rule.
        let fixed = fixed(self.unquoted.as_ref().unwrap_or(&self.words));
        if fixed.is_empty() {
            return true;
        }
        let bare: String = line.chars().filter(|c| !matches!(c, '"' | '\'' | '\\')).collect();
        let words: Vec<&str> = bare
            .split(|c: char| c.is_whitespace() || c.is_control() || ";&|()<>{}$`=,".contains(c))
            .filter(|word| !word.is_empty())
            .map(|word| word.rsplit('/').next().unwrap_or(word))
            .collect();
        words.windows(fixed.len()).any(|window| window == fixed)
    }
}

/// The words before the first wildcard.
fn fixed(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).take_while(|word| !word.contains('*')).collect()
}

fn fit_rule_widely(rule: &[String], words: &[Word]) -> Fit {
    let fit = fit(rule, words, &|pattern, word| match word {
        Word::Literal(text) if wildcard(pattern, text) => Fit::Yes,
        Word::Literal(_) => Fit::No,
        Word::Glob(_) | Word::Computed(_) => Fit::Maybe,
    });
    if fit == Fit::Yes {
        return fit;
    }
    // A rule that names a script by its path is about the script, however its path is written.
    let base = rule.first().map(|name| name.rsplit('/').next().unwrap_or(name).to_owned());
    let by_name: Vec<String> = base.into_iter().chain(rule.iter().skip(1).cloned()).collect();
    fit.max(widely(rule, words)).max(widely(&by_name, words))
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'')
}

/// The words of a rule. What stands in quotes is one word; a quote that nothing closes means nothing. An error says where (in bytes)
/// and what.
fn quoted_words(text: &str) -> Result<Vec<String>, (usize, &'static str)> {
    let (mut words, mut word): (Vec<String>, Option<String>) = (Vec::new(), None);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let at = text.len() - rest.len();
        rest = &rest[c.len_utf8()..];
        if is_quote(c) {
            let word = word.get_or_insert_default();
            if let Some((quoted, behind)) = rest.split_once(c) {
                word.push_str(quoted);
                rest = behind;
            }
        } else if matches!(c, '|' | ';' | '&' | '<' | '>' | '`' | '\n') {
            return Err((at, "a rule is about one command, and this joins several"));
        } else if c.is_whitespace() {
            words.extend(word.take());
        } else {
            word.get_or_insert_default().push(c);
        }
    }
    words.extend(word);
    Ok(words)
}

/// Where a path may begin in a word that begins so: `--out=build/`, `of=build/`, `-Ibuild/`, `host:build/`. Where none does, the
/// rest of the word is the name of no file.
fn path_starts(fixed: &str) -> impl Iterator<Item = usize> {
    let first = fixed.find('/').unwrap_or(fixed.len());
    let is_option = fixed.starts_with('-');
    (0..=first).filter(move |at| {
        let is_behind = |c: char| is_option || matches!(c, '=' | ':' | ',' | '@' | '+');
        fixed.is_char_boundary(*at) && fixed[..*at].chars().next_back().is_none_or(is_behind)
    })
}

/// `one` compares a word of the rule with one of the command.
fn fit(pattern: &[String], words: &[Word], one: &dyn Fn(&str, &Word) -> Fit) -> Fit {
    let Some((first, rest)) = pattern.split_first() else {
        return if words.is_empty() { Fit::Yes } else { Fit::No };
    };
    if first == "*" {
        if rest.is_empty() {
            return Fit::Yes;
        }
        return (0..=words.len()).map(|skip| fit(rest, &words[skip..], one)).max().unwrap_or(Fit::No);
    }
    let Some((word, others)) = words.split_first() else { return Fit::No };
    match (one(first, word), word) {
        (Fit::No, _) => Fit::No,
        // It may become any number of words.
        (Fit::Maybe, Word::Computed(_)) => Fit::Maybe,
        (here, _) => here.min(fit(rest, others, one)),
    }
}

/// `*` in a word stands for any characters.
pub(crate) fn wildcard(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The rule's words in their order, whatever options stand between them; the rule's own options anywhere.
fn widely(pattern: &[String], words: &[Word]) -> Fit {
    let (Some((rule_name, rule)), Some((name, words))) = (pattern.split_first(), words.split_first()) else {
        return Fit::No;
    };
    let Some(name) = name.literal() else { return Fit::No };
    let name = name.rsplit('/').next().unwrap_or(name);
    if rule_name == "*" || !wildcard(rule_name, name) {
        return Fit::No;
    }
    let (options, others): (Vec<&String>, Vec<&String>) =
        rule.iter().partition(|word| is_option(word) && !word.contains('*'));
    let given = options.iter().map(|option| present(option, words)).min().unwrap_or(Fit::Yes);
    let fit = given.min(in_order(name, &others, words));
    if name == "git" && words.iter().any(renames) { fit.max(Fit::Maybe) } else { fit }
}

fn is_option(word: &str) -> bool {
    word.len() > 1 && word.starts_with(['-', '+'])
}

/// `-c alias.x=push`, `-c include.path=x`: the configuration may change what git's sub-commands mean.
fn renames(word: &Word) -> bool {
    let Some(text) = word.literal() else { return false };
    let text = text.to_ascii_lowercase();
    let key = text.strip_prefix("--config-env=").unwrap_or(&text);
    key.starts_with("alias.") || key.starts_with("include")
}

/// Whether an option is among the words: `-rf` also as `-f -r`, `--force` also as `--force=x`.
fn present(option: &str, words: &[Word]) -> Fit {
    let literal = || words.iter().filter_map(Word::literal);
    let letters = option.strip_prefix('-').filter(|letters| letters.chars().all(|c| c.is_ascii_alphabetic()));
    let clusters =
        || literal().filter_map(|word| word.strip_prefix('-')).filter(|word| !word.starts_with('-'));
    if literal()
        .any(|word| word.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('=')))
        || letters.is_some_and(|letters| letters.chars().all(|c| clusters().any(|word| word.contains(c))))
    {
        Fit::Yes
    } else if literal().any(|word| word.len() > 3 && option.starts_with(word))
        || words.iter().any(|word| word.literal().is_none())
    {
        Fit::Maybe
    } else {
        Fit::No
    }
}

/// The rule's other words in their order. Options are passed over, and what may be their value.
fn in_order(name: &str, rule: &[&String], words: &[Word]) -> Fit {
    // `fits[at]`: whether the rest of the rule fits the words from `at` on. It is filled from the rule's end backwards.
    let mut fits = vec![Fit::Yes; words.len() + 1];
    let mut next: Option<Vec<Fit>> = None;
    for step in (0..=rule.len()).rev() {
        for at in (0..=words.len()).rev() {
            let wanted = rule.get(step);
            let behind = |at: usize| next.as_ref().and_then(|next| next.get(at)).copied().unwrap_or(Fit::No);
            let (Some(word), false) = (words.get(at), wanted.is_some_and(|word| word.as_str() == "*")) else {
                fits[at] = match wanted {
                    None => Fit::Yes,
                    // Here or anywhere behind.
                    Some(word) if word.as_str() == "*" => {
                        behind(at).max(fits.get(at + 1).copied().unwrap_or(Fit::No))
                    }
                    Some(_) => Fit::No,
                };
                continue;
            };
            let here = match (wanted, word) {
                (Some(wanted), Word::Literal(text)) if wildcard(wanted, text) => behind(at + 1),
                (Some(_), Word::Glob(_)) => behind(at + 1).min(Fit::Maybe),
                (_, Word::Computed(_)) => Fit::Maybe,
                _ => Fit::No,
            };
            let passed = match word.literal().filter(|text| is_option(text)) {
                None => Fit::No,
                Some(option) => {
                    let beyond = fits.get(at + 2).copied().unwrap_or(Fit::No);
                    match value(name, option) {
                        Value::None => fits[at + 1],
                        Value::Next => beyond,
                        Value::Perhaps => fits[at + 1].max(beyond.min(Fit::Maybe)),
                    }
                }
            };
            fits[at] = here.max(passed);
        }
        next = Some(fits.clone());
    }
    fits[0]
}

/// Whether the word behind an option belongs to it.
pub(crate) enum Value {
    None,
    Next,
    Perhaps,
}

pub(crate) fn value(name: &str, option: &str) -> Value {
    let (valued, flags): (&[&str], &[&str]) = match name {
        "git" => (
            &["-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"],
            &["-p", "-P", "--paginate", "--bare"],
        ),
        "cargo" => (
            &["-C", "--config", "-Z", "--color"],
            &["-q", "--quiet", "-v", "-vv", "--verbose", "--offline", "--locked", "--frozen"],
        ),
        "npm" | "pnpm" | "yarn" => (
            &["--prefix", "-C", "--dir", "--cwd", "-w", "--workspace", "--filter"],
            &["-s", "--silent", "-q", "--quiet", "--verbose", "-g", "-f", "--json", "-y"],
        ),
        "docker" | "kubectl" => (&["-H", "--host", "--context", "-n", "--namespace", "--kubeconfig"], &[]),
        _ => (&[], &[]),
    };
    if valued.contains(&option) {
        Value::Next
    } else if flags.contains(&option)
        || option.contains('=')
        || option == "--"
        || option.starts_with("--no-")
        || option.starts_with('+')
    {
        Value::None
    } else {
        Value::Perhaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> Word {
        match text {
            _ if text.contains('$') => Word::Computed(text.to_owned()),
            _ if text.contains('*') => Word::Glob(text.to_owned()),
            _ => Word::Literal(text.to_owned()),
        }
    }

    fn words(line: &str) -> Vec<Word> {
        line.split(' ').map(word).collect()
    }

    fn pattern(text: &str) -> CommandPattern {
        CommandPattern::new(text).unwrap()
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, text) in [("a*b*c", "aXbYc"), ("a*b*b", "abb"), ("*", ""), ("ab", "ab"), ("a*a", "aa")]
        {
            assert!(wildcard(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("a*b*b", "ab"), ("a*bc*c", "abc"), ("ab", "abc"), ("a*a", "a"), ("a*b", "ba")]
        {
            assert!(!wildcard(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn a_rule_that_forbids_is_read_widely() {
        for (rule, line, fit) in [
            ("git push *", "git push", Fit::Yes),
            ("git push *", "git -C x push", Fit::Yes),
            ("git push *", "git --odd x push", Fit::Maybe),
            ("git push *", "git x push", Fit::No),
            ("git push *", "git $x", Fit::Maybe),
            ("git push *", "git p*", Fit::Maybe),
            ("git push origin", "git p* origin", Fit::Maybe),
            ("git push origin", "git p* other", Fit::No),
            ("git push *", "git --odd $x", Fit::Maybe),
            ("git push *", "git -C x p*", Fit::Maybe),
            ("git push *", "git -p -C x push", Fit::Yes),
            ("git push origin", "git -p push origin", Fit::Yes),
            ("git push origin", "git -p push other", Fit::No),
            ("cargo test *", "cargo --color always test", Fit::Yes),
            ("cargo test *", "cargo -q test", Fit::Yes),
            ("cargo test *", "cargo --odd always test", Fit::Maybe),
            ("rm -rf *", "rm -f -r x", Fit::Yes),
            ("rm -rf *", "rm -r x", Fit::No),
            ("rm --force *", "rm --forc x", Fit::Maybe),
            ("rm --force *", "rm --f x", Fit::No),
            ("rm --force *", "rm $x", Fit::Maybe),
            ("rm --force *", "rm x*", Fit::Maybe),
            ("cat -", "cat -", Fit::Yes),
            ("cat -", "cat x", Fit::No),
        ] {
            assert_eq!(pattern(rule).fit_widely(&words(line)), fit, "{rule}: {line}");
        }
        assert!(!is_option("-") && is_option("-x") && !is_option("x"));
    }

    #[test]
    fn what_a_rule_is_about_is_found_among_the_words_of_another_program() {
        assert!(pattern("git push *").stands_among(&words("odd x /bin/git push")));
        assert!(!pattern("git push *").stands_among(&words("odd git pull")));
        assert!(!pattern("git *").stands_among(&words("odd git pull")), "one word says too little");
        let below = |rule: &str| pattern(rule).below(Path::new("/r")).map(|rule| rule.words);
        assert_eq!(below("./run x"), Some(vec!["/r/run".to_owned(), "x".to_owned()]));
        assert_eq!((below("run x"), below("/bin/run x"), below("~/run x")), (None, None, None));
    }

    #[test]
    fn a_path_may_begin_behind_an_option_or_a_mark() {
        let starts = |fixed: &str| path_starts(fixed).collect::<Vec<_>>();
        assert_eq!(starts("build/"), [0]);
        assert_eq!(starts("of=build/"), [0, 3]);
        assert_eq!(starts("é=b/"), [0, 3]);
        assert_eq!(starts("-Ib/"), [0, 1, 2, 3]);
    }
}
