//! Bodies of answers: whole ones, and those that pass by.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use tokio::sync::mpsc;

/// The provider's answer ended before its end; the client's connection ends the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the answer was cut")]
pub(crate) struct Cut;

/// A body of an answer.
pub(crate) type AnswerBody = UnsyncBoxBody<Bytes, Cut>;

/// A body that is there already.
pub(crate) fn whole(bytes: Bytes) -> AnswerBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// A piece of an answer that passes by.
#[derive(Debug)]
pub(crate) enum AnswerPiece {
    /// More of it.
    Data(Bytes),
    /// It was all.
    End,
}

/// A body that comes through this channel. One whose sender goes before the end is cut.
pub(crate) fn passing(receiver: mpsc::Receiver<AnswerPiece>) -> AnswerBody {
    Passing(receiver).boxed_unsync()
}

struct Passing(mpsc::Receiver<AnswerPiece>);

impl http_body::Body for Passing {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        self.0.poll_recv(context).map(|next| match next {
            Some(AnswerPiece::Data(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(AnswerPiece::End) => None,
            None => Some(Err(Cut)),
        })
    }
}
