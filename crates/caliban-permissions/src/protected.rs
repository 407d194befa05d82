//! Places from which something is run or trusted later: writing there asks, whatever the mode but
//! `unattended`, unless a rule names the place itself.

use std::path::Path;

/// Directories and files that are protected at any depth. Of a path with two parts the second lies in the first.
pub(crate) const PROTECTED: &[&str] = &[
    ".git",
    ".gitmodules",
    ".gitconfig",
    ".config/git",
    ".caliban",
    ".claude",
    ".mcp.json",
    // What editors run when they open the project.
    ".vscode",
    ".cursor",
    ".idea",
    ".devcontainer",
    ".devcontainer.json",
    ".vimrc",
    ".nvimrc",
    ".nvim.lua",
    ".exrc",
    ".vim",
    ".config/nvim",
    ".emacs",
    ".emacs.d",
    ".dir-locals.el",
    ".zed",
    // What changes a directory, a commit or a tool into something that runs.
    ".envrc",
    "mise.toml",
    ".mise.toml",
    "mise.local.toml",
    ".mise",
    ".config/mise",
    ".tool-versions",
    ".husky",
    ".github/workflows",
    ".pre-commit-config.yaml",
    ".pre-commit-config.yml",
    "lefthook.yml",
    ".lefthook.yml",
    ".cargo/config",
    ".cargo/config.toml",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".yarn",
    ".pnpmfile.cjs",
    ".pnp.cjs",
    ".bazelrc",
    ".hg",
    ".jj",
    ".docker",
    ".kube",
    ".aws",
    ".curlrc",
    ".wgetrc",
    ".psqlrc",
    ".sqliterc",
    ".irbrc",
    ".pryrc",
    ".gemrc",
    ".Rprofile",
    ".Renviron",
    ".ghci",
    ".ocamlinit",
    ".iex.exs",
    ".mailcap",
    ".forward",
    ".rhosts",
    ".lessfilter",
    ".lesskey",
    ".pam_environment",
    ".gdbinit",
    ".lldbinit",
    ".pdbrc",
    ".pythonrc",
    "sitecustomize.py",
    "usercustomize.py",
    ".pypirc",
    ".netrc",
    ".gnupg",
    ".ssh",
    ".config/fish",
    ".config/direnv",
    ".config/systemd",
    ".config/autostart",
    ".config/caliban",
    ".local/bin",
    ".tmux.conf",
    ".screenrc",
    ".Xresources",
    ".xinitrc",
    ".xprofile",
    // Start files of shells: the home directory may well be the project.
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".bash_completion",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".mkshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".inputrc",
];

/// The protected place in a path, if there is one, and how many components lead up to it, itself included.
pub(crate) fn protected_name(path: &Path) -> Option<(&'static str, usize)> {
    let parts: Vec<&str> =
        path.components().map(|part| part.as_os_str().to_str().unwrap_or_default()).collect();
    (0..parts.len()).find_map(|at| {
        let found = PROTECTED.iter().find(|protected| {
            let mut wanted = protected.split('/');
            // Some file systems do not tell the cases apart.
            let mut given = parts[at..].iter();
            wanted.all(|wanted| given.next().is_some_and(|part| part.eq_ignore_ascii_case(wanted)))
        })?;
        Some((*found, at + found.split('/').count()))
    })
}
