//! Secrets in variables whose names say nothing of them: a token in the address of a package index, a proxy's password,
//! the access tokens of `NIX_CONFIG`.
//!
//! Owns where in such a value the secret stands, and what of it is looked for: ordinary words (`postgres:postgres@`,
//! `Content-Type: application/json`) are in many texts, and cut out of them they would hide what an agent does. Refuses
//! to guess from the value alone: what is no address, and is not of a variable that is known for it, holds none.

use super::{is_secret_name, known};

/// The least length of a password in an address that is looked for by itself.
const PASSWORD: usize = 12;
/// The least length of a token that nothing but its look tells from a name.
const TOKEN: usize = 16;
/// How many digits such a token has at least: words have none, versions few.
const TOKEN_DIGITS: usize = 3;
/// How often letters and digits change places in one piece of it: once or twice in `linux64` and `release20240101`.
const TOKEN_CHANGES: usize = 3;
/// The least that follows the known beginning of a token.
const BEHIND_PREFIX: usize = 8;
/// The secret parts of a variable's value, whatever its name; for [`super::Redactor::learn`]. A name that is secret by
/// itself ([`is_secret_name`]) makes the whole value one. A password that could be an ordinary word is found with what
/// surrounds it, never alone.
pub fn secret_parts(name: &str, value: &str) -> Vec<String> {
    let mut found = Vec::new();
    let upper = name.to_ascii_uppercase();
    if is_secret_name(name) {
        found.push(value.to_owned());
    }
    addresses(&upper, value, &mut found);
    if upper.ends_with("PROXY") && !value.contains("://") {
        for proxy in value.split(',').map(str::trim) {
            let before = found.len();
            user_info("", proxy, "", &mut found);
            // Behind `://` the redactor knows a password by its place; here nothing shows it.
            if found.len() == before && proxy.rsplit_once('@').is_some_and(|(user, _)| user.contains(':')) {
                found.push(proxy.to_owned());
            }
        }
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

/// The same for a value that somebody wrote down for one program alone (the `env` of an MCP server): one that looks like a token is
/// one, whatever its name.
pub fn literal_secrets(name: &str, value: &str) -> Vec<String> {
    let whole = is_token(value.trim()).then(|| value.trim().to_owned());
    whole.into_iter().chain(secret_parts(name, value)).collect()
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
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        // Who logs in by ssh is named there, and has the key elsewhere.
        if !scheme.ends_with("ssh") {
            let before = found.len();
            user_info(scheme, authority, path, found);
            // Who reads an index under a name alone has mostly been given that name for a token.
            if is_index && found.len() == before && authority.contains('@') {
                found.push(authority.to_owned());
            }
        }
        for (key, value) in query.split(['&', '#']).filter_map(|pair| pair.split_once('=')) {
            let is_perhaps = ["auth", "sig", "signature"].contains(&key.to_ascii_lowercase().as_str());
            if is_secret_name(key) || (is_perhaps && is_password(value)) {
                found.push(value.to_owned());
            }
        }
        if is_index {
            found.extend(path.split('/').filter(|part| is_token(part)).map(str::to_owned));
        }
    }
}

/// `user:password@host`: the password; `token@host`, `token:@host`, `token:x-oauth-basic@host`: the token. Only what
/// looks like one: nobody's name, and nothing that the address says elsewhere.
fn user_info(scheme: &str, authority: &str, path: &str, found: &mut Vec<String>) {
    // The last `@`: a password may have one itself.
    let Some((user, host)) = authority.rsplit_once('@') else { return };
    let bare_host = host.split(':').next().unwrap_or_default();
    let is_said = |password: &str| {
        [scheme, host, bare_host].contains(&password) || path.split('/').any(|part| part == password)
    };
    let secret = match user.split_once(':') {
        Some((token, "" | "x-oauth-basic")) => Some(token).filter(|token| is_password(token)),
        Some((user, password)) => {
            Some(password).filter(|password| *password != user && is_password(password))
        }
        None => Some(user).filter(|user| is_token(user)),
    };
    found.extend(secret.filter(|secret| !is_said(secret)).map(str::to_owned));
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

/// `Name: value` in lines, or `name=value` behind commas, as OpenTelemetry has it.
fn headers(lines: &str, found: &mut Vec<String>) {
    for line in lines.lines() {
        let mark = line.find([':', '=']).map(|at| line.as_bytes()[at]);
        let parts: Vec<&str> = if mark == Some(b'=') { line.split(',').collect() } else { vec![line] };
        for (name, value) in parts.into_iter().filter_map(|part| part.split_once([':', '='])) {
            found.extend(header_secrets(name.trim(), value));
        }
    }
}

/// The secrets of an HTTP header: its value and what follows a scheme in it, when its name is for secrets or what it
/// holds looks like one. `Content-Type: application/json` has none.
pub fn header_secrets(name: &str, value: &str) -> Vec<String> {
    let name = name.to_ascii_lowercase();
    let value = value.trim();
    let (scheme, bare) = match value.split_once(' ') {
        Some((scheme, bare)) => (scheme, Some(bare.trim())),
        None => ("", None),
    };
    let is_credential = ["bearer", "basic", "token"].contains(&scheme.to_ascii_lowercase().as_str());
    if name.ends_with("cookie") {
        let cookies = value.split(';').filter_map(|cookie| cookie.split_once('='));
        let values = cookies.map(|(_name, value)| value.trim()).filter(|value| is_password(value));
        return std::iter::once(value).chain(values).map(str::to_owned).collect();
    }
    if name.ends_with("authorization") || is_secret_name(&name) || is_credential || is_token(value) {
        return std::iter::once(value).chain(bare).map(str::to_owned).collect();
    }
    Vec::new()
}

/// Whether what stands in the place of a password is one that no other text has by chance.
fn is_password(part: &str) -> bool {
    let has = |is: fn(char) -> bool| usize::from(part.chars().any(is));
    let kinds = has(|c| c.is_lowercase())
        + has(char::is_uppercase)
        + has(|c| c.is_ascii_digit())
        + has(|c| !c.is_alphanumeric() && !"-_./:+ ".contains(c));
    has_known_prefix(part) || (part.chars().count() >= PASSWORD && kinds >= 2)
}

/// Whether something is a token though it stands where a name could.
fn is_token(part: &str) -> bool {
    let is_letter_and_digit = |pair: &[u8]| pair[0].is_ascii_digit() != pair[1].is_ascii_digit();
    let changes = |piece: &str| piece.as_bytes().windows(2).filter(|pair| is_letter_and_digit(pair)).count();
    has_known_prefix(part)
        || (part.len() >= TOKEN
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
            && part.bytes().filter(u8::is_ascii_digit).count() >= TOKEN_DIGITS
            && part.split(['-', '_']).any(|piece| changes(piece) >= TOKEN_CHANGES))
}

fn has_known_prefix(part: &str) -> bool {
    known::behind_beginning(part)
        .any(|rest| rest.len() >= BEHIND_PREFIX && rest.bytes().any(|byte| byte.is_ascii_digit()))
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
