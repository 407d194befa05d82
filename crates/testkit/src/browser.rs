//! A headless Chromium, driven over its debugging pipe (CDP, messages that end with NUL).
//!
//! Owns the process and the complaints of its pages. Reaches nothing but loopback: all of the browser's own traffic is
//! switched off. Keys and clicks are real input events; everything waits on conditions.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Env;
use crate::wait::{LIMIT, poll_until};

/// The interval at which a condition is checked.
const POLL: Duration = Duration::from_millis(30);

const FLAGS: [&str; 14] = [
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--no-first-run",
    "--no-default-browser-check",
    "--force-device-scale-factor=1",
    "--hide-scrollbars",
    "--lang=en-US",
];

/// The position of an element. Until `end`, which returns whether it was clicked, the mouse reaches no other element.
const AIM: &str = "(() => {
  const it = FOUND;
  if (!it) { window.aim = { end() { delete window.aim; return false; } }; return [0, 0]; }
  let isHit = false;
  const judge = (event) => {
    if (isHit) return;
    const reaches = event.composedPath().includes(it);
    if (!reaches) { event.preventDefault(); event.stopImmediatePropagation(); }
    else if (event.type === 'click') isHit = true;
  };
  const kinds = ['pointerdown', 'mousedown', 'pointerup', 'mouseup', 'click'];
  for (const kind of kinds) window.addEventListener(kind, judge, true);
  window.aim = { end() { for (const kind of kinds) window.removeEventListener(kind, judge, true); delete window.aim; return isHit; } };
  it.scrollIntoView({ block: 'nearest' });
  const at = it.getBoundingClientRect();
  return [at.x + at.width / 2, at.y + at.height / 2];
})()";

/// A running browser, killed when this is dropped.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    pipe: Mutex<ChildStdin>,
    heard: Arc<BrowserMessages>,
    next: AtomicU64,
}

#[derive(Debug, Default)]
struct BrowserMessages {
    state: Mutex<BrowserState>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct BrowserState {
    answers: HashMap<u64, Value>,
    /// By session, in order of arrival.
    complaints: HashMap<String, Vec<String>>,
}

/// A tab.
#[derive(Debug)]
pub struct BrowserTab<'a> {
    browser: &'a Browser,
    target: String,
    session: String,
}

impl Browser {
    /// Starts Chromium with a profile of its own in the environment's temp dir.
    #[track_caller]
    pub fn start(env: &Env) -> Self {
        // The pipe is file descriptors 3 (to the browser) and 4 (from it): a shell puts our two there.
        let mut command = env.program("sh");
        command
            .args(["-c", "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "chromium"])
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", env.tmp().join("chromium").display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("chromium (Debian: apt-get install chromium)");
        let pipe = Mutex::new(child.stdin.take().unwrap());
        let mut from = BufReader::new(child.stdout.take().unwrap());
        let heard = Arc::new(BrowserMessages::default());
        let ear = Arc::clone(&heard);
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while from.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                message.pop();
                ear.take(&serde_json::from_slice(&message).unwrap_or_default());
                message.clear();
            }
        });
        Self { child, pipe, heard, next: AtomicU64::new(1) }
    }

    /// A new tab in a profile of its own, without cookies and storage of other tabs.
    pub fn page(&self) -> BrowserTab<'_> {
        let context = self.call(None, "Target.createBrowserContext", &json!({}))["browserContextId"].clone();
        self.open(&json!({ "url": "about:blank", "browserContextId": context }))
    }

    fn open(&self, how: &Value) -> BrowserTab<'_> {
        let target = self.call(None, "Target.createTarget", how)["targetId"].as_str().unwrap().to_owned();
        let attached =
            self.call(None, "Target.attachToTarget", &json!({ "targetId": target, "flatten": true }));
        let session = attached["sessionId"].as_str().unwrap().to_owned();
        let page = BrowserTab { browser: self, target, session };
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            page.call(domain, &json!({}));
        }
        page
    }

    #[track_caller]
    fn call(&self, session: Option<&str>, method: &str, params: &Value) -> Value {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = json!(session);
        }
        {
            let mut pipe = self.pipe.lock().unwrap();
            pipe.write_all(format!("{message}\0").as_bytes()).expect("the browser has ended");
            pipe.flush().unwrap();
        }
        let deadline = Instant::now() + LIMIT;
        let mut state = self.heard.state.lock().unwrap();
        loop {
            if let Some(answer) = state.answers.remove(&id) {
                assert!(answer["error"].is_null(), "{method} {params}: {}", answer["error"]);
                return answer["result"].clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{method} was not answered in {} s", LIMIT.as_secs());
            state = self.heard.news.wait_timeout(state, left).unwrap().0;
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl BrowserMessages {
    fn take(&self, message: &Value) {
        let mut state = self.state.lock().unwrap();
        if let Some(id) = message["id"].as_u64() {
            state.answers.insert(id, message.clone());
        }
        if let Some(complaint) = complaint(message) {
            let session = message["sessionId"].as_str().unwrap_or_default().to_owned();
            state.complaints.entry(session).or_default().push(complaint);
        }
        self.news.notify_all();
    }
}

/// A message of a page that counts as a complaint.
fn complaint(message: &Value) -> Option<String> {
    let params = &message["params"];
    match message["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(params["exceptionDetails"].to_string()),
        "Runtime.consoleAPICalled" if params["type"] == "error" || params["type"] == "warning" => {
            Some(params["args"].to_string())
        }
        "Log.entryAdded" if params["entry"]["level"] == "error" => {
            Some(format!("{} {}", params["entry"]["text"], params["entry"]["url"]))
        }
        _ => None,
    }
}

impl BrowserTab<'_> {
    /// Another tab of the same profile.
    pub fn sibling(&self) -> Self {
        let info = self.browser.call(None, "Target.getTargetInfo", &json!({ "targetId": self.target }));
        let context = &info["targetInfo"]["browserContextId"];
        self.browser.open(&json!({ "url": "about:blank", "browserContextId": context }))
    }

    #[track_caller]
    fn call(&self, method: &str, params: &Value) -> Value {
        self.browser.call(Some(&self.session), method, params)
    }

    /// Opens an address and waits until it is loaded.
    #[track_caller]
    pub fn goto(&self, url: &str) {
        let answer = self.call("Page.navigate", &json!({ "url": url }));
        assert!(answer["errorText"].is_null(), "{url}: {}", answer["errorText"]);
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'");
    }

    /// Width and height of the window.
    #[track_caller]
    pub fn size(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Light or dark.
    #[track_caller]
    pub fn scheme(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    /// Takes the network away, or gives it back.
    #[track_caller]
    pub fn offline(&self, is_offline: bool) {
        self.call("Network.enable", &json!({}));
        let how =
            json!({ "offline": is_offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1 });
        self.call("Network.emulateNetworkConditions", &how);
    }

    /// The value of an expression, awaited if it is a promise.
    #[track_caller]
    pub fn eval(&self, expression: &str) -> Value {
        let how = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", &how);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn wait(&self, expression: &str) {
        let holds = || {
            // While a page loads, the old execution context answers with an error.
            let how = json!({ "expression": format!("Boolean({expression})"), "returnByValue": true });
            let is_true = self.call("Runtime.evaluate", &how)["result"]["value"] == true;
            if !is_true {
                std::thread::sleep(POLL);
            }
            is_true
        };
        if !poll_until(holds) {
            let shown = self.eval("location.href + '\\n' + document.body.innerText.slice(0, 3000)");
            panic!("waited {} s in vain for {expression} on {shown}", LIMIT.as_secs());
        }
    }

    /// Waits until there is an element whose text contains these words.
    #[track_caller]
    pub fn see(&self, selector: &str, words: &str) {
        self.wait(&format!(
            "[...document.querySelectorAll({selector})].some((it) => it.textContent.includes({words}))",
            selector = json!(selector),
            words = json!(words)
        ));
    }

    /// Clicks the middle of an element, once it exists and is not disabled.
    ///
    /// A page may move the element between the look and the click. Such a click hits nothing and is repeated.
    #[track_caller]
    pub fn click(&self, selector: &str) {
        let found = format!("document.querySelector({})", json!(selector));
        let is_hit = || {
            self.wait(&format!("{found} && !{found}.disabled"));
            let place = self.eval(&AIM.replace("FOUND", &found));
            for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
                let event =
                    json!({ "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1 });
                self.call("Input.dispatchMouseEvent", &event);
            }
            // A click that opens another document removes `window.aim`, so it counts as a hit.
            let is_hit = "window.aim ? window.aim.end() : true";
            let how = json!({ "expression": is_hit, "returnByValue": true });
            self.call("Runtime.evaluate", &how)["result"]["value"] != false
        };
        assert!(poll_until(is_hit), "{selector} was not hit in {} s", LIMIT.as_secs());
    }

    /// Presses a key, such as `j`, `Enter`, `Escape`, `Tab`, `Shift+Y` or `Ctrl+k`.
    #[track_caller]
    pub fn press(&self, key: &str) {
        let (modifiers, name) = match key.split_once('+') {
            Some(("Ctrl", name)) => (2, name),
            Some(("Shift", name)) => (8, name),
            _ => (0, key),
        };
        let text = match name {
            "Enter" => Some("\r"),
            name if name.chars().count() == 1 && modifiers != 2 => Some(name),
            _ => None,
        };
        let code = match name {
            "Enter" => 13,
            "Escape" => 27,
            "Tab" => 9,
            "ArrowUp" => 38,
            "ArrowDown" => 40,
            name => name.chars().next().map_or(0, |first| first.to_ascii_uppercase() as u32),
        };
        let mut event =
            json!({ "type": "keyDown", "key": name, "modifiers": modifiers, "windowsVirtualKeyCode": code });
        if let Some(text) = text {
            event["text"] = json!(text);
        }
        self.call("Input.dispatchKeyEvent", &event);
        event["type"] = json!("keyUp");
        self.call("Input.dispatchKeyEvent", &event);
    }

    /// Types into the focused element.
    #[track_caller]
    pub fn type_text(&self, text: &str) {
        self.call("Input.insertText", &json!({ "text": text }));
    }

    /// The size of its JavaScript heap in bytes, after a garbage collection.
    #[track_caller]
    pub fn heap(&self) -> f64 {
        self.call("HeapProfiler.collectGarbage", &json!({}));
        self.call("Runtime.getHeapUsage", &json!({}))["usedSize"].as_f64().unwrap_or_default()
    }

    /// Shows this tab instead of the others of its window.
    #[track_caller]
    pub fn front(&self) {
        self.call("Page.bringToFront", &json!({}));
        self.wait("!document.hidden");
    }

    /// Delays every request.
    #[track_caller]
    pub fn slow(&self, delay: Duration) {
        self.call("Network.enable", &json!({}));
        let how = json!({ "offline": false, "latency": delay.as_millis(), "downloadThroughput": -1, "uploadThroughput": -1 });
        self.call("Network.emulateNetworkConditions", &how);
    }

    /// Runs a script in every document that is opened from now on, before its own.
    #[track_caller]
    pub fn before_scripts(&self, script: &str) {
        self.call("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": script }));
    }

    /// Takes the window off the screen, or puts it back: `document.visibilityState`.
    #[track_caller]
    pub fn hide(&self, is_hidden: bool) {
        let window =
            self.browser.call(None, "Browser.getWindowForTarget", &json!({ "targetId": self.target }));
        let state = if is_hidden { "minimized" } else { "normal" };
        let how = json!({ "windowId": window["windowId"], "bounds": { "windowState": state } });
        self.browser.call(None, "Browser.setWindowBounds", &how);
        self.wait(&format!("document.hidden === {is_hidden}"));
    }

    /// The CPU seconds that the pages of this browser have used.
    #[track_caller]
    pub fn cpu(&self) -> f64 {
        let all = self.browser.call(None, "SystemInfo.getProcessInfo", &json!({}));
        let pages = all["processInfo"].as_array().into_iter().flatten().filter(|it| it["type"] == "renderer");
        pages.filter_map(|it| it["cpuTime"].as_f64()).sum()
    }

    /// The page's complaints since the last call: errors and warnings on the console, exceptions, refused requests.
    pub fn complaints(&self) -> Vec<String> {
        self.browser.heard.state.lock().unwrap().complaints.remove(&self.session).unwrap_or_default()
    }

    /// Closes the tab.
    pub fn close(self) {
        self.browser.call(None, "Target.closeTarget", &json!({ "targetId": self.target }));
    }
}
