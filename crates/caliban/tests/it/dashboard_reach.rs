//! The dashboard for other machines: what is refused before it listens, TLS with names of the certificate, a proxy.

use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::{Output, ProgramRun, script};

use crate::{dashboard::Dashboard, fleet::Fleet};

/// A token file, a certificate for `fleet.test` and its key.
struct Papers {
    fleet: Fleet,
    token: PathBuf,
    cert: PathBuf,
    key: PathBuf,
}

impl Papers {
    fn new() -> Self {
        let fleet = Fleet::new(script![]);
        let dir = fleet.place.env.work();
        let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
        let made =
            ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
        let names = ["-subj", "/CN=fleet.test", "-addext", "subjectAltName=DNS:fleet.test,DNS:other.test"];
        let openssl = ProgramRun::new(fleet.place.env.program("openssl")).args(made).args(names);
        openssl.args(["-out", cert.to_str().unwrap(), "-keyout", key.to_str().unwrap()]).output().ok();
        let token = fleet.place.env.write(dir.join("token"), "0123456789abcdef0123456789abcdef\n");
        let papers = Self { fleet, token, cert, key };
        papers.mode("600");
        papers
    }

    fn mode(&self, mode: &str) {
        ProgramRun::new(self.fleet.place.env.program("chmod"))
            .args([mode, self.token.to_str().unwrap()])
            .output()
            .ok();
    }

    fn tls(&self) -> Vec<&str> {
        vec!["--tls-cert", self.cert.to_str().unwrap(), "--tls-key", self.key.to_str().unwrap()]
    }

    fn token(&self) -> Vec<&str> {
        vec!["--token-file", self.token.to_str().unwrap()]
    }

    /// What a server that must not start says.
    fn refused(&self, more: &[&[&str]]) -> String {
        let args = ["dashboard", "--no-open", "--json", "--port", "0"];
        let more: Vec<&str> = more.concat();
        let output = self.fleet.run(args.into_iter().chain(more.iter().copied()));
        assert_ne!(output.code, 0, "{more:?}: {output:?}");
        assert_eq!(output.stdout, "", "{more:?}");
        output.stderr
    }

    /// `https://NAME:PORT/PATH` by curl, which trusts the certificate and finds every name on this machine.
    fn curl(&self, dashboard: &Dashboard, name: &str, path: &str, more: &[&str]) -> Output {
        let port = dashboard.address.rsplit(':').next().unwrap();
        let (url, at) = (format!("https://{name}:{port}{path}"), format!("{name}:{port}:127.0.0.1"));
        let args = ["-sS", "--noproxy", "*", "-w", "\n%{http_code}", "--resolve", &at, "--cacert"];
        let curl = ProgramRun::new(self.fleet.place.env.program("curl")).args(args).args([&self.cert]);
        curl.args(more).args([url.as_str()]).output()
    }
}

#[test]
fn a13_other_machines_come_in_only_over_tls_with_a_token_of_ones_own() {
    let papers = Papers::new();
    let far = ["--host", "0.0.0.0"];
    let proxy = ["--behind-proxy", "https://fleet.test"];
    for (more, message, hint) in [
        (vec![&far[..]], "other machines may only come in over TLS", "hint: give --tls-cert"),
        (vec![&far[..], &papers.token()], "other machines may only come in over TLS", "ssh -L"),
        (vec![&far[..], &papers.tls()], "with a token of your own", "--token-file FILE"),
        (vec![&far[..], &proxy], "with a token of your own", "--token-file FILE"),
        (vec![&far[..], &papers.token(), &papers.tls()[..2]], "go together", "hint: give both"),
        (
            vec![&far[..], &papers.token(), &papers.tls(), &proxy],
            "the proxy does the TLS",
            "leave --tls-cert",
        ),
        (
            vec![&papers.token(), &["--behind-proxy", "fleet.test"]],
            "takes an address",
            "https://fleet.example.org",
        ),
    ] {
        let said = papers.refused(&more);
        assert!(said.contains(message) && said.contains(hint), "{more:?}: {said}");
    }
    // A token that others can read is none, and neither is a key that is no key.
    papers.mode("644");
    let said = papers.refused(&[&far, &papers.token(), &papers.tls()]);
    assert!(said.contains("chmod 600"), "{said}");
    papers.mode("600");
    let token = papers.token.to_str().unwrap();
    let said = papers.refused(&[&far, &papers.token(), &["--tls-cert", token, "--tls-key", token]]);
    assert!(said.contains("TLS cannot be used") && said.contains("PEM"), "{said}");
}

#[test]
fn a13_over_tls_the_names_of_the_certificate_are_the_servers_and_no_others() {
    let papers = Papers::new();
    let more = [&["--host", "0.0.0.0", "--port", "0"], &papers.token()[..], &papers.tls()].concat();
    let dashboard = Dashboard::start_with(&papers.fleet, &more);
    let port = dashboard.address.rsplit(':').next().unwrap();
    assert!(dashboard.link.starts_with(&format!("https://fleet.test:{port}/#t=")), "{}", dashboard.link);
    assert_eq!(dashboard.token, "0123456789abcdef0123456789abcdef");
    let bearer = format!("Authorization: Bearer {}", dashboard.token);
    for name in ["fleet.test", "other.test"] {
        let output = papers.curl(&dashboard, name, "/api/v1/me", &["-H", &bearer]).ok();
        assert!(output.stdout.ends_with("\n200"), "{name}: {}", output.stdout);
    }
    // The page signs in over it, with a cookie that goes nowhere without TLS.
    let body = json!({"token": dashboard.link.rsplit("#t=").next().unwrap()}).to_string();
    let sign_in = ["-i", "-H", "Content-Type: application/json", "-d", &body];
    let origin = format!("Origin: https://fleet.test:{port}");
    let foreign = [&sign_in[..], &["-H", "Origin: https://evil.test"]].concat();
    let refused = papers.curl(&dashboard, "fleet.test", "/auth/link", &foreign).ok();
    assert!(refused.stdout.contains("wrong_origin"), "{}", refused.stdout);
    let own = [&sign_in[..], &["-H", &origin]].concat();
    let signed = papers.curl(&dashboard, "fleet.test", "/auth/link", &own).ok().stdout;
    assert!(signed.contains("; Secure") && signed.contains("page_key"), "{signed}");
    // A rebound name, another port and no token get nothing; neither does plain HTTP.
    for host in [format!("evil.test:{port}"), "fleet.test:1".to_owned(), "fleet.test".to_owned()] {
        let host = format!("Host: {host}");
        let output = papers.curl(&dashboard, "fleet.test", "/api/v1/me", &["-H", &host, "-H", &bearer]).ok();
        assert!(output.stdout.ends_with("\n421"), "{host}: {}", output.stdout);
    }
    let output = papers.curl(&dashboard, "fleet.test", "/api/v1/fleet", &[]).ok();
    assert!(output.stdout.ends_with("\n401"), "{}", output.stdout);
    assert_eq!(dashboard.with("GET", "/healthz", &[], "").status, 0);
    // The same command without any of it finds the server, trusts its certificate and no other, and prints another link.
    let again = papers.fleet.run(["dashboard", "--no-open", "--json", "--port", port]).ok();
    let again: Value = again.json();
    assert_eq!(
        (&again["was_running"], &again["origin"], &again["token_file"]),
        (&json!(true), &json!(format!("https://fleet.test:{port}")), &json!(papers.token)),
        "{again:#}"
    );
    assert_ne!(again["url"], dashboard.link.as_str());
    // Somebody else's server in its place is no dashboard of ours, whatever was written down.
    let data = papers.fleet.place.env.data().join("caliban/web");
    let record = data.join(format!("running-{port}.json"));
    let written = papers.fleet.place.env.read(&record);
    let cert = serde_json::from_str::<Value>(&written).unwrap()["cert"].as_str().unwrap().to_owned();
    std::fs::write(&record, written.replace(&cert, &"0".repeat(64))).unwrap();
    let taken = papers.fleet.run(["dashboard", "--no-open", "--json", "--port", port]);
    assert!(taken.stderr.contains("taken by another program"), "{}", taken.stderr);
    drop(dashboard);
    assert!(!record.exists());
}

#[test]
fn a13_whoever_has_the_port_of_a_dashboard_that_is_gone_is_not_told_its_token() {
    let fleet = Fleet::new(script![]);
    let dashboard = Dashboard::start(&fleet);
    let port = dashboard.address.split(':').nth(1).unwrap().to_owned();
    let record = fleet.place.env.data().join(format!("caliban/web/running-{port}.json"));
    let left = std::fs::read(&record).unwrap();
    drop(dashboard);
    // As after kill -9: the record is there, and the port is somebody else's.
    std::fs::write(&record, left).unwrap();
    let other = std::net::TcpListener::bind(format!("127.0.0.1:{port}")).unwrap();
    let taken = fleet.run(["dashboard", "--no-open", "--json", "--port", &port]).expect_code(1);
    assert!(taken.stderr.contains("taken by another program"), "{}", taken.stderr);
    other.set_nonblocking(true).unwrap();
    assert_eq!(other.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "nobody has come");
}

#[test]
fn a13_behind_a_proxy_the_address_of_the_proxy_is_the_servers() {
    let papers = Papers::new();
    let more = [&["--port", "0", "--behind-proxy", "https://fleet.test/"], &papers.token()[..]].concat();
    let dashboard = Dashboard::start_with(&papers.fleet, &more);
    assert!(dashboard.link.starts_with("https://fleet.test/#t="), "{}", dashboard.link);
    let json = ("Content-Type", "application/json");
    let body = json!({"token": dashboard.link.rsplit("#t=").next().unwrap()}).to_string();
    let plain = [json, ("Origin", "http://evil.test")];
    assert_eq!(dashboard.with("POST", "/auth/link", &plain, &body).code(), (403, "wrong_origin".into()));
    let signed = dashboard.with("POST", "/auth/link", &[json, ("Origin", "https://fleet.test")], &body);
    assert_eq!(signed.status, 200, "{}", signed.body);
    assert!(signed.head.contains("; Secure"), "{}", signed.head);
    let me: Value = dashboard.get("/api/v1/me").json();
    assert_eq!(me["server"]["origin"], "https://fleet.test");
    let bearer = format!("Bearer {}", dashboard.token);
    // Whoever has sent it to the proxy is not known; a signed-in device needs no known process.
    let cookie = signed.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let (cookie, key) =
        (cookie.split(';').next().unwrap(), signed.json()["page_key"].as_str().unwrap().to_owned());
    let (as_script, as_device) = (
        [json, ("Authorization", bearer.as_str())],
        [json, ("Cookie", cookie), ("X-Caliban-Page", key.as_str())],
    );
    let (proxys, own) = (("Host", "fleet.test"), ("Host", dashboard.address.as_str()));
    for passed_on in [
        vec![proxys],
        vec![("Host", "FLEET.test")],
        vec![own, ("X-Forwarded-For", "10.0.0.7")],
        vec![own, ("Forwarded", "for=10.0.0.7")],
        vec![own, ("Via", "1.1 proxy")],
    ] {
        let post = |who: &[(&str, &str)]| {
            dashboard.with("POST", "/api/v1/links", &[who, &passed_on[..]].concat(), "{}").status
        };
        assert_eq!((post(&as_script), post(&as_device)), (403, 200), "{passed_on:?}");
        let get = [&as_script[1..], &passed_on[..]].concat();
        assert_eq!(dashboard.with("GET", "/api/v1/me", &get, "").status, 200, "{passed_on:?}");
    }
    assert_eq!(dashboard.with("POST", "/api/v1/links", &[&as_script[..], &[own]].concat(), "{}").status, 200);
    let other = [("Host", "other.test"), ("Authorization", bearer.as_str())];
    assert_eq!(dashboard.with("GET", "/api/v1/me", &other, "").code(), (421, "wrong_host".into()));
}
