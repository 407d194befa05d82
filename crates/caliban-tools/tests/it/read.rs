//! Read.

use std::{fs, os::unix::fs::symlink, process::Command};

use caliban_core::message::ResultPart;
use caliban_tools::ToolOutput;
use serde_json::json;

use crate::bench::Bench;

#[tokio::test]
async fn lines_are_numbered_and_ranges_continue() {
    let bench = Bench::new();
    bench.put("f", "one\ntwo\nthree\nfour");
    assert_eq!(
        bench.call("Read", json!({"file_path": "f"})).await,
        ToolOutput::text("     1\tone\n     2\ttwo\n     3\tthree\n     4\tfour\n", "f: 4 lines")
    );
    assert_eq!(
        bench.ok("Read", json!({"file_path": "f", "offset": 2, "limit": 2})).await,
        "     2\ttwo\n     3\tthree\n[lines 2-3 of 4; continue with offset 4]\n"
    );
    assert_eq!(
        bench.err("Read", json!({"file_path": "f", "offset": 9})).await,
        "f has 4 lines; offset 9 is beyond its end"
    );
    bench.put("empty", "");
    assert_eq!(bench.ok("Read", json!({"file_path": "empty"})).await, "[the file is empty]");
}

#[tokio::test]
async fn long_files_and_long_lines_are_cut() {
    let bench = Bench::new();
    let lines: String = (1..=2_500).map(|n| format!("{n}\n")).collect();
    bench.put("many", lines);
    let text = bench.ok("Read", json!({"file_path": "many"})).await;
    assert!(text.ends_with("  2000\t2000\n[lines 1-2000 of 2500; continue with offset 2001]\n"));

    bench.put("long", format!("{}\nnext\n", "ä".repeat(3_000)));
    let shown = "ä".repeat(2_000);
    assert_eq!(
        bench.ok("Read", json!({"file_path": "long"})).await,
        format!("     1\t{shown}… [2000 bytes of this line left out]\n     2\tnext\n")
    );

    bench.put("wide", format!("{}\n", "x".repeat(1_900)).repeat(100));
    let text = bench.ok("Read", json!({"file_path": "wide"})).await;
    assert!(text.len() < 101_000, "{}", text.len());
    assert!(text.ends_with("[lines 1-52 of 100; continue with offset 53]\n"), "{}", &text[text.len() - 80..]);
}

#[tokio::test]
async fn a14_a_line_of_a_gigabyte_is_bounded() {
    let bench = Bench::new();
    let path = bench.path("sparse");
    let file = fs::File::create(&path).unwrap();
    // Text at the start, then a hole: one line of a gigabyte without using the disk.
    std::io::Write::write_all(&mut &file, "x".repeat(10_000).as_bytes()).unwrap();
    file.set_len(1 << 30).unwrap();
    let text = bench.ok("Read", json!({"file_path": "sparse"})).await;
    let left = (1_u64 << 30) - 2_000;
    assert_eq!(text, format!("     1\t{}… [{left} bytes of this line left out]\n", "x".repeat(2_000)));
}

#[tokio::test]
async fn pictures_come_as_pictures() {
    let bench = Bench::new();
    bench.put("p.png", b"\x89PNG\r\n\x1a\nrest");
    assert_eq!(
        bench.call("Read", json!({"file_path": "p.png"})).await,
        ToolOutput {
            content: vec![ResultPart::Image {
                media_type: "image/png".into(),
                data: "iVBORw0KGgpyZXN0".into()
            }],
            summary: "p.png: picture, 12 bytes".into(),
            ..ToolOutput::default()
        }
    );
    for (name, bytes, media_type) in [
        ("a", &b"\xff\xd8\xff\xe0"[..], "image/jpeg"),
        ("b", b"GIF89a..", "image/gif"),
        ("c", b"RIFF1234WEBPVP8 ", "image/webp"),
    ] {
        bench.put(name, bytes);
        let output = bench.call("Read", json!({"file_path": name})).await;
        let got = match &output.content[..] {
            [ResultPart::Image { media_type, .. }] => media_type.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(got, media_type);
    }
    let mut big = b"\x89PNG\r\n\x1a\n".to_vec();
    big.resize(4_000_000, 1);
    bench.put("big.png", big);
    assert_eq!(
        bench.err("Read", json!({"file_path": "big.png"})).await,
        "big.png is a picture of more than 3.6 MB; make a smaller copy and read that"
    );
}

#[tokio::test]
async fn what_is_no_text_is_refused_in_words() {
    let bench = Bench::new();
    bench.put("bin", b"\x7fELF\0\0\0");
    assert_eq!(bench.err("Read", json!({"file_path": "bin"})).await, "bin is a binary file (7 bytes)");
    bench.put("u16", b"\xff\xfea\0b\0");
    assert_eq!(
        bench.err("Read", json!({"file_path": "u16"})).await,
        "u16 is UTF-16 text; convert it first: iconv -f UTF-16 -t UTF-8"
    );
    fs::create_dir(bench.path("d")).unwrap();
    assert_eq!(
        bench.err("Read", json!({"file_path": "d"})).await,
        "d is a directory; use Glob with `d/*`, or Bash with ls"
    );
    assert!(Command::new("mkfifo").arg(bench.path("fifo")).status().unwrap().success());
    for name in ["fifo", "/dev/zero"] {
        assert_eq!(
            bench.err("Read", json!({"file_path": name})).await,
            format!("{name} is a pipe, a socket or a device, not a file")
        );
    }
    bench.put("main.rs", "");
    assert_eq!(
        bench.err("Read", json!({"file_path": "mian.rs"})).await,
        "mian.rs does not exist; in that directory there is main.rs"
    );
    assert_eq!(
        bench.err("Read", json!({"file_path": "main.rs/x"})).await,
        "main.rs/x: a part of the path is not a directory"
    );
    symlink("loop", bench.path("loop")).unwrap();
    assert!(bench.err("Read", json!({"file_path": "loop"})).await.starts_with("loop: "));
}

#[tokio::test]
async fn invalid_utf8_crlf_and_byte_order_marks_are_said() {
    let bench = Bench::new();
    bench.put("latin", b"caf\xe9\nok\n");
    assert_eq!(
        bench.ok("Read", json!({"file_path": "latin"})).await,
        "     1\tcaf\u{fffd}\n     2\tok\n[not all of it is valid UTF-8; such bytes are shown as \u{fffd}]\n"
    );
    bench.put("dos", b"\xef\xbb\xbfone\r\ntwo\r\n");
    assert_eq!(
        bench.ok("Read", json!({"file_path": "dos"})).await,
        "     1\tone\n     2\ttwo\n[lines end with CRLF; Edit and Write keep them so]\n"
    );
}

#[tokio::test]
async fn files_of_proc_are_read_although_they_have_no_size() {
    let bench = Bench::new();
    let text = bench.ok("Read", json!({"file_path": "/proc/self/status"})).await;
    assert!(text.contains("Name:"), "{text}");
}
