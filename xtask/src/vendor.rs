//! `cargo xtask vendor`: the libraries of the pages, vendored into this repo.
//!
//! `crates/caliban-web/vendor.toml` says which files are taken from which package. Without `--from` the files are only
//! checked against `SHA256SUMS`; nothing here uses the network. Bare imports become relative ones: an import map would
//! be inline script.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use toml::{Table, Value};

use crate::run;

const CRATE: &str = "crates/caliban-web";
const SUMS: &str = "assets/vendor/SHA256SUMS";
/// The bare module names, and the relative paths that replace them.
const IMPORTS: [(&str, &str); 3] = [
    ("\"preact\"", "\"./preact.js\""),
    ("\"preact/hooks\"", "\"./hooks.js\""),
    ("\"@preact/signals-core\"", "\"./signals-core.js\""),
];

/// Checks the vendored files; with `--from DIR` writes them first, from the tarballs in DIR.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let home = run::root().join(CRATE);
    match args {
        [] => {}
        [flag, from] if flag == "--from" => write(&home, Path::new(from))?,
        _ => bail!("vendor takes --from DIR or nothing"),
    }
    let count = check(&home)?;
    run::say(&format!("{count} vendored files are as {CRATE}/{SUMS} says"));
    Ok(ExitCode::SUCCESS)
}

/// Checks that every file has its recorded hash, and that there are no other files.
fn check(home: &Path) -> Result<usize> {
    let sums = fs::read_to_string(home.join(SUMS)).context(SUMS)?;
    let mut count = 0;
    for line in sums.lines() {
        let (sum, name) =
            line.split_once("  ").with_context(|| format!("{SUMS} has a line without a sum: {line}"))?;
        if sha256(&home.join(name))? != sum {
            bail!("{CRATE}/{name} has been changed: vendored files are not edited");
        }
        count += 1;
    }
    for entry in fs::read_dir(home.join("assets/vendor"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "SHA256SUMS" && !sums.contains(&format!("  assets/vendor/{name}\n")) {
            bail!("{CRATE}/assets/vendor/{name} is not in {SUMS}");
        }
    }
    Ok(count)
}

fn write(home: &Path, from: &Path) -> Result<()> {
    let text = fs::read_to_string(home.join("vendor.toml")).context("vendor.toml")?;
    let list: Table = text.parse().context("vendor.toml")?;
    let mut sums = BTreeMap::new();
    for package in list.get("package").and_then(Value::as_array).context("vendor.toml names no package")? {
        let tarball = from.join(text_of(package, "tarball")?);
        if sha256(&tarball)? != text_of(package, "sha256")? {
            bail!("{} is not the tarball that vendor.toml names", tarball.display());
        }
        for (to, content) in files(package, &tarball)? {
            let path = home.join(&to);
            fs::create_dir_all(path.parent().unwrap_or(home))?;
            fs::write(&path, content).with_context(|| to.clone())?;
            sums.insert(to, sha256(&path)?);
        }
    }
    let lines: Vec<String> = sums.iter().map(|(name, sum)| format!("{sum}  {name}\n")).collect();
    fs::write(home.join(SUMS), lines.concat()).context(SUMS)
}

/// The files of a package: the target path and the text of each.
fn files(package: &Value, tarball: &Path) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for file in package.get("files").and_then(Value::as_array).into_iter().flatten() {
        let to = text_of(file, "to")?;
        let mut text = member(tarball, text_of(file, "from")?)?;
        if to.ends_with(".js") {
            text = relative(&text);
        }
        found.push((to.to_owned(), text));
    }
    if let Some(sprite) = package.get("sprite").and_then(Value::as_str) {
        let mut text = "<svg xmlns=\"http://www.w3.org/2000/svg\">\n".to_owned();
        for name in
            package.get("icons").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
        {
            text += &symbol(name, &member(tarball, &format!("icons/{name}.svg"))?)?;
        }
        found.push((sprite.to_owned(), text + "</svg>\n"));
    }
    Ok(found)
}

/// One icon as a symbol of the sprite: its shapes, without colours and sizes, which the style sheet sets.
fn symbol(name: &str, svg: &str) -> Result<String> {
    let shapes = svg
        .split_once("<svg")
        .and_then(|(_, rest)| rest.split_once('>'))
        .and_then(|(_, rest)| rest.rsplit_once("</svg>"))
        .with_context(|| format!("icon {name} is no SVG"))?
        .0;
    let shapes: String = shapes.lines().map(str::trim).collect();
    Ok(format!("<symbol id=\"{name}\" viewBox=\"0 0 24 24\">{shapes}</symbol>\n"))
}

/// Makes bare imports relative, and removes references to source maps, which are not vendored.
fn relative(text: &str) -> String {
    let mut text = text.to_owned();
    for (bare, relative) in IMPORTS {
        text = text.replace(&format!("from{bare}"), &format!("from{relative}"));
    }
    text.lines()
        .filter(|line| !line.starts_with("//# sourceMappingURL="))
        .map(|line| format!("{line}\n"))
        .collect()
}

fn member(tarball: &Path, name: &str) -> Result<String> {
    run::output(run::command("tar").arg("-xzOf").arg(absolute(tarball)?).arg(format!("package/{name}")))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| path.display().to_string())
}

fn sha256(path: &Path) -> Result<String> {
    let printed = run::output(run::command("sha256sum").arg(absolute(path)?))?;
    Ok(printed.split_whitespace().next().unwrap_or_default().to_owned())
}

fn text_of<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value.get(key).and_then(Value::as_str).with_context(|| format!("vendor.toml lacks `{key}`"))
}
