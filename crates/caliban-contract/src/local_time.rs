//! The time zone of this machine, and the time in it.
//!
//! The zone's file is opened by its name. `TimeZone::system` looks through the whole directory of zones first, which
//! takes more than a hundred system calls in every short command.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Zoned;
use jiff::tz::TimeZone;

/// The zone of a machine where nobody has set `TZ`.
const LOCALTIME: &str = "/etc/localtime";
/// Where the files of zones are.
const ZONES: &str = "/usr/share/zoneinfo";
/// How long a zone that was read counts: a daemon notices that its machine has moved.
const AGE_LIMIT: Duration = Duration::from_secs(300);

static READ: Mutex<Option<(Instant, TimeZone)>> = Mutex::new(None);

/// The time now, in the zone of this machine.
#[must_use]
pub fn now() -> Zoned {
    jiff::Timestamp::now().to_zoned(time_zone())
}

/// The time zone of this machine, or that of `TZ`.
#[must_use]
pub fn time_zone() -> TimeZone {
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((at, zone)) = &*read
        && at.elapsed() < AGE_LIMIT
    {
        return zone.clone();
    }
    #[expect(clippy::disallowed_methods, reason = "TZ belongs to the system's clock, as in every C library")]
    let named = std::env::var("TZ").ok();
    let zone =
        find(named.as_deref(), Path::new(LOCALTIME), Path::new(ZONES)).unwrap_or_else(TimeZone::system);
    *read = Some((Instant::now(), zone.clone()));
    zone
}

/// The zone that this value of `TZ` names, or that of the machine without one. None for what is neither a file, nor a
/// zone, nor a rule.
fn find(named: Option<&str>, localtime: &Path, zones: &Path) -> Option<TimeZone> {
    let Some(named) = named else {
        let target = fs::read_link(localtime).ok();
        let name = target.as_deref().and_then(zone_name);
        return open(localtime, name.as_deref());
    };
    let named = named.strip_prefix(':').unwrap_or(named);
    if named.is_empty() || named == "UTC" {
        return Some(TimeZone::UTC);
    }
    let path = Path::new(named);
    if path.is_absolute() {
        return open(path, zone_name(path).as_deref());
    }
    let is_name = path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    let of_zone = is_name.then(|| open(&zones.join(path), Some(named))).flatten();
    of_zone.or_else(|| TimeZone::posix(named).ok())
}

/// `Europe/Zurich` of `/usr/share/zoneinfo/Europe/Zurich`.
fn zone_name(path: &Path) -> Option<String> {
    path.to_str()?.split_once("zoneinfo/").map(|(_, name)| name.to_owned())
}

fn open(path: &Path, name: Option<&str>) -> Option<TimeZone> {
    TimeZone::tzif(name.unwrap_or("Local"), &fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The offset from UTC in hours in July 2026.
    fn hours(zone: Option<TimeZone>) -> Option<i32> {
        let at: jiff::Timestamp = "2026-07-01T12:00:00Z".parse().unwrap();
        zone.map(|zone| zone.to_offset(at).seconds() / 3600)
    }

    #[test]
    fn a_zone_is_found_by_name_by_file_and_by_rule() {
        let found = |named| find(named, Path::new(LOCALTIME), Path::new(ZONES));
        assert_eq!(hours(found(Some("UTC"))), Some(0));
        assert_eq!(hours(found(Some(""))), Some(0));
        assert_eq!(hours(found(Some("EST5"))), Some(-5), "a rule, or the zone of that name");
        assert_eq!(hours(found(Some("XYZ-3"))), Some(3), "a rule");
        assert_eq!(hours(found(Some("../../etc/passwd"))), None);
        assert_eq!(hours(found(Some("No/Such"))), None);
    }

    #[test]
    fn the_machines_zone_is_that_of_its_link_and_of_its_file() {
        let home = tempfile::tempdir().unwrap();
        let zones = home.path().join("zoneinfo");
        let (here, there) = (home.path().join("localtime"), zones.join("Test/Plus_Two"));
        fs::create_dir_all(there.parent().unwrap()).unwrap();
        fs::write(&there, plus_two()).unwrap();
        std::os::unix::fs::symlink(&there, &here).unwrap();
        let zone = find(None, &here, &zones);
        assert_eq!(zone.as_ref().and_then(TimeZone::iana_name), Some("Test/Plus_Two"));
        assert_eq!(hours(zone), Some(2));
        assert_eq!(hours(find(Some("Test/Plus_Two"), &here, &zones)), Some(2));
        assert_eq!(hours(find(Some(":Test/Plus_Two"), &here, &zones)), Some(2));
        fs::remove_file(&here).unwrap();
        fs::copy(&there, &here).unwrap();
        assert_eq!(hours(find(None, &here, &zones)), Some(2));
    }

    /// A zone's file without a change: two hours east of UTC (RFC 9636).
    fn plus_two() -> Vec<u8> {
        let block = |footer: &[u8]| {
            let mut block = b"TZif2".to_vec();
            block.extend([0; 15]);
            for count in [0_u32, 0, 0, 0, 1, 4] {
                block.extend(count.to_be_bytes());
            }
            block.extend(7200_i32.to_be_bytes());
            block.extend([0, 0]);
            block.extend(b"TST\0");
            block.extend(footer);
            block
        };
        [block(b""), block(b"\nTST-2\n")].concat()
    }
}
