//! What happens in a conversation; the format of its records is `caliban_core::event`.

pub use caliban_core::event::*;

/// Why it is asked, and when it ends by itself: `no rule allows it; refused at 14:05 if nobody answers`.
pub fn why_in_words(ask: &Ask) -> String {
    match ask.expires_at {
        Some(end) => {
            let clock = end.to_zoned(caliban_contract::local_time::time_zone()).strftime("%H:%M").to_string();
            format!("{}; refused at {clock} if nobody answers", ask.why)
        }
        None => ask.why.clone(),
    }
}
