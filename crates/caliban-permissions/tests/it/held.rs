//! What a fence has to hide and to hold.

use std::fs;
use std::path::PathBuf;

use caliban_permissions::{FenceDuties, Mode};

use crate::place::Place;

fn sorted(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort();
    paths
}

/// Without the protected places.
fn ruled(place: &Place, rules: &[&str]) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let without = place.policy(Mode::Default, &[]).held(&place.root).unwrap();
    let FenceDuties { masks, fixed, absent } = place.policy(Mode::Default, rules).held(&place.root).unwrap();
    assert_eq!(absent, without.absent);
    assert_eq!(fixed[..without.fixed.len()], without.fixed);
    (sorted(masks), sorted(fixed[without.fixed.len()..].to_vec()))
}

#[test]
fn protected_places_are_held_from_the_top_of_the_work_to_the_working_directory() {
    let place = Place::new();
    fs::create_dir_all(place.at("src/deep")).unwrap();
    fs::write(place.at("src/.envrc"), "").unwrap();
    std::os::unix::fs::symlink("notes.txt", place.at("src/.npmrc")).unwrap();
    let mut policy = place.policy(Mode::Default, &[]);
    let held = policy.held(&place.at("src/deep")).unwrap();
    assert_eq!(sorted(held.fixed), [place.at(".git"), place.at("src/.envrc")]);
    // A link is no place that could be held: it must not be followed, nor be made anew.
    for path in [".envrc", "src/.git", "src/.npmrc", "src/deep/.git"] {
        assert!(held.absent.contains(&place.at(path)), "{path}");
    }
    assert!(!held.absent.contains(&place.at(".git")));
    let beside = policy.held(&place.home).unwrap();
    assert_eq!(beside.fixed, [place.at(".git")]);
    assert!(!beside.absent.contains(&place.at("src/.git")));
    policy.extra_dirs.push(place.home.clone());
    let both = policy.held(&place.home.join("notes")).unwrap();
    assert!(
        both.absent.contains(&place.home.join("notes/.git"))
            && both.absent.contains(&place.home.join(".git"))
    );
    // In a worktree it is that one's places.
    policy.extra_dirs.clear();
    policy.worktree = Some(place.at("src"));
    assert_eq!(policy.held(&place.at("src")).unwrap().fixed, [place.at("src/.envrc")]);
    // What may be written need not be held.
    let allowed = place.policy(Mode::Default, &["Edit(.git/**)", "Edit(.git)"]).held(&place.root).unwrap();
    assert!(!allowed.fixed.contains(&place.at(".git")));
    assert!(place.policy(Mode::Unattended, &[]).held(&place.root).unwrap().absent.is_empty());
}

#[test]
fn what_rules_forbid_to_read_is_hidden_and_what_they_forbid_to_edit_is_fixed() {
    let place = Place::new();
    let at = |path: &str| place.at(path);
    assert_eq!(ruled(&place, &["Read(src/.env)", "Edit(notes.txt)"]), (vec![], vec![]));
    assert_eq!(ruled(&place, &["deny Read(src/.env)"]), (vec![at("src/.env")], vec![]));
    assert_eq!(ruled(&place, &["ask Read(.env)"]), (vec![at("src/.env")], vec![]));
    assert_eq!(ruled(&place, &["deny Edit(notes.txt)"]), (vec![], vec![at("notes.txt")]));
    assert_eq!(
        ruled(&place, &["deny Edit(*.rs)", "deny Read(main.rs)"]),
        (vec![at("src/main.rs")], vec![at("src/lib.rs")])
    );
    // A hidden directory is hidden as a whole.
    assert_eq!(ruled(&place, &["deny Read(src)"]).0, [at("src")]);
    // Files of git's are not looked through.
    fs::write(place.at(".git/.env"), "").unwrap();
    assert_eq!(ruled(&place, &["deny Read(.env)"]).0, [at("src/.env")]);
    // Rules reach out of the project by `~/` and by an absolute path.
    let id = place.home.join(".ssh/id");
    assert_eq!(ruled(&place, &["deny Read(~/.ssh/id)"]).0, std::slice::from_ref(&id));
    assert_eq!(ruled(&place, &["deny Read(~/.ssh/i*)"]).0, std::slice::from_ref(&id));
    assert_eq!(ruled(&place, &[&format!("deny Read(/{})", id.display())]).0, [id]);
    assert_eq!(ruled(&place, &["deny Read(~/nowhere/x)"]), (vec![], vec![]));
}

#[test]
fn a_hidden_file_is_hidden_under_its_other_names_too() {
    let place = Place::new();
    fs::hard_link(place.at("src/.env"), place.at("copy")).unwrap();
    fs::hard_link(place.at("src/lib.rs"), place.at("other")).unwrap();
    let (masks, fixed) = ruled(&place, &["deny Read(src/.env)"]);
    assert_eq!((masks, fixed), (vec![place.at("copy"), place.at("src/.env")], vec![]));
}
