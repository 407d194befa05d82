//! The icon of the tab: the mark, and with `?n=3` the number of agents that need you.

use axum::extract::RawQuery;
use axum::response::{IntoResponse, Response};
use http::header;

/// The largest number shown: two digits fit.
const MOST: u32 = 99;

const MARK: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"><rect x="1" y="1" width="22" height="22" rx="6" fill="#0A5CBF"/><path d="M16 8.5a5 5 0 1 0 0 7" fill="none" stroke="#FFF" stroke-width="2.6" stroke-linecap="round"/><circle cx="16.6" cy="12" r="1.7" fill="#FFF"/>"##;

/// `GET /icon.svg?n=`.
pub(crate) async fn answer(RawQuery(query): RawQuery) -> Response {
    let number = query.as_deref().and_then(|query| query.strip_prefix("n=")).and_then(|n| n.parse().ok());
    let kind = [(header::CONTENT_TYPE, "image/svg+xml"), (header::CACHE_CONTROL, "max-age=86400")];
    (kind, svg(number.unwrap_or(0))).into_response()
}

fn svg(number: u32) -> String {
    if number == 0 {
        return format!("{MARK}</svg>");
    }
    let shown = number.min(MOST);
    let size = if shown < 10 { 13 } else { 11 };
    format!(
        r##"{MARK}<rect x="8" y="8" width="16" height="16" rx="8" fill="#F2B44C" stroke="#08131F"/><text x="16" y="20.5" font-family="system-ui, sans-serif" font-size="{size}" font-weight="700" text-anchor="middle" fill="#08131F">{shown}</text></svg>"##
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_icon_has_the_number_who_need_you() {
        assert!(!svg(0).contains("<text"));
        assert!(svg(3).contains(">3</text>") && svg(123).contains(">99</text>"));
    }
}
