//! Places from which something is run or trusted later: writing there asks, whatever the mode but
//! `unattended`, unless a rule names the place itself.

use std::path::Path;

/// Directories and files that are protected at any depth.
const ANYWHERE: &[&str] =
    &[".git", ".caliban", ".claude", ".mcp.json", ".husky", ".envrc", ".vscode", ".idea"];
/// Start files of shells and programs, at any depth: the home directory may well be the project.
const START_FILES: &[&str] = &[
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".kshrc",
    ".cshrc",
    ".tcshrc",
    ".inputrc",
    ".gitconfig",
    ".gitmodules",
    ".ssh",
    ".npmrc",
    ".pypirc",
    ".netrc",
];

/// The protected name in a path, if there is one, and how many components lead up to it, itself included.
pub(crate) fn protected_name(path: &Path) -> Option<(&'static str, usize)> {
    path.components().enumerate().find_map(|(at, component)| {
        let name = component.as_os_str().to_str()?;
        // Some file systems do not tell the cases apart.
        let found =
            ANYWHERE.iter().chain(START_FILES).find(|protected| name.eq_ignore_ascii_case(protected))?;
        Some((*found, at + 1))
    })
}
