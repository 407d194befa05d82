//! r15: clocks jump; the order of messages does not.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::world::World;

/// A library that moves the wall clock by `$CLOCK_SHIFT` seconds and leaves the monotonic one alone.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *at) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int said = real(id, at);
  const char *shift = getenv("CLOCK_SHIFT");
  if (said == 0 && id == CLOCK_REALTIME && shift) at->tv_sec += atol(shift);
  return said;
}
"#;

#[test]
fn r15_a_clock_that_jumps_a_day_changes_no_order() {
    let mut world = World::with_session();
    world.agent("bob");
    let (source, library) = (world.path("shim.c"), world.path("shim.so"));
    fs::write(&source, SHIM).expect("write");
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl").status();
    assert!(built.expect("cc").success());
    world.set("LD_PRELOAD", library.to_str().expect("path"));
    for (text, shift) in [("1", "0"), ("2", "86400"), ("3", "-86400"), ("4", "-3600"), ("5", "0")] {
        world.set("CLOCK_SHIFT", shift);
        world.send(text, "D", "bob", text);
    }
    let all: Vec<Value> = world.mailbox("bob");
    let texts: Vec<&str> = all.iter().map(|task| task["text"].as_str().expect("text")).collect();
    assert_eq!(texts, ["5", "4", "3", "2", "1"]);
    let stamps: Vec<&str> = all.iter().map(|task| task["created_at"].as_str().expect("ts")).collect();
    assert!(stamps.windows(2).any(|pair| pair[0] < pair[1]), "the clock did jump: {stamps:?}");
    let forward = world.json(&[
        "--session-id",
        "@S",
        "--json",
        "message",
        "poll",
        "--agent-id",
        "@bob",
        "--after",
        "0",
    ]);
    let forward: Vec<&str> =
        forward.as_array().expect("array").iter().map(|task| task["text"].as_str().expect("text")).collect();
    assert_eq!(forward, ["1", "2", "3", "4", "5"]);
}
