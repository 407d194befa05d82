//! Permission modes and their words.

use caliban_core::mode::Mode;

#[test]
fn a_mode_is_shown_read_and_stored_as_its_word() {
    assert_eq!(Mode::NAMES, ["default", "accept-edits", "never-ask", "plan", "unattended"]);
    for (mode, name) in Mode::ALL.into_iter().zip(Mode::NAMES) {
        assert_eq!((mode.to_string().as_str(), name.parse()), (name, Ok(mode)));
        assert_eq!(serde_json::to_value(mode).unwrap(), name);
        assert_eq!(serde_json::from_value::<Mode>(name.into()).unwrap(), mode);
    }
    assert!(serde_json::from_str::<Mode>("\"all\"").is_err());
    let words =
        "there is no permission mode 'all'; expected default, accept-edits, never-ask, plan, unattended";
    assert_eq!("all".parse::<Mode>().unwrap_err().to_string(), words);
}

#[test]
fn the_narrower_of_two_modes_allows_less() {
    let widening = [Mode::Plan, Mode::Default, Mode::AcceptEdits, Mode::NeverAsk, Mode::Unattended];
    for (a, narrow) in widening.into_iter().enumerate() {
        for wide in widening.into_iter().skip(a) {
            assert_eq!((narrow.narrower(wide), wide.narrower(narrow)), (narrow, narrow));
        }
    }
}
