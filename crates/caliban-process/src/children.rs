//! Who is below whom.

use std::fs;

use crate::stat::stat;

/// Every process that is to be seen.
pub fn all() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The children of a process: as the kernel lists them, else by looking at everybody.
pub fn children(pid: i32) -> Vec<i32> {
    listed_children(pid).unwrap_or_else(|| scanned_children(pid))
}

/// From `/proc/<pid>/task/*/children`: fast, and not exact while children come and go. None when this kernel has no such
/// file, or it cannot be read.
pub fn listed_children(pid: i32) -> Option<Vec<i32>> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        // Gone, or there is no /proc: a scan would find nothing either.
        return Some(Vec::new());
    };
    let mut found = Vec::new();
    for task in tasks.flatten() {
        match fs::read_to_string(task.path().join("children")) {
            Ok(text) => found.extend(text.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok())),
            Err(_) if task.path().exists() => return None,
            // A thread that ended just now.
            Err(_) => {}
        }
    }
    Some(found)
}

/// By looking at everybody: slow, and exact for those who stay.
pub fn scanned_children(pid: i32) -> Vec<i32> {
    all().filter(|other| stat(*other).is_some_and(|stat| stat.parent == pid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn both_ways_to_find_children_agree() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let both = || (listed_children(own).is_none_or(|found| found.contains(&pid)), scanned_children(own));
        let (listed, scanned) = both();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(listed && scanned.contains(&pid), "{listed} {scanned:?}");
        assert!(!scanned_children(own).contains(&pid));
    }
}
