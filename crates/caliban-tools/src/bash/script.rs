//! The shell's side of a command: which shell, in which environment, and how it reports its last directory.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use caliban_keeper::{Launch, Streams, Variables};

use super::orphans::CommandMark;

/// Set for every command, over what the caller gives: nothing may wait for a person or a terminal.
const SET: [(&str, &str); 10] = [
    ("CALIBAN", "1"),
    ("TERM", "dumb"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("EDITOR", "true"),
    ("VISUAL", "true"),
    ("GIT_EDITOR", "true"),
    ("GIT_SEQUENCE_EDITOR", "true"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("DEBIAN_FRONTEND", "noninteractive"),
];

/// Never passed on: they change how the shell reads a line, or where `cd` goes, and the line was judged without.
const TAKEN: [&str; 5] = ["CDPATH", "GLOBIGNORE", "BASHOPTS", "SHELLOPTS", "POSIXLY_CORRECT"];

/// Git takes any directory that looks like a bare repository for one, and runs what its configuration names: a
/// directory of the project is none unless the command says so.
const GIT_SETTING: (&str, &str) = ("safe.bareRepository", "explicit");
const GIT_COUNT: &str = "GIT_CONFIG_COUNT";

/// What the reaper starts, and the mark that its processes have.
pub(super) fn launch(
    command: &str,
    directory: PathBuf,
    env: &[(OsString, OsString)],
    streams: Streams,
) -> (Launch, CommandMark) {
    let (shell, mut variables) = environment(env);
    if streams == Streams::Terminal {
        variables.retain(|(name, _)| name != "TERM");
        variables.push(("TERM".into(), "xterm".into()));
    }
    let name = shell.file_name().unwrap_or(OsStr::new("sh")).to_owned();
    let mark = CommandMark::new(&variables);
    variables.push(mark.variable());
    let mut launch = Launch::shell(WRAPPER, directory, variables, streams);
    launch.program = shell.into();
    launch.arguments.extend([name, command.into()]);
    (launch, mark)
}

/// The same for a command whose last directory nobody asks for.
pub(super) fn plain_launch(
    command: &str,
    directory: PathBuf,
    env: &[(OsString, OsString)],
    streams: Streams,
) -> Launch {
    let (shell, variables) = environment(env);
    Launch { program: shell.into(), ..Launch::shell(command, directory, variables, streams) }
}

/// The shell and the environment of a command.
fn environment(env: &[(OsString, OsString)]) -> (PathBuf, Variables) {
    let path = env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
    let shell = shell(path);
    let ours = SET.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let ours = ours.chain(git_setting(env)).chain([("PATH".into(), absolute(path))]);
    let ours: Vec<(OsString, OsString)> = ours.collect();
    let variables = env
        .iter()
        .filter(|(name, _)| {
            !ours.iter().any(|(set, _)| name == set) && !TAKEN.iter().any(|taken| name == taken)
        })
        .filter(|(name, _)| !name.is_empty() && !name.as_encoded_bytes().contains(&b'='))
        .cloned()
        .chain(ours.iter().cloned())
        .collect();
    (shell, variables)
}

/// The absolute directories of a `PATH`. A relative one would let a directory of the project replace `ls`. An empty `PATH`
/// would, too: shells then look into the working directory.
fn absolute(path: Option<&OsStr>) -> OsString {
    const USUAL: &str = "/usr/local/bin:/usr/bin:/bin";
    let given = path.map(std::env::split_paths).into_iter().flatten();
    let kept: Vec<PathBuf> = given.filter(|directory| directory.is_absolute()).collect();
    match std::env::join_paths(kept) {
        Ok(path) if !path.is_empty() => path,
        _ => USUAL.into(),
    }
}

/// Our setting for git, after those that the environment already has. One that it has of the same name stays.
fn git_setting(env: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let is_ours = |(name, value): &(OsString, OsString)| {
        name.to_str().is_some_and(|name| name.starts_with("GIT_CONFIG_KEY_")) && value == GIT_SETTING.0
    };
    if env.iter().any(is_ours) {
        return Vec::new();
    }
    let given = env.iter().find(|(name, _)| name == GIT_COUNT).and_then(|(_, count)| count.to_str());
    // Git refuses to work with a count that is no number.
    let given = given.and_then(|count| count.parse::<u16>().ok()).unwrap_or(0);
    let (key, value) = GIT_SETTING;
    vec![
        (GIT_COUNT.into(), (u32::from(given) + 1).to_string().into()),
        (format!("GIT_CONFIG_KEY_{given}").into(), key.into()),
        (format!("GIT_CONFIG_VALUE_{given}").into(), value.into()),
    ]
}

/// Runs the command in its first argument so that the shell reports its working directory on the descriptor in its second.
/// It does so when the command falls through to the end and when it exits. A command with its own EXIT trap replaces ours;
/// then only the end reports. NUL ends a report, as a directory's name may hold a newline. The command can change neither
/// the descriptor nor, by a function of that name, `pwd`. All of it is one line, and the command comes as an argument: so
/// the shell counts the command's own lines, from 1.
const WRAPPER: &str = concat!(
    r#"readonly __caliban_cwd=$2; __caliban_line=$1; shift 2; "#,
    r#"trap '{ command pwd -P; command printf "\0"; } 2>/dev/null >&"$__caliban_cwd"' EXIT; "#,
    r#"eval "$__caliban_line"; __caliban_code=$?; "#,
    r#"{ command pwd -P; command printf "\0"; } 2>/dev/null >&"$__caliban_cwd"; exit $__caliban_code"#
);

/// Bash where there is one, as models write bash.
fn shell(path: Option<&OsStr>) -> PathBuf {
    let listed = path.map(std::env::split_paths).into_iter().flatten().filter(|dir| dir.is_absolute());
    listed
        .chain([PathBuf::from("/bin"), PathBuf::from("/usr/bin")])
        .map(|dir| dir.join("bash"))
        .find(|bash| is_program(bash))
        .unwrap_or_else(|| PathBuf::from("/bin/sh"))
}

#[expect(clippy::disallowed_methods, reason = "a program of the user's PATH")]
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_tells_where_it_went() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        std::fs::create_dir(root.join("sub")).unwrap();
        for shell in ["/bin/sh", "/bin/bash"] {
            for (command, code) in [
                ("cd sub", 0),
                ("cd sub; exit 3", 3),
                ("cd sub; (exit 4)", 4),
                ("cd sub; pwd() { echo elsewhere; }; printf() { echo x; }", 0),
            ] {
                let status = std::process::Command::new(shell)
                    .args(["-c", "exec 3> said; exec \"$0\" -c \"$1\" sh \"$2\" 3", shell, WRAPPER, command])
                    .current_dir(&root)
                    .status()
                    .unwrap();
                let said = std::fs::read_to_string(root.join("said")).unwrap();
                let last = said.trim_end_matches('\0').rsplit('\0').next().unwrap();
                let expected = format!("{}\n", root.join("sub").display());
                assert_eq!((status.code(), last), (Some(code), expected.as_str()), "{shell}: {command}");
            }
        }
    }

    #[test]
    fn a12_only_the_given_environment_and_ours_is_passed() {
        let given: Vec<(OsString, OsString)> = [
            ("PATH", ":./bin:/bin:x:"),
            ("HOME", "/h"),
            ("EDITOR", "vim"),
            ("", "x"),
            ("A=B", "c"),
            ("CDPATH", "/"),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .into();
        let (_, variables) = environment(&given);
        let mut names: Vec<String> =
            variables.iter().map(|(name, value)| format!("{}={}", name.display(), value.display())).collect();
        names.sort();
        let mut expected: Vec<String> = SET.iter().map(|(name, value)| format!("{name}={value}")).collect();
        expected.extend(["PATH=/bin".into(), "HOME=/h".into()]);
        expected.extend(
            ["COUNT=1", "KEY_0=safe.bareRepository", "VALUE_0=explicit"]
                .map(|git| format!("GIT_CONFIG_{git}")),
        );
        expected.sort();
        assert_eq!(names, expected);
    }

    #[test]
    fn no_program_is_looked_for_where_the_command_runs() {
        let usual = OsString::from("/usr/local/bin:/usr/bin:/bin");
        assert_eq!(absolute(Some(OsStr::new("bin:/a::./b:/c"))), "/a:/c");
        assert_eq!(
            [absolute(None), absolute(Some(OsStr::new(""))), absolute(Some(OsStr::new(".")))],
            [(); 3].map(|()| usual.clone())
        );
    }

    #[test]
    fn settings_for_git_that_are_given_stay() {
        let set = |count: &str| {
            let given = [(OsString::from(GIT_COUNT), OsString::from(count))];
            let set = git_setting(&given).into_iter();
            set.map(|(name, value)| format!("{}={}", name.display(), value.display())).collect::<Vec<_>>()
        };
        let third =
            ["GIT_CONFIG_COUNT=3", "GIT_CONFIG_KEY_2=safe.bareRepository", "GIT_CONFIG_VALUE_2=explicit"];
        assert_eq!(set("2"), third);
        assert_eq!(set("x")[0], "GIT_CONFIG_COUNT=1");
        assert_eq!(set("")[0], "GIT_CONFIG_COUNT=1");
        let own = [
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "safe.bareRepository"),
            ("GIT_CONFIG_VALUE_0", "all"),
        ];
        let own = own.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        assert_eq!(git_setting(&own), []);
    }

    /// In a command's environment `cd x && git status` must not run what `x/config` names.
    #[test]
    fn a_directory_that_looks_like_a_bare_repository_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let (x, mark) = (dir.path().join("x"), dir.path().join("mark"));
        std::fs::create_dir_all(x.join("objects")).unwrap();
        std::fs::create_dir_all(x.join("refs")).unwrap();
        std::fs::write(x.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        let config = format!(
            "[core]\n\trepositoryformatversion = 0\n\tworktree = ..\n\tfsmonitor = \"touch {}\"\n",
            mark.display()
        );
        std::fs::write(x.join("config"), config).unwrap();
        let given = [("PATH", "/usr/bin:/bin"), ("HOME", "/nonexistent")]
            .map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let status = |env: &[(OsString, OsString)]| {
            let mut git = std::process::Command::new("git");
            git.arg("status").current_dir(&x).env_clear().envs(env.iter().cloned()).output().unwrap();
            mark.exists()
        };
        assert!(!status(&environment(&given).1));
        // Without ours it does.
        assert!(status(&given));
    }
}
