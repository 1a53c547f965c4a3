"""From a request to token ids, the one place where that happens."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from worker.engine.request import Message, Request, Tool
from worker.errors import RowError, TemplateError, TooLongError

from .chat_template import ChatTemplate
from .messages import check_text
from .rendered_prompt import RenderedPrompt
from .template_choice import TemplateChoice, choose_templates
from .tokenizer import SpecialText, Tokenizer

# Encoding takes seconds for some megabytes. Up to this length an error states the exact count.
_EXACT_CHARACTERS = 1 << 20


class PromptEncoder:
    """Encodes a row's prompt, messages or ids. Whether the result fits is the engine's check."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        *,
        with_tools: ChatTemplate | None = None,
        special: SpecialText = SpecialText.TEXT,
    ) -> None:
        """Take a tokenizer and templates.

        Args:
            tokenizer: of the model.
            template: for rows with messages.
            with_tools: for rows with messages and tools, if another.
            special: what becomes of control tokens that prompts spell.
        """
        self._tokenizer = tokenizer
        self._template = template
        self._with_tools = with_tools or template
        self._special = special

    @classmethod
    def for_model(
        cls,
        tokenizer: Tokenizer,
        *,
        now: datetime,
        chat_template: str | None = None,
        kwargs: Mapping[str, Any] | None = None,
        special: SpecialText = SpecialText.TEXT,
    ) -> "PromptEncoder":
        """Take the model's own templates, or another one.

        Args:
            tokenizer: of the model.
            now: date of the job, for templates that ask.
            chat_template: in place of the file's: Jinja source, or the name of one of the file's
                templates or of a built-in one.
            kwargs: further variables of the template.
            special: what becomes of control tokens that prompts and messages spell.

        Raises:
            ModelError: the model's template does not compile.
            EngineConfigError: the one given does not or has an unknown name, or kwargs holds a
                variable that is not the user's to set.
        """
        guarded = tokenizer.control_tokens if special is SpecialText.TEXT else ()

        def compiled(choice: TemplateChoice) -> ChatTemplate:
            return ChatTemplate(
                choice.source,
                bos_token=tokenizer.bos_token,
                eos_token=tokenizer.eos_token,
                now=now,
                kwargs=kwargs,
                control_tokens=guarded,
                origin=choice.origin,
                at_fault=choice.at_fault,
            )

        usual, for_tools = choose_templates(tokenizer.name, tokenizer.chat_templates, chat_template)
        return cls(
            tokenizer,
            None if usual is None else compiled(usual),
            with_tools=None if for_tools is None else compiled(for_tools),
            special=special,
        )

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

    def render(self, messages: Sequence[Message], tools: Sequence[Tool] | None = None) -> str:
        """Render messages as the prompt text that ``encode`` encodes.

        Raises:
            RowError: broken messages, no template, a template error.
        """
        return self._rendered(messages, tools).text

    def _rendered(
        self, messages: Sequence[Message], tools: Sequence[Tool] | None
    ) -> RenderedPrompt:
        template = self._template if tools is None else self._with_tools
        if template is None:
            raise TemplateError(
                "messages need a chat template and the model has no tokenizer.chat_template; give "
                "one in the job settings (chat_template) or use a prompt column"
            )
        return template.render(messages, tools)

    def _ids(self, request: Request, max_tokens: int | None) -> list[int]:
        if request.prompt_token_ids is not None:
            return self._checked_ids(request.prompt_token_ids)
        if request.messages is not None:
            rendered = self._rendered(request.messages, request.tools)
            self._refuse_far_too_long(rendered.text, max_tokens)
            return self._tokenizer.encode_chat(rendered)
        if not isinstance(request.prompt, str):
            found = "nothing" if request.prompt is None else type(request.prompt).__name__
            raise RowError(f"prompt: a text is needed, found {found}")
        check_text(request.prompt, "prompt")
        self._refuse_far_too_long(request.prompt, max_tokens)
        return self._tokenizer.encode_prompt(request.prompt, special=self._special)

    def _refuse_far_too_long(self, text: str, max_tokens: int | None) -> None:
        if max_tokens is None or len(text) <= _EXACT_CHARACTERS:
            return
        fewest = self._tokenizer.fewest_tokens(text)
        if fewest > max_tokens:
            raise TooLongError(
                f"prompt too long: {len(text)} characters are at least {fewest} tokens, more than "
                f"the context of {max_tokens}; shorten the prompt or raise max_model_len"
            )

    def _checked_ids(self, token_ids: Sequence[int]) -> list[int]:
        size = self._tokenizer.vocab_size
        for place, token_id in enumerate(token_ids):
            if not 0 <= token_id < size:
                raise RowError(
                    f"prompt_token_ids[{place}] is {token_id}, expected an id from 0 to {size - 1}"
                )
        return list(token_ids)
