//! What is done right before a fenced command starts and right after nothing of it is left.

use std::{
    fmt, io,
    sync::{Arc, Mutex, PoisonError},
};

use crate::fence::Fence;

/// A step around a command: what it does is about one command only.
pub trait Around: Send + Sync {
    /// Before the command: what the step changes in the fence (a bind, a mask). An error, in words, means that the command
    /// does not run.
    fn before(&self, fence: &mut Fence) -> Result<(), String>;

    /// When nothing of the command is left, however it ended. Lines for the model.
    fn after(&self, fence: &Fence) -> Vec<String>;
}

/// A fence with the steps around the command in it.
#[derive(Clone)]
pub struct Fenced {
    /// The fence.
    pub fence: Fence,
    /// In this order before the command, in the other order after it.
    pub around: Vec<Arc<dyn Around>>,
    /// Makes it anew, when something was not what had been judged; none where nobody judges again.
    pub again: Option<Rejudge>,
}

/// Judges again what a fence shows and holds.
pub type Rejudge = Arc<dyn Fn() -> Result<Fenced, String> + Send + Sync>;

impl Fenced {
    /// Takes all steps before the command. When one fails, those before it are taken back.
    pub fn begin(mut self) -> Result<(Fence, Steps), String> {
        let mut begun: Vec<Arc<dyn Around>> = Vec::new();
        for step in self.around {
            if let Err(reason) = step.before(&mut self.fence) {
                let _nobody_to_tell = finish(&begun, &self.fence);
                return Err(reason);
            }
            begun.push(step);
        }
        Ok((self.fence.clone(), Steps { fence: self.fence, begun: Mutex::new(begun) }))
    }
}

impl fmt::Debug for Fenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fenced").field(&self.fence).finish()
    }
}

/// The fence of a program of the user's own that may start at any time: it is judged when the program starts.
#[derive(Clone)]
pub struct ProgramFence(Arc<dyn Fn() -> Result<Fence, String> + Send + Sync>);

impl ProgramFence {
    /// Judged by this.
    pub fn new(judge: impl Fn() -> Result<Fence, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(judge))
    }

    /// The fence for a program that starts now.
    pub fn judge(&self) -> io::Result<Fence> {
        (self.0)().map_err(io::Error::other)
    }
}

impl fmt::Debug for ProgramFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProgramFence")
    }
}

impl PartialEq for ProgramFence {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ProgramFence {}

/// The steps that have to be finished when a command has ended.
pub struct Steps {
    fence: Fence,
    begun: Mutex<Vec<Arc<dyn Around>>>,
}

impl Steps {
    /// Takes all steps after the command, once. Lines for the model.
    pub fn finish(&self) -> Vec<String> {
        let begun = std::mem::take(&mut *self.begun.lock().unwrap_or_else(PoisonError::into_inner));
        finish(&begun, &self.fence)
    }

    /// The fence that the command ran in.
    pub fn fence(&self) -> &Fence {
        &self.fence
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.finish();
    }
}

fn finish(begun: &[Arc<dyn Around>], fence: &Fence) -> Vec<String> {
    begun.iter().rev().flat_map(|step| step.after(fence)).collect()
}
