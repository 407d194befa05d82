//! Quiet hours, schedules and moments, in a zone whose clock is set forth and back.

use caliban_core::calendar::{length, moment, short};
use caliban_core::quiet_hours::QuietHours;
use caliban_core::recurrence::{Due, Recurrence};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned, civil::DateTime};

/// Berlin's rules: 2026-03-29 02:00 does not exist there, 2026-10-25 02:30 comes twice.
fn berlin(text: &str) -> Zoned {
    let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
    text.parse::<DateTime>().unwrap().to_zoned(zone).unwrap()
}

fn at(text: &str) -> Timestamp {
    berlin(text).timestamp()
}

fn until(hours: &str, now: &str) -> Option<String> {
    let hours: QuietHours = hours.parse().unwrap();
    let end = hours.until(&berlin(now))?;
    Some(Zoned::new(end, berlin(now).time_zone().clone()).strftime("%Y-%m-%d %H:%M").to_string())
}

#[test]
fn quiet_hours_pass_midnight_run_into_each_other_and_belong_to_the_day_on_which_they_begin() {
    let night = "23:00-07:00";
    assert_eq!(until(night, "2026-11-17 22:59"), None);
    assert_eq!(until(night, "2026-11-17 23:00").as_deref(), Some("2026-11-18 07:00"));
    assert_eq!(until(night, "2026-11-18 06:59").as_deref(), Some("2026-11-18 07:00"));
    assert_eq!(until(night, "2026-11-18 07:00"), None);
    // Friday night ends on Saturday; Saturday night is not named.
    let week = "mon-fri 23:00-07:00; sat,sun 07:00-12:00";
    assert_eq!(until(week, "2026-11-21 03:00").as_deref(), Some("2026-11-21 12:00"));
    assert_eq!(until(week, "2026-11-22 03:00"), None);
    assert_eq!(until("sat,sun 00:00-24:00", "2026-11-21 08:00").as_deref(), Some("2026-11-23 00:00"));
    assert_eq!(until("", "2026-11-21 08:00"), None);
    // From a time to the same one is a whole day.
    assert_eq!(until("mon 12:00-12:00", "2026-11-17 11:59").as_deref(), Some("2026-11-17 12:00"));
    // The night in which the clock is set forth is an hour shorter.
    assert_eq!(until("22:00-02:30", "2026-03-29 01:30").as_deref(), Some("2026-03-29 03:30"));
}

#[test]
fn hours_that_make_no_sense_or_leave_no_time_are_refused() {
    for wrong in [
        "23:00",
        "25:00-07:00",
        "foo 23:00-07:00",
        "23:00-07:60",
        "24:00-07:00",
        "00:00-24:00",
        "7-8",
        "12:00-12:00",
        "007:00-08:00",
        "+7:00-08:00",
    ] {
        assert!(wrong.parse::<QuietHours>().is_err(), "{wrong}");
    }
    assert!("mon-fri 00:00-24:00; sat,sun 00:00-24:00".parse::<QuietHours>().is_err());
    let text = "mon-fri 23:00-07:00; 12:00-13:00";
    let hours: QuietHours = text.parse().unwrap();
    assert_eq!(hours.to_string(), text);
    assert!(!hours.is_empty() && "".parse::<QuietHours>().unwrap().is_empty());
    assert_eq!(serde_json::to_value(&hours).unwrap(), text);
    assert_eq!(serde_json::from_value::<QuietHours>(text.into()).unwrap(), hours);
    assert!(serde_json::from_value::<QuietHours>("25:00-07:00".into()).is_err());
}

fn every(text: &str) -> Recurrence {
    text.parse().unwrap()
}

#[test]
fn a_schedule_is_written_as_it_is_read() {
    for (text, shown) in [
        ("90m", "90m"),
        ("60s", "1m"),
        ("90s", "90s"),
        ("24h", "1d"),
        ("07:00", "day 07:00"),
        ("mon-fri 19:00,7:00", "mon-fri 07:00,19:00"),
        ("sun,sat 03:00", "sat,sun 03:00"),
        ("weekdays 08:30", "mon-fri 08:30"),
        ("sat-mon 01:00", "mon,sat,sun 01:00"),
    ] {
        assert_eq!(every(text).to_string(), shown);
        assert_eq!(every(shown), every(text));
        assert_eq!(serde_json::to_value(every(text)).unwrap(), shown);
    }
    for wrong in ["", "30s", "0m", "6", "x", "24:00", "mon", "mon 7", "1y", "-5m", "99999999d"] {
        assert!(wrong.parse::<Recurrence>().is_err(), "{wrong}");
    }
}

#[test]
fn r15_a_missed_run_is_due_once_and_says_how_many_more_were_missed() {
    let daily = every("07:00");
    let next = at("2026-11-18 07:00");
    assert_eq!(daily.first(&berlin("2026-11-17 20:00")), Some(next));
    assert_eq!(daily.due(next, None, &berlin("2026-11-18 06:59")), Due::At(next));
    let due = |now| daily.due(next, None, &berlin(now));
    assert_eq!(due("2026-11-18 07:00"), Due::Now { missed: 0, next: at("2026-11-19 07:00") });
    assert_eq!(due("2026-11-19 07:00"), Due::Now { missed: 1, next: at("2026-11-20 07:00") });
    assert_eq!(due("2026-11-20 09:12"), Due::Now { missed: 2, next: at("2026-11-21 07:00") });
    let hourly = every("6h");
    let due = |now| hourly.due(at("2026-11-18 06:00"), None, &berlin(now));
    assert_eq!(due("2026-11-18 06:00"), Due::Now { missed: 0, next: at("2026-11-18 12:00") });
    assert_eq!(due("2026-11-19 07:00"), Due::Now { missed: 4, next: at("2026-11-19 12:00") });
}

#[test]
fn r15_a_clock_that_is_set_back_repeats_no_run_and_keeps_none_away() {
    let next = at("2026-11-19 07:00");
    // A day back: the 18th has had its run.
    let run = Some(at("2026-11-18 07:00"));
    assert_eq!(every("07:00").due(next, run, &berlin("2026-11-17 09:00")), Due::At(next));
    assert_eq!(
        every("wed 07:00").due(at("2026-11-25 07:00"), run, &berlin("2026-11-17 09:00")),
        Due::At(at("2026-11-25 07:00"))
    );
    // The 18th has had no run: it gets one.
    let recomputed = Due::At(at("2026-11-18 07:00"));
    for last in [None, Some(at("2026-11-17 07:00"))] {
        assert_eq!(every("07:00").due(next, last, &berlin("2026-11-17 09:00")), recomputed, "{last:?}");
    }
    // A month back: it was wrong before.
    let month = every("07:00").due(next, run, &berlin("2026-10-17 09:00"));
    assert_eq!(month, Due::At(at("2026-10-18 07:00")));
    let hourly = every("6h").due(next, None, &berlin("2026-11-17 09:00"));
    assert_eq!(hourly, Due::At(at("2026-11-17 15:00")));
}

#[test]
fn a_time_that_the_clock_leaves_out_comes_after_the_gap_and_one_that_comes_twice_once() {
    let night = every("02:30");
    let spring = night.first(&berlin("2026-03-28 12:00"));
    assert_eq!(spring, Some(at("2026-03-29 03:30")));
    assert_eq!(
        night.due(at("2026-03-29 03:30"), None, &berlin("2026-03-29 03:30")),
        Due::Now { missed: 0, next: at("2026-03-30 02:30") }
    );
    let first: Timestamp = "2026-10-25T00:30:00Z".parse().unwrap();
    assert_eq!(night.first(&berlin("2026-10-24 12:00")), Some(first));
    let Due::Now { missed: 0, next } = night.due(first, None, &berlin("2026-10-25 04:00")) else { panic!() };
    assert_eq!(next, at("2026-10-26 02:30"));
}

#[test]
fn a_moment_is_a_time_a_date_or_a_length_from_now_and_never_in_the_past() {
    let now = berlin("2026-11-17 20:00");
    for (text, expected) in [
        ("21:00", "2026-11-17 21:00"),
        ("07:00", "2026-11-18 07:00"),
        ("20:00", "2026-11-18 20:00"),
        ("tomorrow 21:00", "2026-11-18 21:00"),
        ("2026-12-01 08:15", "2026-12-01 08:15"),
        ("2026-12-01T08:15", "2026-12-01 08:15"),
        ("2026-12-01T07:15:00Z", "2026-12-01 08:15"),
        ("+90m", "2026-11-17 21:30"),
    ] {
        assert_eq!(moment(text, &now), Ok(at(expected)), "{text}");
    }
    for wrong in ["", "noon", "25:00", "2026-11-17 19:59", "2026-11-17T10:00:00Z", "+", "+0m", "tomorrow"] {
        assert!(moment(wrong, &now).is_err(), "{wrong}");
    }
    assert_eq!([1_800_000, 5_400_000, 90_000, 0, 500].map(short), ["30m", "1h30m", "1m30s", "0s", "1s"]);
    // At most ten years.
    assert_eq!(length("3660d").map(|length| length.as_hours()), Ok(3660 * 24));
    assert!(length("3661d").is_err());
    assert!(length("5").is_err() && length("m").is_err() && length("1.5h").is_err());
}
