//! What is refused at the door, each in one clear line with nothing written.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::world::{World, refused};

fn one() -> World {
    let world = World::with_session();
    world.agent("bob");
    world
}

const SEND: [&str; 7] = ["--session-id", "@S", "message", "send", "--agent-id", "@D", "--to"];

#[test]
fn texts_come_from_a_flag_a_file_or_standard_input() {
    let world = one();
    fs::write(world.path("body.txt"), "from a file\n").expect("write");
    let send = |more: &[&str], stdin: &[u8]| {
        world.run_with_stdin(&[&SEND[..], &["@bob", "--quiet"], more].concat(), stdin).code
    };
    assert_eq!(send(&["--text", "-dash"], b""), 0);
    assert_eq!(send(&["--text-file", "body.txt"], b""), 0);
    assert_eq!(send(&["--text-file", "-"], "from stdin \u{1f600}".as_bytes()), 0);
    assert_eq!(send(&["--text", "-"], b"not read"), 0);
    let texts: Vec<String> = world
        .mailbox("bob")
        .iter()
        .rev()
        .map(|task| task["text"].as_str().expect("text").to_owned())
        .collect();
    assert_eq!(texts, ["-dash", "from a file\n", "from stdin \u{1f600}", "-"]);
}

#[test]
fn a14_bad_texts_are_refused_in_one_line() {
    let world = one();
    let send =
        |more: &[&str], stdin: &[u8]| world.run_with_stdin(&[&SEND[..], &["@bob"], more].concat(), stdin);
    assert_eq!(send(&["--text", ""], b""), refused("the message text is empty; nothing was sent"));
    assert_eq!(send(&["--text", " \n\t"], b""), refused("the message text is empty; nothing was sent"));
    assert_eq!(
        send(&["--text-file", "-"], b"a\0b"),
        refused("the message text contains a NUL character; nothing was sent")
    );
    assert_eq!(send(&["--text-file", "-"], b"\xff"), refused("- is not UTF-8 text; nothing was sent"));
    assert_eq!(
        send(&["--text-file", "-"], &vec![b'x'; 10 * 1024 * 1024]),
        refused("the message text is too long (larger); the limit is 1048576 bytes; nothing was sent")
    );
    assert_eq!(
        send(&["--text-file", "missing"], b""),
        refused("cannot read missing: No such file or directory (os error 2)")
    );
    assert_eq!(world.mailbox("bob").len(), 0);
    assert_eq!(send(&["--text-file", "-", "--quiet"], &vec![b'x'; 1024 * 1024]).code, 0);
    assert_eq!(world.mailbox("bob")[0]["text"].as_str().map(str::len), Some(1024 * 1024));
}

#[test]
fn a14_a_text_without_end_is_read_only_to_the_limit() {
    let world = one();
    let said = world.run(&[&SEND[..], &["@bob", "--text-file", "/dev/zero"]].concat());
    assert_eq!(
        said,
        refused("the message text is too long (larger); the limit is 1048576 bytes; nothing was sent")
    );
}

#[test]
fn a_database_of_another_program_is_left_alone() {
    let world = World::new();
    let file = world.database();
    fs::create_dir_all(file.parent().expect("parent")).expect("mkdir");
    let made = world
        .program("sqlite3", &[file.to_str().expect("path"), "CREATE TABLE alembic_version (v TEXT)"])
        .status();
    assert!(made.expect("sqlite3").success());
    let before = fs::read(&file).expect("read");
    let words = "<dir>/home/.local/share/cafleet/registry.db has tables but no schema version of this program; it was \
                 made by another program (set CAFLEET_DATABASE_URL to another file)";
    for args in [&["db", "init"][..], &["session", "list"]] {
        assert_eq!(world.run(args), refused(words));
    }
    assert_eq!(fs::read(&file).expect("read"), before);
}

#[test]
fn r22_a_newer_schema_is_not_downgraded() {
    let world = one();
    let file = world.database();
    let bumped =
        world.program("sqlite3", &[file.to_str().expect("path"), "PRAGMA user_version = 99"]).status();
    assert!(bumped.expect("sqlite3").success());
    let words = format!(
        "<dir>/home/.local/share/cafleet/registry.db has schema 99, this build knows {}; refusing to downgrade (use a newer build)",
        caliban_store::broker::SCHEMA.version()
    );
    assert_eq!(world.run(&["session", "list"]), refused(&words));
    assert_eq!(world.run(&["db", "init"]), refused(&words));
}

#[test]
fn a_damaged_database_is_named() {
    let world = World::new();
    let file = world.database();
    fs::create_dir_all(file.parent().expect("parent")).expect("mkdir");
    fs::write(&file, "this is not a database, but it is long enough to be taken for one: ".repeat(100))
        .expect("write");
    let before = fs::read(&file).expect("read");
    assert_eq!(
        world.run(&["session", "list"]),
        refused(
            "<dir>/home/.local/share/cafleet/registry.db is damaged or not a database (file is not a database); \
                 restore a copy or move it away"
        )
    );
    assert_eq!(fs::read(&file).expect("read"), before);
}

#[test]
fn a_database_that_is_a_directory_or_below_a_file_cannot_be_opened() {
    let world = World::new();
    fs::create_dir_all(world.database()).expect("mkdir");
    let said = world.run(&["session", "list"]);
    assert_eq!((said.code, said.out.as_str(), said.err.lines().count()), (1, "", 1), "{said:?}");
    assert!(said.err.starts_with("Error: cannot open the database <dir>/home"), "{}", said.err);
    let mut world = World::new();
    fs::write(world.path("file"), "x").expect("write");
    world.set("CAFLEET_DATABASE_URL", format!("sqlite:///{}", world.path("file/x.db").display()));
    assert_eq!(
        world.run(&["session", "list"]),
        refused("cannot open the database <dir>/file/x.db: <dir>/file is not a directory")
    );
}

#[test]
fn a_read_only_database_is_named() {
    if !testkit::file_modes_count() {
        return;
    }
    let world = one();
    let dir = world.database().parent().expect("parent").to_owned();
    // Everybody may look, nobody may write.
    for entry in fs::read_dir(&dir).expect("dir").flatten() {
        fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o444)).expect("chmod");
    }
    let mut up = dir.clone();
    while up.starts_with(world.path("")) {
        fs::set_permissions(&up, fs::Permissions::from_mode(0o555)).expect("chmod");
        up.pop();
    }
    let said = world.run(&[&SEND[..], &["@bob", "--text", "x"]].concat());
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("chmod");
    let mut up = dir.clone();
    while up.starts_with(world.path("")) {
        fs::set_permissions(&up, fs::Permissions::from_mode(0o755)).expect("chmod");
        up.pop();
    }
    assert_eq!(
        said,
        refused("the database <dir>/home/.local/share/cafleet/registry.db is read-only; nothing was written")
    );
    assert_eq!(world.mailbox("bob").len(), 0);
}
