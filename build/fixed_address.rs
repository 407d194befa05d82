//! Links the program to a fixed address: a position-independent one of this size spends most of its start on relocations
//! (`docs/adr/0094-fixed-address.md`).

#[expect(clippy::disallowed_methods, clippy::print_stdout, reason = "cargo speaks to a build script by them")]
fn main() {
    println!("cargo:rerun-if-changed=../../build/fixed_address.rs");
    let target = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    if target("OS") == "linux" && target("ENV") == "gnu" {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
