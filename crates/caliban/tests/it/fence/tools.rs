//! What must work inside: the tools of a day.

use serde_json::json;

use super::{go, result, results, run, script, settings};
use crate::place::Place;

#[test]
fn a17_make_a_compiler_and_tests_run_in_the_edit_fence() {
    let place = Place::new(script(&[
        json!({"command": "make && ./hello && make check"}),
        json!({"command": "/usr/bin/python3 -m unittest -q 2>&1"}),
        json!({"command": "sh -c 'mktemp -d; mktemp; echo x | tee $(mktemp) >/dev/null'"}),
    ]));
    place.env.write(
        place.repo.join("hello.c"),
        "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 0; }\n",
    );
    place.env.write(
        place.repo.join("Makefile"),
        "hello: hello.c\n\tcc -o hello hello.c\ncheck: hello\n\t./hello | grep -q hello\n",
    );
    place.env.write(
        place.repo.join("test_x.py"),
        "import unittest, socket, subprocess, multiprocessing\nclass T(unittest.TestCase):\n    def test_x(self):\n        \
         s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n        \
         c = socket.create_connection(s.getsockname())\n        a, b = socket.socketpair()\n        \
         self.assertEqual(subprocess.check_output(['echo', 'x']), b'x\\n')\n        \
         q = multiprocessing.get_context('fork').Queue()\n        q.put(1)\n        self.assertEqual(q.get(), 1)\n",
    );
    go(&place, "accept-edits", &[]);
    for (fence, text, code) in results(&place) {
        assert_eq!((fence.as_str(), code), ("edit", Some(0)), "{text}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "where this machine keeps its Rust")]
fn a17_cargo_builds_and_tests_in_the_edit_fence() {
    let place =
        Place::new(script(&[json!({"command": "cargo build --offline -q && cargo test --offline -q"})]));
    settings(&place, "[bash]\nenv_allow = [\"CARGO_HOME\", \"RUSTUP_HOME\"]\n");
    place.env.write(
        place.repo.join("Cargo.toml"),
        "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
    );
    place.env.write(
        place.repo.join("src/lib.rs"),
        "#[test]\nfn x() { assert!(std::net::TcpListener::bind(\"127.0.0.1:0\").is_ok()); }\n",
    );
    let home = std::path::PathBuf::from(std::env::var_os("HOME").unwrap());
    let or =
        |name: &str, directory: &str| std::env::var_os(name).map_or_else(|| home.join(directory), Into::into);
    let mut place = place;
    place.env.set("CARGO_HOME", or("CARGO_HOME", ".cargo")).set("RUSTUP_HOME", or("RUSTUP_HOME", ".rustup"));
    go(&place, "accept-edits", &[]);
    let (fence, text, code) = result(&place);
    assert_eq!((fence.as_str(), code), ("edit", Some(0)), "{text}");
    assert!(place.repo.join("target/debug").is_dir());
}

/// Runs this line in the project: in the edit fence, and well.
fn runs(place: &Place, line: &str) -> String {
    place.server.set_script(script(&[json!({"command": line})]));
    go(place, "accept-edits", &[]);
    let (fence, text, code) = result(place);
    assert_eq!((fence.as_str(), code), ("edit", Some(0)), "{line}: {text}");
    text
}

#[test]
fn a17_pytest_and_node_run_tests_in_the_edit_fence() {
    let place = Place::new(script(&[]));
    place.env.write(
        place.repo.join("test_it.py"),
        "def test_it(tmp_path, monkeypatch):\n    (tmp_path / 'x').write_text('x')\n    monkeypatch.chdir(tmp_path)\n    \
         assert open('x').read() == 'x'\n",
    );
    let text = runs(&place, "/usr/bin/python3 -m pytest -q");
    assert!(text.contains("1 passed"), "{text}");
    assert!(place.repo.join(".pytest_cache").is_dir());
    let place = Place::new(script(&[]));
    place.env.write(place.repo.join("it.test.js"), NODE_TEST);
    let text = runs(&place, "node --test");
    assert!(text.contains("# pass 1"), "{text}");
}

/// A test that listens, asks itself, and starts a process.
const NODE_TEST: &str = "const test = require('node:test'), http = require('node:http'), { execFileSync } = require('node:child_process');\n\
    test('it', async () => {\n  const server = http.createServer((_, answer) => answer.end('x')).listen(0, '127.0.0.1');\n  \
    await new Promise((go) => server.once('listening', go));\n  \
    const answer = await fetch(`http://127.0.0.1:${server.address().port}/`);\n  \
    if ((await answer.text()) !== 'x' || execFileSync('echo', ['y']).toString() !== 'y\\n') throw new Error('other');\n  \
    server.close();\n});\n";

fn is_there(program: &str) -> bool {
    std::process::Command::new(program).arg("version").output().is_ok_and(|output| output.status.success())
}

#[test]
fn a17_npm_test_runs_in_the_edit_fence() {
    if !is_there("npm") {
        return testkit::skip(testkit::Lack::LargeTools);
    }
    let place = Place::new(script(&[]));
    // The cache of a user who has used it before; it can be read and not changed.
    place.env.write(place.env.root().join("home/.npm/_cacache/x"), "");
    place.env.write(
        place.repo.join("package.json"),
        r#"{"name": "x", "version": "1.0.0", "scripts": {"test": "node --test"}}"#,
    );
    place.env.write(place.repo.join("it.test.js"), NODE_TEST);
    let text = runs(&place, "npm test");
    assert!(text.contains("# pass 1"), "{text}");
}

#[test]
fn a17_go_builds_and_tests_in_the_edit_fence() {
    if !is_there("go") {
        return testkit::skip(testkit::Lack::LargeTools);
    }
    let place = Place::new(script(&[]));
    place.env.write(place.repo.join("go.mod"), "module example.org/x\n\ngo 1.19\n");
    place.env.write(
        place.repo.join("main.go"),
        "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(\"built\") }\n",
    );
    place.env.write(
        place.repo.join("main_test.go"),
        "package main\n\nimport \"testing\"\n\nfunc TestIt(t *testing.T) { main() }\n",
    );
    // Seen: the cache of a user who has used it before could only be read, and Go failed.
    let before = place
        .env
        .program("go")
        .args(["vet", "."])
        .env_remove("XDG_CACHE_HOME")
        .current_dir(&place.repo)
        .output()
        .unwrap();
    assert!(before.status.success(), "{before:?}");
    assert!(place.env.root().join("home/.cache/go-build").is_dir());
    let text = runs(&place, "go build -o x . && ./x && go test ./...");
    assert!(text.contains("built") && text.contains("ok"), "{text}");
}

/// As the reference says: a browser makes no namespaces of its own there.
#[test]
fn a17_a_browser_shows_a_page_of_the_fences_own_loopback() {
    let place = Place::new(script(&[]));
    place.env.write(
        place.repo.join("page.html"),
        "<!doctype html><p id=a></p><script>document.getElementById('a').textContent = 'it ' + 'ran'</script>",
    );
    let text = runs(
        &place,
        "/usr/bin/python3 -m http.server 8766 --bind 127.0.0.1 >/dev/null 2>&1 & \
         curl -s -o /dev/null --retry 50 --retry-delay 1 --retry-connrefused http://127.0.0.1:8766/page.html; \
         chromium --headless=new --no-sandbox --disable-gpu --dump-dom http://127.0.0.1:8766/page.html 2>/dev/null; kill %1",
    );
    assert!(text.contains("<p id=\"a\">it ran</p>"), "{text}");
}

#[test]
fn a17_a_server_on_the_loopback_serves_inside_and_is_not_seen_outside() {
    let line = "/usr/bin/python3 -m http.server 8765 --bind 127.0.0.1 >/dev/null 2>&1 & \
        curl -s --retry 50 --retry-delay 1 --retry-connrefused http://127.0.0.1:8765/seen.txt; kill %1";
    let place = Place::new(script(&[json!({"command": line})]));
    place.env.write(place.repo.join("seen.txt"), "seen\n");
    go(&place, "accept-edits", &[]);
    let (fence, text, _) = result(&place);
    assert_eq!(fence, "edit");
    assert!(text.starts_with("seen\n"), "{text}");
    assert!(std::net::TcpStream::connect("127.0.0.1:8765").is_err());
}

#[test]
fn a17_git_reads_and_the_working_directory_is_kept() {
    let place = run(
        "accept-edits",
        &[
            "mkdir -p deep && cd deep && git status --short && git log --oneline | wc -l",
            "pwd; git diff --stat",
        ],
    );
    let results = results(&place);
    assert_eq!(results[0].2, Some(0), "{results:?}");
    assert!(results[1].1.starts_with(&place.repo.join("deep").display().to_string()), "{results:?}");
}

/// What was too long for the model is in a file that its commands can read.
#[test]
fn a17_a_whole_output_can_be_read_in_the_fence() {
    let place = Place::new(script(&[json!({"command": "/usr/bin/python3 -c \"print('line\\n' * 60000)\""})]));
    go(&place, "accept-edits", &[]);
    let (_, text, _) = result(&place);
    let session = place.session();
    let output = std::fs::read_dir(session.join("outputs")).unwrap().next().unwrap().unwrap().path();
    assert!(text.contains(&output.display().to_string()), "{text}");
    place.server.set_script(script(&[json!({"command": format!("tail -n 3 {}", output.display())})]));
    place.ask("go", ["--permission-mode", "accept-edits", "--resume", &place.session_id()]).ok();
    assert!(results(&place).last().unwrap().1.starts_with("line\n"), "{:?}", results(&place).last());
}

/// `/tmp` is the agent's own, from one command to the next.
#[test]
fn a17_tmp_is_kept_between_the_commands_of_an_agent() {
    let place = run(
        "accept-edits",
        &[
            "/usr/bin/python3 -c \"open('/tmp/kept','w').write('kept')\"",
            "/usr/bin/python3 -c \"print(open('/tmp/kept').read())\"",
        ],
    );
    assert_eq!(results(&place)[1].1.trim(), "kept");
    assert!(!std::path::Path::new("/tmp/kept").exists());
}
