//! What others hold of a running agent: they watch, steer and answer through it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{asks::Asks, feed::Feed};

/// A handle to a running agent.
#[derive(Debug, Clone)]
pub struct Handle {
    feed: Feed,
    asks: Asks,
    steering: Arc<Mutex<VecDeque<String>>>,
}

impl Handle {
    pub(crate) fn new(feed: Feed, asks: Asks) -> Self {
        Self { feed, asks, steering: Arc::default() }
    }

    /// The live log.
    pub fn feed(&self) -> &Feed {
        &self.feed
    }

    /// The calls that wait for a person.
    pub fn asks(&self) -> &Asks {
        &self.asks
    }

    /// Says something to the agent while it works; it hears it before its next model request.
    pub fn steer(&self, text: impl Into<String>) {
        self.queue().push_back(text.into());
    }

    pub(crate) fn take_steering(&self) -> Vec<String> {
        self.queue().drain(..).collect()
    }

    pub(crate) fn steering_waits(&self) -> bool {
        !self.queue().is_empty()
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, VecDeque<String>> {
        self.steering.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
