//! An answer to exactly one call that waits, from whoever may decide: `_caliban/answer`.

use std::{collections::BTreeSet, time::Duration};

use caliban_acp::{
    extension::{AnswerRequest, not_asked_error},
    v1::Error,
};
use caliban_core::ask::GivenAnswer;

use super::SessionHost;
use crate::permission;

/// How long whoever has answered waits for the lists to be without the question. A full disk may hold them up; the answer
/// is recorded all the same.
const UNLISTED_WITHIN: Duration = Duration::from_secs(2);

impl SessionHost {
    /// Gives an answer; it is given when this returns, whatever becomes of the client. The future tells what is recorded,
    /// which is another answer when that was first, and ends when lists show the question no more.
    pub(crate) fn answer(
        &self,
        request: AnswerRequest,
        by: Option<String>,
    ) -> Result<impl Future<Output = Result<GivenAnswer, Error>> + use<>, Error> {
        let asks = self.handle().asks();
        let AnswerRequest { ask, digest, answer, .. } = request;
        let is_meant = |known: &_| permission::digest(known, &self.0.key) == digest;
        let known = asks.find(&ask, is_meant).ok_or_else(not_asked_error)?;
        let redactor = self.0.about.redactor.clone();
        let answer = permission::understood(&known.ask, answer, &redactor)
            .map_err(|why| Error::new(Error::invalid_params().code.into(), why))?;
        if !asks.answer_exactly(&known.ask, GivenAnswer { answer, by }) {
            tracing::debug!(ask, "an answer came too late");
        }
        let mut listed = self.0.listed.subscribe();
        Ok(async move {
            let GivenAnswer { answer, by } = known.recorded().await.ok_or_else(not_asked_error)?;
            let unlisted = listed.wait_for(|listed| !listed.contains(&digest));
            let _late = tokio::time::timeout(UNLISTED_WITHIN, unlisted).await;
            Ok(GivenAnswer { answer: answer.cleaned(|text| redactor.redact(text).into_owned()), by })
        })
    }

    /// These questions are in the lists that others read, by their digests.
    pub fn are_listed(&self, digests: BTreeSet<String>) {
        self.0.listed.send_if_modified(|listed| {
            let is_news = *listed != digests;
            *listed = digests;
            is_news
        });
    }
}
