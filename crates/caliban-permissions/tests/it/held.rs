//! What a fence has to hide and to hold.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use caliban_core::access::Access;
use caliban_permissions::{FenceDuties, LinksOut, Mode};
use caliban_rooted::JudgedPlace;

use crate::place::Place;

fn sorted(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort();
    paths
}

fn paths(places: &[JudgedPlace]) -> Vec<PathBuf> {
    sorted(places.iter().map(|place| place.path.clone()).collect())
}

fn absent(held: &FenceDuties) -> Vec<PathBuf> {
    held.absent.iter().map(|place| place.name.under(place.root.path())).collect()
}

/// Masked and fixed by rules.
fn ruled(place: &Place, rules: &[&str]) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let held = place.policy(Mode::Default, rules).held_by_rules(LinksOut::AreNotThere).unwrap();
    assert!(held.absent.is_empty());
    (paths(&held.masks), paths(&held.fixed))
}

#[test]
fn protected_places_are_held_from_the_top_of_the_work_to_the_working_directory() {
    let place = Place::new();
    fs::create_dir_all(place.at("src/deep")).unwrap();
    fs::write(place.at("src/.envrc"), "").unwrap();
    symlink("nowhere", place.at("src/.npmrc")).unwrap();
    let mut policy = place.policy(Mode::Default, &[]);
    let held = policy.held(&place.at("src/deep")).unwrap();
    assert_eq!(paths(&held.fixed), [place.at(".git"), place.at("src/.envrc")]);
    for path in [".envrc", "src/.git", "src/.npmrc", "src/deep/.git"] {
        assert!(absent(&held).contains(&place.at(path)), "{path}");
    }
    assert!(!absent(&held).contains(&place.at(".git")));
    let beside = policy.held(&place.home).unwrap();
    assert_eq!(paths(&beside.fixed), [place.at(".git")]);
    assert!(!absent(&beside).contains(&place.at("src/.git")));
    policy.extra_dirs.push(place.home.clone());
    let both = absent(&policy.held(&place.home.join("notes")).unwrap());
    assert!(both.contains(&place.home.join("notes/.git")) && both.contains(&place.home.join(".git")));
    // In a worktree it is that one's places.
    policy.extra_dirs.clear();
    policy.worktree = Some(place.at("src"));
    assert_eq!(paths(&policy.held(&place.at("src")).unwrap().fixed), [place.at("src/.envrc")]);
    // What may be written need not be held.
    let allowed = place.policy(Mode::Default, &["Edit(.git/**)", "Edit(.git)"]).held(&place.root).unwrap();
    assert!(!paths(&allowed.fixed).contains(&place.at(".git")));
    assert!(place.policy(Mode::Unattended, &[]).held(&place.root).unwrap().absent.is_empty());
}

/// A link is shown as a link. What it leads to outside of the tree is nobody's place; what it leads to inside is held, too.
#[test]
fn a18_a_link_is_no_protected_place() {
    let place = Place::new();
    fs::create_dir_all(place.home.join(".config/git")).unwrap();
    fs::create_dir_all(place.at("conf/cargo")).unwrap();
    fs::write(place.at("conf/cargo/config.toml"), "").unwrap();
    symlink("../home/.config", place.at(".config")).unwrap();
    symlink("conf/cargo", place.at(".cargo")).unwrap();
    let held = place.policy(Mode::AcceptEdits, &[]).held(&place.root).unwrap();
    assert_eq!(paths(&held.fixed), [place.at(".git"), place.at("conf/cargo/config.toml")]);
    let link_of = |path: &str| {
        let found =
            held.absent.iter().find(|place_of| place_of.name.under(place_of.root.path()) == place.at(path));
        found.unwrap().link.clone().map(|(at, to)| (at.under(&place.root), to))
    };
    assert_eq!(link_of(".config/git"), Some((place.at(".config"), "../home/.config".into())));
    assert_eq!(link_of(".cargo/config.toml"), Some((place.at(".cargo"), "conf/cargo".into())));
    assert_eq!(link_of(".envrc"), None);
}

/// Where the project is was found when it was first looked at. A link in its place changes nothing but that no command runs.
#[test]
fn a18_a_project_that_is_replaced_holds_nothing_and_allows_nothing() {
    let place = Place::new();
    let policy = place.policy(Mode::AcceptEdits, &[]);
    let reads = |path: &Path| policy.decide("Read", &[Access::Read(path.to_owned())]).is_allowed();
    assert!(reads(&place.at("notes.txt")) && !reads(&place.home.join(".ssh/id")));
    policy.held(&place.root).unwrap();
    fs::rename(&place.root, place.root.with_file_name("moved")).unwrap();
    symlink(&place.home, &place.root).unwrap();
    let refused = policy.held(&place.root).unwrap_err();
    assert!(refused.contains("was moved or replaced") && refused.contains("hint:"), "{refused}");
    assert!(!reads(&place.home.join(".ssh/id")) && !reads(&place.at(".ssh/id")));
}

/// Seen: a command closes a directory, the next look passes over it, and the next command opens it again.
#[test]
fn a18_a_closed_directory_is_hidden_as_a_whole() {
    if testkit::was_run_by_another_user("held::a18_a_closed_directory_is_hidden_as_a_whole") {
        return;
    }
    let place = Place::new();
    let close =
        |name: &str, mode| fs::set_permissions(place.at(name), fs::Permissions::from_mode(mode)).unwrap();
    close("src", 0o311);
    assert_eq!(ruled(&place, &["deny Read(src/.env)"]), (vec![place.at("src")], vec![]));
    assert_eq!(ruled(&place, &["deny Edit(src/.env)"]), (vec![], vec![place.at("src")]));
    close("src", 0);
    assert_eq!(ruled(&place, &["deny Read(**/.env)"]).0, [place.at("src")]);
    assert_eq!(ruled(&place, &[]), (vec![], vec![]));
    // The top cannot be hidden.
    close("", 0o311);
    let refused = place
        .policy(Mode::Default, &["deny Read(src/.env)"])
        .held_by_rules(LinksOut::AreNotThere)
        .unwrap_err();
    assert!(refused.contains("nobody may look into"), "{refused}");
    close("", 0o755);
    close("src", 0o755);
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
