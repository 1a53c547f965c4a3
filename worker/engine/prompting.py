"""The tokenizer and the prompt encoder that an engine's settings ask for."""

from datetime import UTC, datetime

from worker.errors import EngineConfigError
from worker.gguf import ModelFile
from worker.models.config import EMBEDDING
from worker.tokenizer.checkpoint_tokenizer import checkpoint_tokenizer
from worker.tokenizer.prompt_encoder import PromptEncoder
from worker.tokenizer.tokenizer import SpecialText, Tokenizer

from .config import EngineConfig


def prompt_encoder(model: ModelFile, config: EngineConfig) -> tuple[Tokenizer, PromptEncoder]:
    """Build what makes a model's prompts into its tokens.

    Raises:
        ModelError: the model's tokenizer or template cannot be used.
        EngineConfigError: a setting of tokenizer or template cannot be used with this model.
    """
    tokenizer = tokenizer_of(model, config.tokenizer_pre)
    encoder = PromptEncoder.for_model(
        tokenizer,
        now=config.chat_template_date or datetime.now(UTC).astimezone(),
        chat_template=config.chat_template,
        kwargs=config.chat_template_kwargs,
        special=SpecialText.PARSE if config.parse_special else SpecialText.TEXT,
    )
    return tokenizer, encoder


def tokenizer_of(model: ModelFile, tokenizer_pre: str | None = None) -> Tokenizer:
    """Build the tokenizer of a GGUF file or of a checkpoint folder.

    Raises:
        ModelError: it cannot be used.
        EngineConfigError: ``tokenizer_pre`` is not known, or given for a model that has none.
    """
    if not model.path.is_dir():
        return Tokenizer.from_metadata(model.metadata, tokenizer_pre=tokenizer_pre)
    if tokenizer_pre is not None:
        raise EngineConfigError(
            f"tokenizer_pre is {tokenizer_pre!r}, but {model.path} is a folder, whose "
            "tokenizer.json says how text is cut; leave it out"
        )
    return checkpoint_tokenizer(model.path, model.tensor(EMBEDDING).rows)
