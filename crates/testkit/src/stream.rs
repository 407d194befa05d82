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

/// How often a cut body lets the connection flush what was sent before it.
const FLUSHES_BEFORE_CUT: u8 = 4;

/// One thing to do with the connection.
#[derive(Debug)]
pub(crate) enum StreamItem {
    /// Send these bytes.
    Data(Bytes),
    /// Send what there is, then wait (not at all with zero).
    Pause(Duration),
    /// Close the connection without the end of the body.
    Cut,
    /// Say nothing until the client goes away.
    Stall,
}

/// A body that does its items in order.
#[derive(Debug)]
pub(crate) struct Items {
    items: VecDeque<StreamItem>,
    length: Option<u64>,
    sleep: Option<Pin<Box<Sleep>>>,
    flushes: u8,
    hangup: Hangup,
}

impl Items {
    /// A stream of unknown length. Neighbouring data become one piece: nothing is gained by more writes.
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

    /// A body whose length is announced, whatever is then sent of it.
    pub(crate) fn sized(length: usize, items: impl IntoIterator<Item = StreamItem>, hangup: Hangup) -> Self {
        Self { length: Some(length as u64), ..Self::stream(items, hangup) }
    }

    /// The same bytes in frames of at most `size`, each flushed by itself.
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
