"""From a request to token ids, the one place where that happens."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from worker.engine.request import Message, Request
from worker.errors import EngineConfigError, ModelError, RowError

from .chat_template import ChatTemplate
from .messages import check_text
from .tokenizer import Tokenizer

# Encoding takes seconds for some megabytes. Up to this length an error states the exact count.
_EXACT_CHARACTERS = 1 << 20


class PromptEncoder:
    """Encodes a row's prompt, messages or ids. Whether the result fits is the engine's check."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None) -> None:
        """Take a tokenizer and the template for rows with messages."""
        self._tokenizer = tokenizer
        self._template = template

    @classmethod
    def for_model(
        cls,
        tokenizer: Tokenizer,
        *,
        now: datetime,
        chat_template: str | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> "PromptEncoder":
        """Take the model's own template, or another one.

        Args:
            tokenizer: of the model.
            now: date of the job, for templates that ask.
            chat_template: Jinja source to use in place of the file's.
            kwargs: further variables of the template.

        Raises:
            ModelError: the model's template does not compile.
            EngineConfigError: the one given does not, or kwargs holds a variable that is not the
                user's to set.
        """
        source = tokenizer.chat_template if chat_template is None else chat_template
        if source is None:
            return cls(tokenizer, None)
        is_own = chat_template is None
        own = f"{tokenizer.name}: tokenizer.chat_template"
        template = ChatTemplate(
            source,
            bos_token=tokenizer.bos_token,
            eos_token=tokenizer.eos_token,
            now=now,
            kwargs=kwargs,
            control_tokens=tokenizer.control_tokens,
            origin=own if is_own else "chat_template of the job settings",
            at_fault=ModelError if is_own else EngineConfigError,
        )
        return cls(tokenizer, template)

    @property
    def has_template(self) -> bool:
        """Whether rows with messages can be encoded."""
        return self._template is not None

    def encode(self, request: Request, *, max_tokens: int | None = None) -> list[int]:
        """Encode what the request gives.

        Args:
            request: the row.
            max_tokens: a text of megabytes that must have more tokens is refused unencoded; all
                others are encoded, however long.

        Raises:
            RowError: nothing to encode, no token left, broken messages or ids, a template
                error, text that the vocabulary cannot express, far too long a text.
        """
        ids = self._ids(request, max_tokens)
        if not ids:
            raise RowError("prompt is empty: no token is left after tokenising")
        return ids

    def render(self, messages: Sequence[Message]) -> str:
        """Render messages as the prompt text that ``encode`` encodes.

        Raises:
            RowError: broken messages, no template, a template error.
        """
        return self._needed_template().render(messages).text

    def _ids(self, request: Request, max_tokens: int | None) -> list[int]:
        if request.prompt_token_ids is not None:
            return self._checked_ids(request.prompt_token_ids)
        if request.messages is not None:
            rendered = self._needed_template().render(request.messages)
            self._refuse_far_too_long(rendered.text, max_tokens)
            return self._tokenizer.encode_chat(rendered)
        if not isinstance(request.prompt, str):
            found = "nothing" if request.prompt is None else type(request.prompt).__name__
            raise RowError(f"prompt: a text is needed, found {found}")
        check_text(request.prompt, "prompt")
        self._refuse_far_too_long(request.prompt, max_tokens)
        return self._tokenizer.encode(request.prompt)

    def _refuse_far_too_long(self, text: str, max_tokens: int | None) -> None:
        if max_tokens is None or len(text) <= _EXACT_CHARACTERS:
            return
        fewest = self._tokenizer.fewest_tokens(text)
        if fewest > max_tokens:
            raise RowError(
                f"prompt too long: {len(text)} characters are at least {fewest} tokens, more than "
                f"the context of {max_tokens}; shorten the prompt or raise max_model_len"
            )

    def _needed_template(self) -> ChatTemplate:
        if self._template is None:
            raise RowError(
                "messages need a chat template and the model has no tokenizer.chat_template; give "
                "one in the job settings (chat_template) or use a prompt column"
            )
        return self._template

    def _checked_ids(self, token_ids: Sequence[int]) -> list[int]:
        size = self._tokenizer.vocab_size
        for place, token_id in enumerate(token_ids):
            if not 0 <= token_id < size:
                raise RowError(
                    f"prompt_token_ids[{place}] is {token_id}, expected an id from 0 to {size - 1}"
                )
        return list(token_ids)
