//! A tab of a headless Chromium for a program that measures: each line on stdin is one order in JSON, each line on stdout its answer.
//!
//! `{"goto": URL}`, `{"see": [SELECTOR, WORDS]}`, `{"eval": EXPRESSION}` (its value), `{"hide": BOOL}`, `{"heap": true}` (bytes after a
//! collection), `{"cpu": true}` (seconds). Ends with its stdin.

use std::io::{BufRead as _, Write as _};

use serde_json::{Value, json};
use testkit::{Browser, Env};

fn main() -> std::io::Result<()> {
    let env = Env::new();
    let browser = Browser::start(&env);
    let page = browser.page();
    page.size(1600, 900);
    let mut out = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        let order: Value = serde_json::from_str(&line?)?;
        let answer = if let Some(url) = order["goto"].as_str() {
            page.goto(url);
            Value::Null
        } else if let Some(expression) = order["eval"].as_str() {
            page.eval(expression)
        } else if let (Some(selector), Some(words)) = (order["see"][0].as_str(), order["see"][1].as_str()) {
            page.see(selector, words);
            Value::Null
        } else if let Some(is_hidden) = order["hide"].as_bool() {
            page.hide(is_hidden);
            Value::Null
        } else if order["cpu"] == true {
            json!(page.cpu())
        } else {
            json!(page.heap())
        };
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}
