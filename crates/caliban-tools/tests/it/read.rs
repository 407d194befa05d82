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
    big.resize(22_000_000, 1);
    bench.put("big.png", big);
    assert_eq!(
        bench.err("Read", json!({"file_path": "big.png"})).await,
        "big.png is a picture of more than 20.0 MB; make a smaller copy and read that"
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

/// A PDF of these pages, each with one line.
fn pdf(pages: &[&str]) -> Vec<u8> {
    let kids: Vec<String> = (0..pages.len()).map(|page| format!("{} 0 R", 4 + 2 * page)).collect();
    let mut objects = vec![
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        format!("<< /Type /Pages /Kids [{}] /Count {} >>", kids.join(" "), pages.len()),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>".to_owned(),
    ];
    for (page, text) in pages.iter().enumerate() {
        objects.push(format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {} 0 R \
             /Resources << /Font << /F1 3 0 R >> >> >>",
            5 + 2 * page
        ));
        let content = format!("BT /F1 12 Tf 72 720 Td ({text}) Tj ET");
        objects.push(format!("<< /Length {} >>\nstream\n{content}\nendstream", content.len()));
    }
    let mut file = b"%PDF-1.4\n".to_vec();
    let mut places = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        places.push(file.len());
        file.extend(format!("{} 0 obj\n{object}\nendobj\n", index + 1).into_bytes());
    }
    let start = file.len();
    let lines: String = places.iter().map(|place| format!("{place:010} 00000 n \n")).collect();
    let size = objects.len() + 1;
    file.extend(
        format!("xref\n0 {size}\n0000000000 65535 f \n{lines}trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n")
            .into_bytes(),
    );
    file
}

#[tokio::test]
async fn the_text_of_a_pdf_is_read_page_by_page() {
    let bench = Bench::new();
    bench.put("paper.pdf", pdf(&["All work and no play", "The end"]));
    let note = "[the text of a PDF; layout and pictures are lost]\n";
    assert_eq!(
        bench.ok("Read", json!({"file_path": "paper.pdf"})).await,
        format!("     1\t[page 1]\n     2\tAll work and no play\n     3\t[page 2]\n     4\tThe end\n{note}")
    );
    let part = bench.ok("Read", json!({"file_path": "paper.pdf", "offset": 4})).await;
    assert_eq!(part, format!("     4\tThe end\n{note}"));
    bench.put("scan.pdf", pdf(&[""]));
    let words = "scan.pdf is a PDF of 1 page without text: its pages are pictures";
    assert_eq!(bench.err("Read", json!({"file_path": "scan.pdf"})).await, words);
    bench.put("broken.pdf", "%PDF-1.7\nnot really");
    let error = bench.err("Read", json!({"file_path": "broken.pdf"})).await;
    assert!(error.starts_with("broken.pdf is a PDF that cannot be read: "), "{error}");
}

#[tokio::test]
async fn a_notebook_is_read_as_text_and_its_json_on_request() {
    let bench = Bench::new();
    let notebook = json!({"cells": [
        {"cell_type": "markdown", "source": ["# Title\n", "words"]},
        {"cell_type": "code", "source": "print(1)", "outputs": [
            {"output_type": "stream", "text": ["1\n"]},
            {"output_type": "display_data", "data": {"image/png": "iVBO", "text/plain": "<Figure>"}},
            {"output_type": "error", "ename": "ValueError", "evalue": "no"},
        ]},
    ]});
    bench.put("n.ipynb", serde_json::to_string_pretty(&notebook).unwrap());
    let lines = [
        "[cell 1: markdown]",
        "# Title",
        "words",
        "[cell 2: code]",
        "print(1)",
        "[output]",
        "1",
        "[output]",
        "<Figure>",
        "[a picture of type image/png, left out]",
        "[output]",
        "ValueError: no",
    ];
    let numbered: String =
        lines.iter().zip(1..).map(|(line, number)| format!("{number:>6}\t{line}\n")).collect();
    let note = "[a notebook as text; with offset or limit you see its JSON, which Edit and Write change]\n";
    assert_eq!(bench.ok("Read", json!({"file_path": "n.ipynb"})).await, format!("{numbered}{note}"));
    let part = bench.ok("Read", json!({"file_path": "n.ipynb", "limit": 2})).await;
    assert!(part.starts_with("     1\t{\n     2\t  \"cells\": ["), "{part}");
    // What was shown is not what is in the file.
    let error = bench.err("Write", json!({"file_path": "n.ipynb", "content": "{}"})).await;
    assert!(error.starts_with("n.ipynb holds more than you have seen"), "{error}");
    bench.put("other.ipynb", "{}\n");
    assert_eq!(bench.ok("Read", json!({"file_path": "other.ipynb"})).await, "     1\t{}\n");
}

#[tokio::test]
async fn a_path_that_is_wrong_is_answered_with_the_file_that_was_meant() {
    let bench = Bench::new();
    bench.put("crates/core/src/parse.rs", "");
    bench.put("tests/parse.rs", "");
    let error = async |path: &str| bench.err("Read", json!({"file_path": path})).await;
    assert_eq!(
        error("src/parse.rs").await,
        format!(
            "src/parse.rs does not exist; the last directory that does is {}; of that name there is \
             crates/core/src/parse.rs, tests/parse.rs",
            bench.root.display()
        )
    );
    assert_eq!(
        error("tests/prase.rs").await,
        "tests/prase.rs does not exist; in that directory there is parse.rs"
    );
    assert_eq!(error("nothing.rs").await, "nothing.rs does not exist");
    let edit = json!({"file_path": "parse.rs", "old_string": "a", "new_string": "b"});
    let words = "parse.rs does not exist; of that name there is crates/core/src/parse.rs, tests/parse.rs; use Write for a \
                 new file";
    assert_eq!(bench.err("Edit", edit).await, words);
}
