"""Result columns that are not always written; apart so that configuration imports no Arrow."""

from enum import StrEnum


class OptionalColumn(StrEnum):
    """Result columns that are written when asked for."""

    PROMPT_TOKENS = "prompt_tokens"
    GENERATED_TOKENS = "generated_tokens"
    LOGPROBS = "logprobs"
    COMPLETIONS = "completions"
