//! What helps where no fence can be put up: by what the machine says of itself, in words for the person who can change it.
//!
//! `bwrap` is no way out of this: see docs/adr/0110-no-fence-by-bwrap.md.

use std::{fs, path::Path};

/// What the machine says about namespaces and Landlock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Machine {
    /// Ubuntu: programs without a profile of their own get namespaces without rights in them.
    apparmor_restricts: bool,
    /// Debian and others: no namespaces for users.
    clone_is_off: bool,
    /// How many user namespaces there may be.
    most_namespaces: Option<u64>,
    /// Whether the kernel has Landlock switched on; unknown where security modules are not listed.
    has_landlock: Option<bool>,
    /// In a container of Docker or Podman.
    in_container: bool,
}

/// What would help this machine, one thing on each line.
pub fn remedy(program: &Path) -> Vec<String> {
    let setting = |name: &str| {
        let text = fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let modules = fs::read_to_string("/sys/kernel/security/lsm").ok();
    let machine = Machine {
        apparmor_restricts: setting("kernel/apparmor_restrict_unprivileged_userns").is_some_and(|on| on != 0),
        clone_is_off: setting("kernel/unprivileged_userns_clone") == Some(0),
        most_namespaces: setting("user/max_user_namespaces"),
        has_landlock: modules.map(|names| names.split(',').any(|name| name.trim() == "landlock")),
        in_container: ["/.dockerenv", "/run/.containerenv"].iter().any(|mark| Path::new(mark).exists()),
    };
    machine.remedy(program)
}

impl Machine {
    fn remedy(self, program: &Path) -> Vec<String> {
        let mut lines = Vec::new();
        if self.apparmor_restricts {
            lines.push(format!(
                "AppArmor keeps user namespaces from programs without a profile (Ubuntu 24.04). As root, once, write this to \
                 /etc/apparmor.d/caliban and run apparmor_parser -r /etc/apparmor.d/caliban:\n\
                 \x20 abi <abi/4.0>,\n\
                 \x20 include <tunables/global>\n\
                 \x20 profile caliban \"{}{{,d}}\" flags=(unconfined) {{ userns, }}\n\
                 or, for all programs: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
                program.display()
            ));
        }
        if self.clone_is_off {
            lines.push("as root: sysctl -w kernel.unprivileged_userns_clone=1".to_owned());
        }
        if self.most_namespaces == Some(0) {
            lines.push("as root: sysctl -w user.max_user_namespaces=15000".to_owned());
        }
        if self.has_landlock == Some(false) {
            lines.push(
                "Landlock is not among the security modules: a kernel from 5.13 on, with landlock in lsm= of its command line"
                    .to_owned(),
            );
        }
        if self.in_container {
            lines.push(
                "in a container: start it with --security-opt seccomp=unconfined --security-opt systempaths=unconfined, \
                 or let the container be the sandbox (sandbox = \"off\")"
                    .to_owned(),
            );
        }
        if lines.is_empty() {
            lines.push(
                "a kernel with user namespaces and Landlock (5.13 or newer) is needed; containers often switch them off"
                    .to_owned(),
            );
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: Machine = Machine {
        apparmor_restricts: false,
        clone_is_off: false,
        most_namespaces: Some(63_000),
        has_landlock: Some(true),
        in_container: false,
    };

    #[test]
    fn a17_each_reason_has_its_remedy() {
        let said = |machine: Machine| machine.remedy(Path::new("/opt/caliban")).join("\n");
        let ubuntu = said(Machine { apparmor_restricts: true, ..FINE });
        assert!(
            ubuntu.contains("profile caliban \"/opt/caliban{,d}\" flags=(unconfined) { userns, }"),
            "{ubuntu}"
        );
        assert!(ubuntu.contains("kernel.apparmor_restrict_unprivileged_userns=0"), "{ubuntu}");
        assert_eq!(
            said(Machine { clone_is_off: true, ..FINE }),
            "as root: sysctl -w kernel.unprivileged_userns_clone=1"
        );
        assert_eq!(
            said(Machine { most_namespaces: Some(0), ..FINE }),
            "as root: sysctl -w user.max_user_namespaces=15000"
        );
        assert!(said(Machine { has_landlock: Some(false), ..FINE }).contains("landlock in lsm="));
        assert!(said(Machine { in_container: true, ..FINE }).contains("systempaths=unconfined"));
        assert!(said(FINE).contains("5.13 or newer"), "where nothing is known, what is needed");
    }
}
