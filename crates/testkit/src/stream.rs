//! The body of an answer: pieces, pauses and deliberate failures.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use crate::server::Hangup;

/// Number of times that a cut body lets the connection flush what was sent before.
const FLUSHES_BEFORE_CUT: u8 = 4;

/// One action on the connection.
#[derive(Debug)]
pub(crate) enum StreamItem {
    Data(Bytes),
    /// Flush, then wait (not at all with zero).
    Pause(Duration),
    /// Close the connection without the end of the body.
    Cut,
    /// Send nothing until the client disconnects.
    Stall,
}

/// A body that performs its items in order.
#[derive(Debug)]
pub(crate) struct Items {
    items: VecDeque<StreamItem>,
    length: Option<u64>,
    sleep: Option<Pin<Box<Sleep>>>,
    flushes: u8,
    hangup: Hangup,
}

impl Items {
    /// A stream of unknown length. Adjacent data become one piece: more writes gain nothing.
    pub(crate) fn stream(items: impl IntoIterator<Item = StreamItem>, hangup: Hangup) -> Self {
        let mut merged: VecDeque<StreamItem> = VecDeque::new();
        let mut open: Vec<u8> = Vec::new();
        for item in items {
            match item {
                StreamItem::Data(bytes) => open.extend_from_slice(&bytes),
                other => {
                    if !open.is_empty() {
                        merged.push_back(StreamItem::Data(std::mem::take(&mut open).into()));
                    }
                    merged.push_back(other);
                }
            }
        }
        if !open.is_empty() {
            merged.push_back(StreamItem::Data(open.into()));
        }
        Self { items: merged, length: None, sleep: None, flushes: 0, hangup }
    }

    /// A body with an announced length, however much of it is then sent.
    pub(crate) fn sized(length: usize, items: impl IntoIterator<Item = StreamItem>, hangup: Hangup) -> Self {
        Self { length: Some(length as u64), ..Self::stream(items, hangup) }
    }

    /// The same bytes in frames of at most `size`, each flushed separately.
    pub(crate) fn in_frames_of(mut self, size: usize) -> Self {
        let mut items = VecDeque::new();
        for item in self.items {
            match item {
                StreamItem::Data(mut bytes) => {
                    while !bytes.is_empty() {
                        items.push_back(StreamItem::Data(bytes.split_to(size.min(bytes.len()))));
                        items.push_back(StreamItem::Pause(Duration::ZERO));
                    }
                }
                other => items.push_back(other),
            }
        }
        self.items = items;
        self
    }
}

impl Body for Items {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let this = &mut *self;
        loop {
            match this.items.front() {
                None => {
                    this.hangup.disarm();
                    return Poll::Ready(None);
                }
                Some(StreamItem::Data(_)) => {
                    let Some(StreamItem::Data(bytes)) = this.items.pop_front() else { continue };
                    if this.items.is_empty() {
                        this.hangup.disarm();
                    }
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Some(StreamItem::Pause(pause)) if pause.is_zero() => {
                    this.items.pop_front();
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Some(StreamItem::Pause(pause)) => {
                    let pause = *pause;
                    let sleep = this.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause)));
                    if sleep.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    this.sleep = None;
                    this.items.pop_front();
                }
                Some(StreamItem::Cut) if this.flushes < FLUSHES_BEFORE_CUT => {
                    this.flushes += 1;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Some(StreamItem::Cut) => {
                    this.hangup.disarm();
                    return Poll::Ready(Some(Err(std::io::Error::other("cut by the script"))));
                }
                Some(StreamItem::Stall) => return Poll::Pending,
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.items.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
