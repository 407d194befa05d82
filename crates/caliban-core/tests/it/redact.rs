//! Secrets taken out.

use caliban_core::redact::{Redactor, has_gap, is_secret_name, secret_parts, unveil};
use proptest::prelude::*;

fn redact(text: &str) -> String {
    Redactor::default().redact(text).into_owned()
}

// Put together at run time, so that no scanner takes this file for a leak.
fn key(prefix: &str) -> String {
    format!("{prefix}{}", "aB3dE5gH7jK9mN1pQ3sT5vX7zA9cD1fG3hJ5k")
}

#[test]
fn a12_known_formats_are_replaced() {
    let jwt = format!("{}.{}.{}", key("eyJ"), key("eyJ"), key(""));
    let cases = [
        (key("sk-ant-api03-"), "anthropic-key"),
        (key("sk-"), "openai-key"),
        (key("sk-proj-"), "openai-key"),
        (key("ghp_"), "github-token"),
        (key("github_pat_"), "github-token"),
        (format!("AKIA{}", "ABCDEFGH12345678"), "aws-key"),
        (key("xoxb-"), "slack-token"),
        (key("AIza"), "google-key"),
        (key("sk_live_"), "stripe-key"),
        (key("rk_test_"), "stripe-key"),
        (key("npm_"), "npm-token"),
        (key("pypi-AgEIcHlwaS5vcmc"), "pypi-token"),
        (key("hf_"), "huggingface-token"),
        (key("hvs."), "vault-token"),
        (format!("{}.{}", key("SG."), key("")), "sendgrid-key"),
        (key("dop_v1_0a1b2c"), "digitalocean-token"),
        (key("dckr_pat_"), "docker-token"),
        (key("glptt-"), "gitlab-token"),
        (key("xapp-1-"), "slack-token"),
        (key("ya29."), "google-token"),
        (format!("SK{}", "0a1b2c3d4e5f60718293a4b5c6d7e8f9"), "twilio-key"),
        (format!("{}:{}", "7123456789", key("AA")), "telegram-token"),
        (key("dp.pt.0a1b"), "doppler-token"),
        (key("dp.st.prd.0a1b"), "doppler-token"),
        (key("tskey-auth-"), "tailscale-key"),
        (jwt, "jwt"),
    ];
    for (secret, kind) in cases {
        let wanted = format!("[redacted:{kind}]");
        for (before, after) in
            [("", ""), ("key=", ";"), ("\"", "\""), ("(", ") and more"), ("\\n", "\\n"), ("é", "é")]
        {
            assert_eq!(redact(&format!("{before}{secret}{after}")), format!("{before}{wanted}{after}"));
        }
    }
}

#[test]
fn a12_headers_urls_and_private_keys() {
    let cases = [
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer [redacted:authorization]"),
        ("authorization: Basic dXNlcjpwYXNz==\r\nx", "authorization: Basic [redacted:authorization]\r\nx"),
        (r#"{"Authorization":"Bearer abc"}"#, r#"{"Authorization":"Bearer [redacted:authorization]"}"#),
        ("x-api-key: hunter2", "x-api-key: [redacted:authorization]"),
        ("curl -H 'bearer 0123456789abcdef'", "curl -H 'bearer [redacted:bearer]'"),
        ("postgres://me:hunter2@db/x", "postgres://me:[redacted:url-password]@db/x"),
        ("https://me:p@ss@host/", "https://me:[redacted:url-password]@host/"),
        ("https://0123456789abcdef0123@host/", "https://[redacted:url-token]@host/"),
        (
            "a\n-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nb",
            "a\n[redacted:private-key]\nb",
        ),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\ncut off", "[redacted:private-key]"),
        ("eyJ4567890.0123456789.0123456789", "[redacted:jwt]"),
    ];
    for (text, wanted) in cases {
        assert_eq!(redact(text), wanted);
    }
}

/// What leads to the secret part is no secret, and says what it is about.
#[test]
fn a12_the_secret_part_of_an_address_or_a_connection_string() {
    let (path, token, key) = (format!("T0AB1/B0CD2/{}", key("")), key("AA"), key("Ab1+/"));
    for (text, wanted) in [
        (
            format!("curl -d x https://hooks.slack.com/services/{path} && y"),
            "curl -d x https://hooks.slack.com/services/[redacted:slack-webhook] && y",
        ),
        (
            format!("https://discord.com/api/webhooks/12/{path}?wait=1"),
            "https://discord.com/api/webhooks/[redacted:discord-webhook]?wait=1",
        ),
        (
            format!("AccountName=x;AccountKey={key}==;EndpointSuffix=y"),
            "AccountName=x;AccountKey=[redacted:azure-key];EndpointSuffix=y",
        ),
        (format!("SharedAccessKey={key}="), "SharedAccessKey=[redacted:azure-key]"),
        (
            format!("https://x.blob.core.windows.net/c?sp=r&sig={key}%2Bab%3D&sv=1"),
            "https://x.blob.core.windows.net/c?sp=r&sig=[redacted:azure-sas]&sv=1",
        ),
        (
            format!("https://api.telegram.org/bot{}:{}/getMe", "712345678", token),
            "https://api.telegram.org/bot[redacted:telegram-token]/getMe",
        ),
        (format!("aws_secret_access_key={key}\n"), "aws_secret_access_key=[redacted:aws-secret]\n"),
        (format!("AWS_SECRET_ACCESS_KEY = \"{key}\""), "AWS_SECRET_ACCESS_KEY = \"[redacted:aws-secret]\""),
        (format!("{{\"SecretAccessKey\": \"{key}\"}}"), "{\"SecretAccessKey\": \"[redacted:aws-secret]\"}"),
        (format!("cf_token={token}"), "cf_token=[redacted:cloudflare-token]"),
        (format!("CLOUDFLARE_API_TOKEN: {token}"), "CLOUDFLARE_API_TOKEN: [redacted:cloudflare-token]"),
    ] {
        assert_eq!(redact(&text), wanted);
    }
}

/// A literal in the settings of one MCP server.
#[test]
fn a12_a_literal_that_looks_like_a_token_is_one() {
    use caliban_core::redact::literal_secrets;
    assert_eq!(literal_secrets("WORKSPACE", "a1b2c3d4e5f6a7b8c9"), ["a1b2c3d4e5f6a7b8c9"]);
    assert_eq!(literal_secrets("REGION", "us-east-1-production"), [""; 0]);
    assert_eq!(literal_secrets("LOG", "debug"), [""; 0]);
    for name in ["a1b2c3d4", "a1b2c3d4e5f6.g7h8", "ghp_abcdefgh", "ghp_1"] {
        assert_eq!(literal_secrets("X", name), [""; 0], "{name}");
    }
}

#[test]
fn ordinary_text_stays() {
    for text in [
        "",
        "sk-learn-compatible-estimators-are-nice",
        "risk-free-0123456789-abcdefghijkl",
        "the bearer of this letter",
        "see bearer a1 and bearer.0123456789abcdef",
        r#"{"Authorization":""}"#,
        "https://me:@host/",
        "eyJ4567890.012345678.0123456789",
        "Authorization is needed",
        "ssh://git@github.com/x",
        "https://example.com/a@b",
        "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----",
        "let token = parse(\"password = x\");",
        "ghp_short",
        "eyJhbGciOiJ9.x.y",
        "0123456789abcdef0123456789abcdef01234567",
        "npm_config_registry npm_lifecycle_event_name_1",
        "hf_hub_download, sk_test_mode_is_on, SG.short, pul-request",
        "ciology and dapifier, https://hooks.slack.com/services/",
        "SK0a1b, SKETCHES, SK0123456789abcdefg, 12:34:56, 20261118:AAAA, bot:AAbc",
        "aws_secret_access_key = var.aws_secret_access_key, sig=abc, cf_token=$CF_TOKEN, dp.pt.x, tskey-auth",
    ] {
        assert_eq!(redact(text), text);
    }
}

/// A key begins where a word does: behind `_` and `-`, too, and behind an escape, not within letters.
#[test]
fn a12_a_key_begins_with_a_word() {
    let key = key("ghp_");
    for before in ["my_", "my-", "\\n", "="] {
        assert_eq!(redact(&format!("{before}{key}")), format!("{before}[redacted:github-token]"));
    }
    for before in ["x", "xx", "\\nxx"] {
        assert_eq!(redact(&format!("{before}{key}")), format!("{before}{key}"));
    }
}

#[test]
fn a12_values_are_replaced_under_their_names() {
    let redactor = Redactor::new([
        ("DB_PASSWORD", "correct horse"),
        ("SHORT_KEY", "1234567"),
        ("LONG_TOKEN", "correct horse battery"),
        ("PEM_KEY", "line \"one\"\nline two\n"),
    ]);
    let cases = [
        ("a correct horse b", "a [redacted:DB_PASSWORD] b"),
        ("a correct horse battery b", "a [redacted:LONG_TOKEN] b"),
        ("1234567", "1234567"),
        ("line \"one\"\nline two", "[redacted:PEM_KEY]"),
        (r#"{"x":"line \"one\"\nline two"}"#, r#"{"x":"[redacted:PEM_KEY]"}"#),
        ("https://u:correct horse@h", "https://u:[redacted:DB_PASSWORD]@h"),
    ];
    for (text, wanted) in cases {
        assert_eq!(redactor.redact(text), wanted);
    }
    assert_eq!(format!("{redactor:?}"), r#"["DB_PASSWORD", "LONG_TOKEN", "PEM_KEY", "PEM_KEY"]"#);
}

#[test]
fn secret_names() {
    for name in [
        "FOO_TOKEN",
        "API_KEY",
        "key",
        "CI_PAT",
        "SESSION_JWT",
        "X-Session-Cookie",
        "SENTRY_DSN",
        "SLACK_WEBHOOK_URL",
        "MYSQL_PWD",
        "AUTHORIZATION",
        "HTTP_AUTHORIZATION",
        "DOCKER_AUTH_CONFIG",
        "AZURE_STORAGE_CONNECTION_STRING",
        "PGPASSWORD",
        "db-password",
        "AWS_SECRET_ACCESS_KEY",
        "TOKEN_FILE",
        "githubToken",
        "MYSQL_PASSWD",
        "OPENAI_APIKEY",
        "X_CREDENTIALS",
        "npm_config__auth",
        "npm_config_//registry.example.org/:_auth",
    ] {
        assert!(is_secret_name(name), "{name}");
    }
    for name in
        ["PATH", "MONKEY", "KEYBOARD", "MAX_TOKENS", "PWD", "HOME", "", "COMPASS", "SSH_AUTH_SOCK", "OAUTH"]
    {
        assert!(!is_secret_name(name), "{name}");
    }
}

#[test]
fn a12_secrets_under_innocent_names_are_found() {
    let cases: [(&str, &str, &[&str]); 26] = [
        ("npm_config__auth", "dTpwYXNz", &["dTpwYXNz"]),
        ("UV_INDEX_URL", "https://a1b2c3d4e5f6g7h8@h/simple", &["a1b2c3d4e5f6g7h8"]),
        ("UV_INDEX_URL", "https://s3cr3t@h/simple", &["s3cr3t@h"]),
        ("UV_INDEX_URL", "https://glpat-abc123def@h/simple", &["glpat-abc123def"]),
        (
            "UV_INDEX",
            "a=https://me:one-Password@h/x b=https://two-password-2:@h c=https://ghp_12345678:x-oauth-basic@h",
            &["one-Password", "two-password-2", "ghp_12345678"],
        ),
        ("PIP_INDEX_URL", "https://me:p%40ssWord-long@h/simple", &["p%40ssWord-long", "p@ssWord-long"]),
        ("PIP_INDEX_URL", "https://me:p%2BssWord-long@h/simple", &["p%2BssWord-long", "p+ssWord-long"]),
        ("X_URL", "https://me:hunter!two!three@h", &["hunter!two!three"]),
        ("X_URL", "https://me:hunter-two-three@h", &[]),
        ("X_URL", "https://h/i?auth=required", &[]),
        ("X_URL", "https://h/i?next=0123456789abcdef", &[]),
        ("CARGO_HTTP_PROXY", "u:p@ssw0rd-long@h:3128", &["p@ssw0rd-long"]),
        ("CARGO_HTTP_PROXY", "u:p@ss@h:3128", &["u:p@ss@h:3128"]),
        (
            "GOPROXY",
            "https://u:0ne-password@a,https://npm_12345678@b,direct",
            &["0ne-password", "npm_12345678"],
        ),
        ("CARGO_REGISTRIES_X_INDEX", "sparse+https://h/a1b2c3d4e5f6g7h8/index/", &["a1b2c3d4e5f6g7h8"]),
        ("CARGO_REGISTRIES_X_INDEX", "https://h/i?access_token=abc&x=1", &["abc"]),
        ("X_URL", "https://h/i?auth=0123456789abcdef", &["0123456789abcdef"]),
        ("CARGO_REGISTRIES_X_INDEX", "ssh://git-user@h/index", &[]),
        ("CARGO_REGISTRIES_X_INDEX", "sparse+https://index.crates.io/", &[]),
        (
            "NIX_CONFIG",
            "experimental-features = flakes\nextra-access-tokens = github.com=one gitlab.com=PAT:two",
            &["one", "PAT:two", "two"],
        ),
        ("NIX_CONFIG", "experimental-features = nix-command flakes", &[]),
        (
            "ANTHROPIC_CUSTOM_HEADERS",
            "X-Me: Bearer one\nX-Api-Key: two\nCookie: a=b; id=0123456789ab-x",
            &["Bearer one", "one", "two", "a=b; id=0123456789ab-x", "0123456789ab-x"],
        ),
        ("OTEL_HEADERS", "content-type=json,api-key=three", &["three"]),
        ("PATH", "/usr/bin:/home/me@work/bin", &[]),
        ("LANGUAGE", "sr_RS:sr_RS.UTF-8@latin", &[]),
        ("NIX_PATH", "nixpkgs=https://h/0123456789abcdef0123", &[]),
    ];
    for (name, value, wanted) in cases {
        assert_eq!(secret_parts(name, value), wanted, "{name}={value}");
    }
}

#[test]
fn ordinary_words_are_not_taken_for_secrets() {
    let redactor = Redactor::default();
    for (name, value) in [
        ("DATABASE_URL", "postgres://postgres:postgres@localhost:5432/postgres"),
        ("DATABASE_URL", "mysql://root:password@db/app"),
        ("DATABASE_URL", "mysql://app-user-2024:app-user-2024@db/app"),
        ("DATABASE_URL", "mysql://root:db-server-2024@db-server-2024:3306/app"),
        ("DATABASE_URL", "mysql://root:app-production-1@db/app-production-1"),
        ("X_HEADERS", "Content-Type: application/json\nAccept: text/html"),
        ("GIT_URL", "https://octocat1@github.com/a/b"),
        ("GIT_URL", "https://github-actions-2024@github.com/a/b"),
        ("HOOK_URL", "https://h/?auth=required"),
        ("UV_INDEX_URL", "https://h/release-2024-01-15-linux64/simple"),
        ("DB_PASSWORD", "postgres"),
        ("APP_SECRET", "development"),
    ] {
        redactor.learn(secret_parts(name, value).into_iter().map(|part| (name, part)));
    }
    let text = "cp postgres password root app-user-2024 db-server-2024 app-production-1 octocat1 required \
                application/json text/html github-actions-2024 release-2024-01-15-linux64 development";
    assert_eq!(redactor.redact(text), text);
    // Where it stands as a password it is one, whatever it is.
    let address = "postgres://postgres:postgres@localhost";
    assert_eq!(redactor.redact(address), "postgres://postgres:[redacted:url-password]@localhost");
    // A variable with a secret name is one for who keeps it off a disk.
    assert_eq!(secret_parts("DB_PASSWORD", "postgres"), ["postgres"]);
}

#[test]
fn a12_what_one_learns_all_clones_know() {
    let first = Redactor::new([("A_TOKEN", "known-before")]);
    let second = first.clone();
    second.learn([("B_TOKEN", "learned-later"), ("AGAIN", "known-before"), ("SHORT", "short")]);
    let text = "known-before, learned-later, short";
    assert_eq!(first.redact(text), "[redacted:A_TOKEN], [redacted:B_TOKEN], short");
    assert_eq!(first.redact("known-beforelearned-later"), "[redacted:A_TOKEN][redacted:B_TOKEN]");
    assert!(has_gap(&first.redact(text)) && !has_gap(text));
    assert_eq!(format!("{first:?}"), r#"["A_TOKEN", "B_TOKEN"]"#);
}

#[test]
fn almost_keys_in_great_number_are_no_trouble() {
    // Each is a shape on which a search that starts over at every position would take minutes.
    for piece in [
        "sk-",
        "eyJ-",
        "eyJ1-",
        "://",
        "://a@",
        "-----BEGIN PRIVATE KEY",
        "authorization:",
        "bearer 1",
        "xoxb-",
    ] {
        let text = piece.repeat(1_000_000 / piece.len());
        assert!(redact(&text).len() <= text.len() * 8);
    }
    let parts = format!("{}.{}", "eyJ1-".repeat(100_000), "a".repeat(500_000));
    assert_eq!(redact(&parts), parts);
}

proptest! {
    #[test]
    fn a12_a_canary_never_shows_up(before in any::<String>(), secret in "[!-~]{7,39}[0-9A-Z]", after in any::<String>()) {
        let redactor = Redactor::new([("CANARY", secret.clone())]);
        let text = format!("{before}{secret}{after}");
        let shown = redactor.redact(&text);
        prop_assert!(!shown.contains(&secret) || "[redacted:CANARY]".contains(&secret));
    }

    #[test]
    fn a12_what_was_veiled_comes_back(before in "[a-z \\n]{0,20}", secret in "[a-zA-Z0-9]{12,40}", after in any::<String>()) {
        let redactor = Redactor::new([("CANARY", secret.clone())]);
        let text = format!("{before}{secret} ghp_{}{}", "a1B2".repeat(9), after.replace("[redacted:", ""));
        let (veiled, secrets) = redactor.veil(&text);
        prop_assert_eq!(&veiled, &redactor.redact(&text));
        prop_assert_eq!(unveil(&veiled, &secrets), text);
        prop_assert_eq!(unveil(&veiled, &[]), veiled.clone());
    }

    #[test]
    fn any_text_is_survived(text in any::<String>(), shaped in "(sk-|eyJ|://|@|:|Bearer |Authorization: |-----BEGIN |PRIVATE KEY-----|\\.|[a-z0-9é]){0,30}") {
        redact(&text);
        redact(&shaped);
    }
}

#[test]
fn a12_a_value_that_was_cut_in_the_middle_is_not_shown_in_parts() {
    use caliban_core::cap::{Cap, middle};
    const CANARY: &str = "canary-4f1d9c7e2b-äöü-0011223344";
    let redactor = Redactor::new([("KEY", CANARY)]);
    let cut = |part: &str| format!("before {part}\n[… 12 characters left out …]\nbehind");
    assert_eq!(redactor.redact(&cut("canary-4f1d")), cut("[redacted:KEY]"));
    assert_eq!(redactor.redact(&cut("canary-")), cut("canary-"));
    // At every distance from the cut, before and behind it.
    for shift in 0..200 {
        let text = format!("{}{CANARY} {CANARY}{}", "x".repeat(shift), "y".repeat(199 - shift));
        let cut = middle(&text, Cap::Chars(120));
        let clean = redactor.redact(&cut);
        for part in
            CANARY.char_indices().zip(CANARY.char_indices().skip(8)).map(|((a, _), (b, _))| &CANARY[a..b])
        {
            assert!(!clean.contains(part), "{shift}: {part} in {clean}");
        }
    }
}
