//! Everything about text that one checkpoint brings along, loaded once and shared by all requests.

use std::sync::Arc;

use crate::chat::{ChatTemplate, GuardedCharacters, Renderer, Template};
use crate::checkpoint_settings::{GenerationConfig, GenerationDefaults, TokenizerConfig};
use crate::output::{OutputOptions, OutputStream, OutputVocabulary};
use crate::prompt_limit::PromptLimit;
use crate::unapplied::UnappliedSetting;
use crate::{ChatFamily, ChatPrompt, Message, RenderedPrompt, Role, SpecialTokens, TextError, Tokenizer};

/// The files of a checkpoint that say how text works, as they were read.
#[derive(Clone, Copy, Debug)]
pub struct TextSources<'a> {
    /// `tokenizer.json`.
    pub tokenizer_json: &'a [u8],
    /// `tokenizer_config.json`.
    pub tokenizer_config: Option<&'a [u8]>,
    /// `chat_template.jinja`. Without it, the template in `tokenizer_config.json` counts, and without that, the family's
    /// built-in one.
    pub chat_template: Option<&'a str>,
    /// `generation_config.json`.
    pub generation_config: Option<&'a [u8]>,
    /// End-of-text ids from `config.json`.
    pub config_eos: &'a [u32],
    /// Whose defaults fill in what the files do not say.
    pub family: ChatFamily,
    /// Tokens that fit into the context the model runs with: longer prompts are refused, and DeepSeek's highest thinking
    /// level needs a large one.
    pub context: usize,
}

/// Tokenizer, chat template and text settings of a checkpoint.
pub struct TextModel {
    tokenizer: Arc<Tokenizer>,
    template: Template,
    family: ChatFamily,
    context: usize,
    limit: PromptLimit,
    guarded: GuardedCharacters,
    special_tokens: SpecialTokens,
    stop_tokens: Vec<u32>,
    defaults: GenerationDefaults,
    unapplied: Vec<UnappliedSetting>,
    output: Arc<OutputVocabulary>,
}

impl TextModel {
    /// Reads and checks all files. A checkpoint without a chat template loads even if its tokenizer does not fit the
    /// built-in one; only [`render_chat`](Self::render_chat) needs it.
    ///
    /// # Errors
    /// A file that cannot be parsed, a tokenizer that is not byte-level, a template with a syntax error.
    pub fn load(sources: &TextSources<'_>) -> Result<Self, TextError> {
        let tokenizer = Arc::new(Tokenizer::from_json(sources.tokenizer_json)?);
        let config = sources.tokenizer_config.map(TokenizerConfig::parse).transpose()?.unwrap_or_default();
        let generation = GenerationConfig::parse(
            sources.generation_config.unwrap_or(b"{}"),
            sources.family.generation_defaults(),
        )?;
        let lacks = |marker: &&&'static str| tokenizer.added_id(marker).is_none();
        let template = match sources.chat_template.or(config.chat_template.as_deref()) {
            Some(source) => Template::Checkpoint(Box::new(ChatTemplate::parse(source)?)),
            None => match sources.family.markers().iter().find(lacks) {
                Some(missing) => Template::Unusable { missing },
                None => Template::BuiltIn,
            },
        };
        let mut stop_tokens = generation.eos;
        stop_tokens.extend(sources.config_eos);
        stop_tokens.extend(config.eos_token().and_then(|text| tokenizer.added_id(text)));
        let mut seen = std::collections::BTreeSet::new();
        stop_tokens.retain(|&id| seen.insert(id));
        let added_texts = tokenizer.added_tokens().values().map(|token| token.text.as_str());
        Ok(Self {
            guarded: GuardedCharacters::new(added_texts),
            output: Arc::new(OutputVocabulary::new(Arc::clone(&tokenizer), &stop_tokens)),
            limit: PromptLimit::new(sources.context, &tokenizer),
            tokenizer,
            template,
            family: sources.family,
            context: sources.context,
            special_tokens: config.special_tokens,
            stop_tokens,
            defaults: generation.defaults,
            unapplied: generation.unapplied,
        })
    }

    /// The tokenizer by itself, for raw prompts and counting.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Renders a conversation with the checkpoint's template, or the family's if it has none. Only the template's own text
    /// can become added tokens; whatever clients sent is encoded as ordinary text.
    ///
    /// # Errors
    /// A conversation that cannot fit into the context, no usable template, one that fails or refuses the conversation, an
    /// unknown thinking level or a reserved name in `template_kwargs`.
    pub fn render_chat(&self, prompt: &ChatPrompt) -> Result<RenderedPrompt, TextError> {
        let renderer = Renderer {
            template: &self.template,
            family: self.family,
            context: self.context,
            limit: self.limit,
            tokenizer: &self.tokenizer,
            guarded: &self.guarded,
            special_tokens: &self.special_tokens,
            think: self.output.think(),
        };
        renderer.render(prompt)
    }

    /// Encodes a prompt as it is; special tokens that it spells out are special.
    ///
    /// # Errors
    /// A text that cannot fit into the context.
    pub fn encode_raw(&self, prompt: &str) -> Result<Vec<u32>, TextError> {
        self.limit.check_text(prompt)?;
        self.tokenizer.encode_with_special(prompt)
    }

    /// How many tokens of a rendered prompt are its instructions and tools, which other conversations may begin with as
    /// well; 0 without either.
    pub fn shared_prefix(&self, prompt: &ChatPrompt, tokens: &[u32]) -> usize {
        let system: Vec<Message> =
            prompt.messages.iter().take_while(|message| message.role == Role::System).cloned().collect();
        if system.is_empty() && prompt.tools.is_empty() {
            return 0;
        }
        // Some templates refuse a conversation in which nobody speaks.
        let mut spoken = system.clone();
        spoken.push(Message::new(Role::User, ""));
        let render = |messages| {
            let add_generation_prompt = false;
            self.render_chat(&ChatPrompt { messages, add_generation_prompt, ..prompt.clone() }).ok()
        };
        let alone = render(system).or_else(|| render(spoken));
        let common = |alone: RenderedPrompt| {
            alone.tokens.iter().zip(tokens).take_while(|(one, other)| one == other).count()
        };
        alone.map_or(0, common)
    }

    /// Ids that end an answer, as the checkpoint's files name them: `generation_config.json` first, then
    /// `config.json`, then the `eos_token` of `tokenizer_config.json`; each once.
    pub fn stop_tokens(&self) -> &[u32] {
        &self.stop_tokens
    }

    /// Sampling settings for requests that give none.
    pub fn defaults(&self) -> &GenerationDefaults {
        &self.defaults
    }

    /// What `generation_config.json` asks for and answers are made without.
    pub fn unapplied_settings(&self) -> &[UnappliedSetting] {
        &self.unapplied
    }

    /// Replaces the settings for requests that give none, for a program whose user chose others.
    pub fn set_defaults(&mut self, defaults: GenerationDefaults) {
        self.defaults = defaults;
    }

    /// Starts reading an answer.
    pub fn output(&self, options: OutputOptions) -> OutputStream {
        OutputStream::new(Arc::clone(&self.output), options)
    }
}
