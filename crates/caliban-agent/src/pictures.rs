//! Pictures on their way into a conversation: made small enough to be sent, or replaced by words.
//!
//! The one place for all of them, whether a tool, a server or a person brought them.

use caliban_core::message::{Block, Message, ResultPart};
use caliban_tools::picture::{self, Fitted};

/// Makes the pictures of a result small enough.
pub(crate) async fn fit_parts(parts: &mut [ResultPart]) {
    for part in parts {
        if let ResultPart::Image { media_type, data } = part {
            *part = match fitted(media_type, data).await {
                Ok(Fitted { media_type, data }) => ResultPart::Image { media_type, data },
                Err(text) => ResultPart::Text { text },
            };
        }
    }
}

/// Makes the pictures of a prompt small enough.
pub(crate) async fn fit_prompt(message: &mut Message) {
    for block in &mut message.blocks {
        if let Block::Image { media_type, data } = block {
            *block = match fitted(media_type, data).await {
                Ok(Fitted { media_type, data }) => Block::Image { media_type, data },
                Err(text) => Block::Text { text },
            };
        }
    }
}

async fn fitted(media_type: &mut String, data: &mut String) -> Result<Fitted, String> {
    let (media_type, data) = (std::mem::take(media_type), std::mem::take(data));
    let fitting = tokio::task::spawn_blocking(move || picture::fit(&media_type, &data));
    let fitted = fitting.await.unwrap_or_else(|_| Err("it cannot be decoded".to_owned()));
    fitted.map_err(|why| format!("[a picture is left out: {why}; make a smaller copy and read that]"))
}
