//! Secrets in variables whose names say nothing of them: a token in the address of a package index, a proxy's password,
//! the access tokens of `NIX_CONFIG`.
//!
//! Owns where in such a value the secret stands. Refuses to guess from the value alone: what is no address, and is not of
//! a variable that is known for it, holds none.

use super::is_secret_name;

/// The least length of a part of an address's path that is taken for a token.
const PATH_TOKEN: usize = 16;
/// How many digits such a part has at least: words have none, versions few.
const PATH_TOKEN_DIGITS: usize = 3;

/// The secret parts of a variable's value, whatever its name; for [`super::Redactor::learn`]. A name that is secret by
/// itself ([`is_secret_name`]) makes the whole value one.
pub fn secret_parts(name: &str, value: &str) -> Vec<String> {
    let mut found = Vec::new();
    let upper = name.to_ascii_uppercase();
    if is_secret_name(name) {
        found.push(value.to_owned());
    }
    addresses(&upper, value, &mut found);
    if upper.ends_with("PROXY") && !value.contains("://") {
        value.split(',').for_each(|proxy| user_info(proxy.trim(), &mut found));
    }
    if upper == "NIX_CONFIG" {
        access_tokens(value, &mut found);
    }
    if upper.ends_with("HEADERS") || upper.ends_with("HEADER") {
        headers(value, &mut found);
    }
    let decoded: Vec<String> = found.iter().filter_map(|part| percent_decoded(part)).collect();
    found.extend(decoded);
    found.retain(|part| !part.is_empty());
    found
}

/// What the addresses in a value hold before `@`, behind `?` and, in those of package indexes, in their path.
fn addresses(name: &str, value: &str, found: &mut Vec<String>) {
    let is_index = ["INDEX", "REGISTR", "GOPROXY"].iter().any(|word| name.contains(word));
    let mut before = 0;
    for (at, mark) in value.match_indices("://") {
        let scheme = &value[before..at];
        let start = at + mark.len();
        before = start;
        let rest = &value[start..];
        let rest =
            &rest[..rest.find(|c: char| c.is_whitespace() || "\"'<>`,|;".contains(c)).unwrap_or(rest.len())];
        let host_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(host_end);
        // Who logs in by ssh is named there, and has the key elsewhere.
        if !scheme.ends_with("ssh") {
            user_info(authority, found);
        }
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        for (key, value) in query.split(['&', '#']).filter_map(|pair| pair.split_once('=')) {
            if is_secret_name(key)
                || ["auth", "sig", "signature"].contains(&key.to_ascii_lowercase().as_str())
            {
                found.push(value.to_owned());
            }
        }
        if is_index {
            found.extend(path.split('/').filter(|part| is_random(part)).map(str::to_owned));
        }
    }
}

/// `user:password@host`: the password; `token@host`, `token:@host`, `token:x-oauth-basic@host`: the token.
fn user_info(authority: &str, found: &mut Vec<String>) {
    // The last `@`: a password may have one itself.
    let Some((user, _host)) = authority.rsplit_once('@') else { return };
    match user.split_once(':') {
        Some((token, "" | "x-oauth-basic")) => found.push(token.to_owned()),
        Some((_, password)) => found.push(password.to_owned()),
        None => found.push(user.to_owned()),
    }
}

/// `access-tokens = github.com=x gitlab.com=PAT:y`, in lines.
fn access_tokens(config: &str, found: &mut Vec<String>) {
    for (key, value) in config.lines().filter_map(|line| line.split_once('=')) {
        if !key.trim().ends_with("access-tokens") {
            continue;
        }
        for (_host, token) in value.split_whitespace().filter_map(|pair| pair.split_once('=')) {
            found.push(token.to_owned());
            found.extend(token.split_once(':').map(|(_kind, bare)| bare.to_owned()));
        }
    }
}

/// `Name: value`, in lines: the values, and what follows a scheme in them.
fn headers(lines: &str, found: &mut Vec<String>) {
    for (_name, value) in lines.lines().filter_map(|line| line.split_once([':', '='])) {
        let value = value.trim();
        found.push(value.to_owned());
        found.extend(value.split_once(' ').map(|(_scheme, bare)| bare.trim().to_owned()));
    }
}

fn is_random(part: &str) -> bool {
    part.len() >= PATH_TOKEN
        && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
        && part.bytes().filter(u8::is_ascii_digit).count() >= PATH_TOKEN_DIGITS
}

/// As it is used elsewhere, when that looks different.
fn percent_decoded(part: &str) -> Option<String> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes = part.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let pair =
            (bytes[at] == b'%').then(|| Some((digit(*bytes.get(at + 1)?)?, digit(*bytes.get(at + 2)?)?)));
        if let Some((high, low)) = pair.flatten() {
            decoded.push(high * 16 + low);
            at += 3;
        } else {
            decoded.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(decoded).ok().filter(|decoded| decoded != part)
}
