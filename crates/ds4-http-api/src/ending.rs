//! How far the end of the server has come. Answers see it and end with an error that clients understand, rather than with a
//! connection that breaks.

use tokio::sync::watch;

/// How far it has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    #[default]
    Serving,
    /// A shutdown was asked for: answers that run have some time, those that wait have no chance any more.
    Ending,
    /// The time is over.
    Over,
}

/// Where the stage is announced.
#[derive(Debug, Default)]
pub(crate) struct Ending(watch::Sender<Stage>);

impl Ending {
    pub(crate) fn announce(&self, stage: Stage) {
        self.0.send_replace(stage);
    }

    pub(crate) fn watch(&self) -> EndingWatch {
        EndingWatch(self.0.subscribe())
    }
}

/// What an answer sees of it.
#[derive(Debug)]
pub(crate) struct EndingWatch(watch::Receiver<Stage>);

impl EndingWatch {
    /// Resolves when there is no time left for an answer that has begun, or has not.
    pub(crate) async fn no_time(&mut self, has_begun: bool) {
        let last = if has_begun { Stage::Over } else { Stage::Ending };
        if self.0.wait_for(|stage| *stage >= last).await.is_err() {
            // Nobody can announce anything any more.
            std::future::pending::<()>().await;
        }
    }
}
