//! One answer in the making: the engine's events in, pieces of text out. Streams and whole answers both read it.
//!
//! Dropping a [`Generation`] cancels the request, wherever it is: that is how a client that went away stops its
//! answer, in the queue, in prefill and in decode.

use ds4_engine_api::{
    CancelToken, EngineError, Event, FinishReason, Flow, GenerateRequest, SpeculationUsage, Token,
    TokenLogprobs,
};
use ds4_text::{ChatPrompt, DeltaList, Message, OutputStream, Role, TextDelta, ToolCall};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::ending::EndingWatch;
use crate::error::ApiError;
use crate::state::ApiState;
use crate::token_logprobs::LogprobAligner;

/// The token that ends reasoning; it counts as part of it.
const REASONING_END: &str = "</think>";

/// What is needed to start an answer.
pub(crate) struct Prepared {
    /// For the engine.
    pub(crate) request: GenerateRequest,
    /// Turns the answer's tokens into text.
    pub(crate) output: OutputStream,
    /// Whether the answer begins with reasoning.
    pub(crate) in_reasoning: bool,
    /// What the prompt says, if the answer goes on with it and is to be remembered.
    pub(crate) conversation: Option<ChatPrompt>,
    /// The parameter that the prompt was made of, for errors.
    pub(crate) input: &'static str,
}

/// A running or waiting request.
pub(crate) struct Generation {
    /// Ends the request when it is dropped, and is dropped first: `state` may be what keeps the engine, whose own end waits for
    /// every answer that is not cancelled.
    cancel: CancelOnDrop,
    state: ApiState,
    events: UnboundedReceiver<Event>,
    ending: EndingWatch,
    /// Whether the engine works on it.
    has_begun: bool,
    output: OutputStream,
    /// Id of the token that ends the reasoning, until it comes.
    reasoning_end: Option<u32>,
    aligner: LogprobAligner,
    stop_tokens: Vec<u32>,
    /// Tokens of the prompt and of the answer so far.
    timeline: Vec<u32>,
    conversation: Option<ChatPrompt>,
    /// The answer so far.
    answer: Message,
    input: &'static str,
    counts: Counts,
    called_tools: bool,
    finish: Option<Finish>,
}

/// However the answer ended, the client may send it back.
impl Drop for Generation {
    fn drop(&mut self) {
        self.state.remember(std::mem::take(&mut self.timeline));
        let is_answered = self.finish.is_some() || self.counts.completion > 0;
        let Some(mut conversation) = self.conversation.take().filter(|_| is_answered) else { return };
        let answer = &self.answer;
        if !answer.content.is_empty() || answer.reasoning_content.is_some() || !answer.tool_calls.is_empty() {
            conversation.messages.push(answer.clone());
        }
        self.state.conversations().keep(&self.counts.session, conversation);
    }
}

struct CancelOnDrop(CancelToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Tokens of one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    /// Of the prompt.
    pub(crate) prompt: usize,
    /// Of the prompt, those that needed no prefill.
    pub(crate) cached: usize,
    /// Of the answer, the stop token included.
    pub(crate) completion: usize,
    /// Of the answer, its reasoning with the token that ends it.
    pub(crate) reasoning: usize,
    /// What drafting ahead did.
    pub(crate) speculation: SpeculationUsage,
    /// The session that the request continued or began.
    pub(crate) session: String,
    /// Why no stored state was used, if none was.
    pub(crate) miss: Option<String>,
}

/// Why an answer is complete.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Finish {
    /// A stop token or a stop string.
    Stop,
    /// `max_tokens` or the end of the context.
    Length,
    /// The model ended its turn to have tools called.
    ToolCalls,
}

impl Finish {
    /// OpenAI's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
        }
    }
}

/// One step of an answer.
#[derive(Debug)]
pub(crate) enum Step {
    /// Text and calls that became certain, and the log-probabilities of the tokens that the content came from.
    Pieces { deltas: Vec<TextDelta>, logprobs: Vec<TokenLogprobs> },
    /// Nothing comes after this.
    End { finish: Finish, counts: Counts },
}

impl Generation {
    /// Hands a request to the engine. Refusals that the engine knows at once are errors here.
    pub(crate) fn start(state: &ApiState, prepared: Prepared) -> Result<Self, ApiError> {
        let Prepared { request, output, in_reasoning, conversation, input } = prepared;
        let (sender, events) = unbounded_channel();
        let (stop_tokens, timeline) = (request.stop_tokens.clone(), request.prompt.clone());
        // Unbounded: the engine's thread must never wait for a client, and an answer's length is bounded anyway.
        let sink = move |event| if sender.send(event).is_ok() { Flow::Continue } else { Flow::Stop };
        let cancel = state
            .engine()
            .submit(request, Box::new(sink))
            .map_err(|error| ApiError::Engine { error, input })?;
        Ok(Self {
            cancel: CancelOnDrop(cancel),
            state: state.clone(),
            events,
            ending: state.ending().watch(),
            has_begun: false,
            output,
            reasoning_end: in_reasoning.then(|| state.text().tokenizer().id_of(REASONING_END)).flatten(),
            aligner: LogprobAligner::default(),
            stop_tokens,
            timeline,
            conversation,
            answer: Message::new(Role::Assistant, ""),
            input,
            counts: Counts::default(),
            called_tools: false,
            finish: None,
        })
    }

    /// The next step. Dropping the future loses nothing. Not to be called after [`Step::End`] or an error.
    pub(crate) async fn next(&mut self) -> Result<Step, ApiError> {
        loop {
            if let Some(finish) = self.finish {
                return Ok(Step::End { finish, counts: self.counts.clone() });
            }
            let event = tokio::select! {
                biased;
                // The engine always sends a last event; without one, its thread is gone.
                event = self.events.recv() => event.unwrap_or(Event::Failed(EngineError::Stopped)),
                () = self.ending.no_time(self.has_begun) => match self.is_stopped() {
                    true => Event::Failed(EngineError::Stopped),
                    false => return Err(ApiError::ShuttingDown),
                },
            };
            if let Some(step) = self.take(event)? {
                return Ok(step);
            }
        }
    }

    fn take(&mut self, event: Event) -> Result<Option<Step>, ApiError> {
        match event {
            Event::Queued { .. } | Event::Prefill { .. } => Ok(None),
            Event::Started { cached_tokens, prompt_tokens, session, miss, seed: _ } => {
                self.has_begun = true;
                self.counts.prompt = prompt_tokens;
                self.counts.cached = cached_tokens;
                self.counts.session = session;
                self.counts.miss = miss;
                Ok(None)
            }
            // The answer is complete, whatever becomes of the tokens behind its end.
            Event::Finished { .. } | Event::Failed(_) if self.is_stopped() => {
                if let Event::Finished { usage, .. } = event {
                    self.counts.speculation = usage.speculation;
                }
                Ok(self.last(Vec::new(), Finish::Stop))
            }
            Event::Finished { reason: FinishReason::Cancelled, .. } => Err(ApiError::ShuttingDown),
            Event::Tokens(tokens) => Ok(self.tokens(tokens)),
            Event::Finished { reason, usage } => {
                self.counts.speculation = usage.speculation;
                let deltas = self.output.finish();
                let finish = if reason == FinishReason::Length { Finish::Length } else { Finish::Stop };
                Ok(self.last(deltas, finish))
            }
            Event::Failed(error) => Err(ApiError::Engine { error, input: self.input }),
        }
    }

    /// Whether a stop string has ended the answer; the engine has not said yet what it did.
    fn is_stopped(&self) -> bool {
        self.output.stopped().is_some()
    }

    /// A step of all tokens before the end of the answer.
    fn tokens(&mut self, tokens: Vec<Token>) -> Option<Step> {
        let (mut deltas, mut logprobs) = (DeltaList::default(), Vec::new());
        for token in tokens {
            if self.is_stopped() {
                break;
            }
            let more = self.token(token);
            logprobs.extend(self.aligner.align(&more));
            more.into_iter().for_each(|delta| deltas.push(delta));
        }
        self.step(deltas.into_vec(), logprobs)
    }

    fn token(&mut self, Token { id, logprobs }: Token) -> Vec<TextDelta> {
        self.counts.completion += 1;
        self.timeline.push(id);
        if self.stop_tokens.contains(&id) {
            return Vec::new();
        }
        let tokenizer = self.state.text().tokenizer();
        self.counts.reasoning += usize::from(self.reasoning_end.is_some());
        self.reasoning_end = self.reasoning_end.filter(|&end| end != id);
        if let Some(logprobs) = logprobs {
            self.aligner.push(tokenizer.token_bytes(id).unwrap_or_default(), logprobs);
        }
        let deltas = self.output.push(id);
        if self.is_stopped() {
            // The engine ends it after its pass, and tells then what it did.
            self.cancel.0.finish();
        }
        deltas
    }

    /// The step of the last deltas, after which the answer ends.
    fn last(&mut self, deltas: Vec<TextDelta>, finish: Finish) -> Option<Step> {
        let logprobs = self.aligner.align(&deltas);
        let step = self.step(deltas, logprobs);
        let finish = if finish == Finish::Stop && self.called_tools { Finish::ToolCalls } else { finish };
        self.finish = Some(finish);
        step
    }

    /// A step of some deltas, if there are any.
    fn step(&mut self, deltas: Vec<TextDelta>, logprobs: Vec<TokenLogprobs>) -> Option<Step> {
        if self.conversation.is_some() {
            deltas.iter().for_each(|delta| add(&mut self.answer, delta));
        }
        self.called_tools |= deltas.iter().any(|delta| matches!(delta, TextDelta::ToolCall(_)));
        (!deltas.is_empty()).then_some(Step::Pieces { deltas, logprobs })
    }
}

/// Adds a piece to a message, as the client will send it back.
fn add(answer: &mut Message, delta: &TextDelta) {
    match delta {
        TextDelta::Content(text) => answer.content.push_str(text),
        TextDelta::Reasoning(text) => answer.reasoning_content.get_or_insert_default().push_str(text),
        TextDelta::ToolCall(call) => answer.tool_calls.push(ToolCall {
            id: call.id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone().into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ApiOptions;
    use ds4_engine_api::{
        Engine, EngineStatus, EventSink, ModelInfo, SamplingParams, SessionSummary, SessionUse,
    };
    use ds4_text::{ChatFamily, OutputOptions, TextModel, TextSources};
    use std::sync::{Arc, Mutex, mpsc};

    /// An engine that answers nothing, and says at its end whether its request was cancelled before.
    struct EndWatch {
        model: ModelInfo,
        open: Mutex<Option<(CancelToken, Box<dyn EventSink>)>>,
        cancelled: mpsc::Sender<bool>,
    }

    impl Engine for EndWatch {
        fn submit(&self, _: GenerateRequest, sink: Box<dyn EventSink>) -> Result<CancelToken, EngineError> {
            let token = CancelToken::new();
            *self.open.lock().unwrap() = Some((token.clone(), sink));
            Ok(token)
        }

        fn status(&self) -> EngineStatus {
            EngineStatus::default()
        }

        fn model(&self) -> &ModelInfo {
            &self.model
        }

        fn sessions(&self) -> Vec<SessionSummary> {
            Vec::new()
        }

        fn remove_session(&self, _: &str) -> Result<bool, EngineError> {
            Ok(false)
        }
    }

    impl Drop for EndWatch {
        fn drop(&mut self) {
            let open = self.open.lock().unwrap().take();
            self.cancelled.send(open.is_some_and(|(token, _)| token.is_cancelled())).unwrap();
        }
    }

    fn text() -> TextModel {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/qwen4_exp");
        TextModel::load(&TextSources {
            tokenizer_json: &std::fs::read(folder.join("tokenizer.json")).unwrap(),
            tokenizer_config: None,
            chat_template: None,
            generation_config: None,
            config_eos: &[],
            family: ChatFamily::Qwen,
            context: 512,
        })
        .unwrap()
    }

    #[test]
    fn an_answer_that_keeps_the_engine_is_cancelled_before_the_engine_ends() {
        let (cancelled, end) = mpsc::channel();
        let model = ModelInfo {
            id: "demo".into(),
            model_type: "qwen4_exp".into(),
            parameters: 0,
            weight_bytes: 0,
            vocabulary: 4096,
            context: 512,
            loaded_at: 0,
        };
        let engine = EndWatch { model, open: Mutex::default(), cancelled };
        let state = ApiState::new(Arc::new(engine), Arc::new(text()), ApiOptions::default());
        let request = GenerateRequest {
            prompt: vec![9],
            sampling: SamplingParams::default(),
            speculation: ds4_engine_api::Speculation::default(),
            session: SessionUse::default(),
            shared_prefix: 0,
            max_tokens: 1,
            stop_tokens: Vec::new(),
            logprobs: None,
        };
        let output = state.text().output(OutputOptions::default());
        let prepared = Prepared { request, output, in_reasoning: false, conversation: None, input: "prompt" };
        let generation = Generation::start(&state, prepared).unwrap();
        drop(state);
        drop(generation);
        assert!(end.recv().unwrap(), "the engine would wait for the whole answer");
    }
}
