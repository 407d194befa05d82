//! a13: who gets nothing from the dashboard. Each case against the real program.

use serde_json::json;
use testkit::{StepExt, script, text, wait_until};

use crate::{
    dashboard::Dashboard,
    fleet::{Fleet, bash},
};

fn nobody() -> (Fleet, Dashboard) {
    let fleet = Fleet::new(script![]);
    let dashboard = Dashboard::start(&fleet);
    (fleet, dashboard)
}

#[test]
fn a13_without_a_token_there_is_nothing_but_the_page() {
    let (_fleet, dashboard) = nobody();
    for path in
        ["/api/v1/fleet", "/api/v1/asks", "/api/v1/events", "/api/v1/me", "/ui/api/sessions", "/metrics"]
    {
        assert_eq!(dashboard.with("GET", path, &[], "").code(), (401, "signed_out".to_owned()), "{path}");
        let wrong = [("Authorization", "Bearer 0000")];
        assert_eq!(dashboard.with("GET", path, &wrong, "").code(), (401, "signed_out".to_owned()), "{path}");
    }
    for path in ["/", "/agent/x", "/healthz"] {
        assert_eq!(dashboard.with("GET", path, &[], "").status, 200, "{path}");
    }
    // Neither a cookie alone nor a page key alone.
    let token = dashboard.link.rsplit("#t=").next().unwrap().to_owned();
    let sign_in = |token: &str| {
        let body = json!({"token": token}).to_string();
        dashboard.with("POST", "/auth/link", &[("Content-Type", "application/json")], &body)
    };
    let signed = sign_in(&token);
    let key = signed.json()["page_key"].as_str().unwrap().to_owned();
    let cookie = signed.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let get = |headers: &[(&str, &str)]| dashboard.with("GET", "/api/v1/fleet", headers, "").status;
    assert_eq!(get(&[("Cookie", &cookie), ("X-Caliban-Page", &key)]), 200);
    assert_eq!(get(&[("Cookie", &cookie)]), 401);
    assert_eq!(get(&[("X-Caliban-Page", &key)]), 401);
    assert_eq!(get(&[("Cookie", &cookie), ("X-Caliban-Page", "00")]), 401);
    // A link works once.
    assert_eq!(sign_in(&token).code(), (403, "link_used".to_owned()));
    assert_eq!(sign_in("").code(), (403, "link_used".to_owned()));
}

#[test]
fn a13_a_foreign_host_is_misdirected() {
    let (_fleet, dashboard) = nobody();
    let port = dashboard.address.rsplit(':').next().unwrap();
    let bearer = format!("Bearer {}", dashboard.token);
    for host in [
        "evil.example",
        "localhost",
        &format!("localhost:{port}"),
        &format!("evil.example:{port}"),
        "127.0.0.1",
    ] {
        for path in ["/", "/api/v1/fleet"] {
            let answer = dashboard.with("GET", path, &[("Host", host), ("Authorization", &bearer)], "");
            assert_eq!(answer.code(), (421, "wrong_host".to_owned()), "{host}{path}");
        }
    }
    let own = [("Host", dashboard.address.as_str()), ("Authorization", bearer.as_str())];
    assert_eq!(dashboard.with("GET", "/api/v1/fleet", &own, "").status, 200);
}

#[test]
fn a13_a_foreign_origin_or_site_is_refused() {
    let (_fleet, dashboard) = nobody();
    let bearer = format!("Bearer {}", dashboard.token);
    let own = format!("http://{}", dashboard.host);
    let ask = |name: &str, value: &str| {
        let headers =
            [("Authorization", bearer.as_str()), ("Content-Type", "application/json"), (name, value)];
        let answer = dashboard.with("POST", "/api/v1/links", &headers, "{}");
        (answer.status, answer.json()["error"]["code"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(ask("Origin", &own).0, 200);
    for origin in [
        "http://evil.example",
        "null",
        "http://localhost:8000",
        "https://127.0.0.1",
        "http://app.localhost:8000",
    ] {
        assert_eq!(ask("Origin", origin), (403, "wrong_origin".to_owned()), "{origin}");
    }
    assert_eq!((ask("Sec-Fetch-Site", "same-origin").0, ask("Sec-Fetch-Site", "none").0), (200, 200));
    for site in ["cross-site", "same-site"] {
        assert_eq!(ask("Sec-Fetch-Site", site), (403, "cross_site".to_owned()), "{site}");
    }
}

#[test]
fn a13_a_form_post_is_refused_and_a_get_has_no_effects() {
    let (_fleet, dashboard) = nobody();
    let bearer = format!("Bearer {}", dashboard.token);
    for kind in ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", ""] {
        let headers = [("Authorization", bearer.as_str()), ("Content-Type", kind)];
        let answer = dashboard.with("POST", "/api/v1/links", &headers, "a=b");
        assert_eq!(answer.code(), (415, "not_json".to_owned()), "{kind}");
    }
    let fleet = "/api/v1/repos/0000000000000000/agents/00000000";
    for verb in ["approve", "deny", "send", "kill", "cancel", "resume", "respawn", "merge"] {
        let answer = dashboard.get(&format!("{fleet}/{verb}"));
        assert_eq!(answer.status, 405, "{verb}");
    }
    for path in ["/auth/link", "/auth/leave", "/api/v1/links"] {
        assert_eq!(dashboard.get(path).status, 405, "{path}");
    }
}

#[test]
fn a13_a_websocket_is_refused() {
    let (_fleet, dashboard) = nobody();
    let bearer = format!("Bearer {}", dashboard.token);
    for path in ["/", "/api/v1/events"] {
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let answer = dashboard.with("GET", path, &headers, "");
        assert_eq!(answer.code(), (400, "no_upgrade".to_owned()), "{path}");
    }
}

#[test]
fn a13_every_answer_forbids_scripts_frames_and_forms_of_others() {
    let (_fleet, dashboard) = nobody();
    for path in ["/", "/healthz", "/api/v1/fleet", "/nothing.js"] {
        let head = dashboard.with("GET", path, &[], "").head;
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(head.contains(part), "{path}: {head}");
        }
        assert!(head.contains("x-content-type-options: nosniff"), "{path}: {head}");
        assert!(!head.to_ascii_lowercase().contains("access-control-allow"), "{path}: {head}");
    }
}

#[test]
fn a13_an_agents_process_cannot_answer_for_a_person_even_with_the_token() {
    let fleet = Fleet::new(script![]);
    let dashboard = Dashboard::start(&fleet);
    let asking = fleet.bg("ask for it", []);
    let try_it = format!(
        "curl -s -X POST -H 'Authorization: Bearer {}' -H 'Content-Type: application/json' -d '{{}}' http://{}/api/v1/links; \
         curl -s -H 'Authorization: Bearer {}' http://{}/api/v1/asks",
        dashboard.token, dashboard.address, dashboard.token, dashboard.address
    );
    fleet.place.server.set_script(script![
        bash("touch asked-for").on_first("ask for it"),
        text("thank you").on_first("ask for it"),
        bash(&try_it).on_first("approve it"),
        text("I tried").on_first("approve it"),
    ]);
    fleet.wait_for_ask(&asking);
    wait_until("the dashboard has it", || {
        dashboard.get("/api/v1/asks").json()["asks"].as_array().is_some_and(|asks| asks.len() == 1)
    });
    let other = fleet.bg("approve it", ["--permission-mode", "unattended"]);
    fleet.run(["agents", "wait", &other]).ok();
    let told = fleet.run(["logs", &other, "--json"]).ok().stdout;
    assert!(told.contains(&format!("a process of agent {other} cannot do this here")), "{told}");
    // Nor can it serve a dashboard of its own.
    let program = fleet.place.env.cmd("caliban").get_program().to_str().unwrap().to_owned();
    fleet.place.server.set_script(script![
        bash(&format!("{program} dashboard --no-open --port 0; true")).on_first("serve it"),
        text("I tried").on_first("serve it"),
    ]);
    let third = fleet.bg("serve it", ["--permission-mode", "unattended"]);
    fleet.run(["agents", "wait", &third]).ok();
    let told = fleet.run(["logs", &third, "--json"]).ok().stdout;
    assert!(told.contains("cannot serve the dashboard"), "{told}");
}

#[test]
fn a13_markup_in_names_and_transcripts_is_inert() {
    let hostile = "<img src=x onerror=alert(1)>\u{1b}[2J\u{202e}evil";
    let fleet = Fleet::new(script![text(hostile).on_first("<script>")]);
    let id = fleet.bg(&format!("<script>alert(1)</script> {hostile}"), []);
    fleet.run(["agents", "wait", &id]).ok();
    let dashboard = Dashboard::start(&fleet);
    let path = dashboard.agent(&id);
    for path in ["/api/v1/fleet".to_owned(), path.clone(), format!("{path}/transcript")] {
        let answer = dashboard.get(&path);
        assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
        let bad = ["\u{1b}", "\\u001b", "\u{202e}", "\\u202e"].iter().find(|bad| answer.body.contains(**bad));
        assert_eq!(bad, None, "{path}: {}", answer.body);
    }
    // It is text, where a page makes text of it.
    assert!(dashboard.get(&format!("{path}/transcript")).body.contains("<img src=x onerror=alert(1)>"));
}

#[test]
fn a19_half_open_connections_of_one_peer_are_few_and_keep_nobody_out() {
    let (_fleet, dashboard) = nobody();
    let mut silent: Vec<_> = (0..80).map(|_| dashboard.stream("GET / HT")).collect();
    // The oldest ones are closed for the newer ones.
    for stream in &mut silent[..40] {
        // Sooner than the 15 s after which every silent connection is closed.
        stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        let ended = std::io::Read::read(stream, &mut [0; 1]);
        let is_closed = |kind| kind == std::io::ErrorKind::ConnectionReset;
        assert!(
            matches!(&ended, Ok(0)) || ended.as_ref().is_err_and(|error| is_closed(error.kind())),
            "{ended:?}"
        );
    }
    // The newest is still heard.
    let last = silent.last_mut().unwrap();
    std::io::Write::write_all(last, format!("TP/1.1\r\nHost: {}\r\n\r\n", dashboard.host).as_bytes())
        .unwrap();
    let mut head = [0; 12];
    std::io::Read::read_exact(last, &mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    assert_eq!(dashboard.get("/api/v1/fleet").status, 200);
}
