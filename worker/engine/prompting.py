"""The tokenizer and the prompt encoder that an engine's settings ask for."""

from datetime import UTC, datetime

from worker.gguf.metadata import Metadata
from worker.tokenizer.prompt_encoder import PromptEncoder
from worker.tokenizer.tokenizer import SpecialText, Tokenizer

from .config import EngineConfig


def prompt_encoder(metadata: Metadata, config: EngineConfig) -> tuple[Tokenizer, PromptEncoder]:
    """Build what makes a model's prompts into its tokens.

    Raises:
        ModelError: the model's tokenizer or template cannot be used.
        EngineConfigError: a setting of tokenizer or template cannot be used with this model.
    """
    tokenizer = Tokenizer.from_metadata(metadata, tokenizer_pre=config.tokenizer_pre)
    encoder = PromptEncoder.for_model(
        tokenizer,
        now=config.chat_template_date or datetime.now(UTC).astimezone(),
        chat_template=config.chat_template,
        kwargs=config.chat_template_kwargs,
        special=SpecialText.PARSE if config.parse_special else SpecialText.TEXT,
    )
    return tokenizer, encoder
