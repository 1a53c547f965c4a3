"""Sampling parameters of one row."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from worker.errors import SamplingParamsError

from .sampling_values import (
    Check,
    flag,
    number,
    optional,
    shown,
    stop_strings,
    token_ids,
    whole_number,
)

_CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "n": whole_number(1, 128),
        "temperature": number(0, 100),
        "top_k": whole_number(-1, 2**63 - 1),
        "top_p": number(0, 1),
        "min_p": number(0, 1),
        "seed": optional(whole_number(0, 2**64 - 1)),
        "max_tokens": optional(whole_number(0, 2**63 - 1)),
        "stop": stop_strings,
        "stop_token_ids": token_ids,
        "ignore_eos": flag,
        "logprobs": optional(whole_number(0, 100)),
        "presence_penalty": number(-2, 2),
        "frequency_penalty": number(-2, 2),
        "repetition_penalty": number(0.01, 100),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the completions of a row are sampled.

    Names and meanings follow vLLM's ``SamplingParams``; ``docs/options.md`` lists them for users.
    Values are checked and brought into their own type on construction; a value that cannot be
    used is a SamplingParamsError that names it and what is allowed.

    Attributes:
        n: completions of the row, 1 to 128; each has its own draws.
        temperature: 0 is greedy (the lowest id wins an exact tie); above 0, up to 100, logits
            are divided by it.
        top_k: keep the k most likely tokens; 0 and -1 keep all.
        top_p: keep the smallest set of most likely tokens whose probability reaches top_p, the
            token that crosses it included; 1.0 keeps all, 0.0 keeps the most likely one.
        min_p: drop tokens less likely than min_p times the most likely one; 0.0 keeps all.
        seed: the row's own seed, 0 to 2**64 - 1; None draws from the job seed and the row id.
        max_tokens: most tokens to generate; None means up to the end of the context, 0 gives
            an empty text with finish_reason length. It reserves nothing.
        stop: strings that end the completion; the text ends before the earliest match.
        stop_token_ids: token ids that end the completion, besides the model's own.
        ignore_eos: go on after the model's end-of-text tokens.
        logprobs: report the sampled token's log-probability and that of the K most likely
            tokens, up to 100; None reports nothing, 0 the sampled token alone.
        presence_penalty: subtracted from the logit of each token generated already; -2 to 2.
        frequency_penalty: the same, times the number of its occurrences in the generated text.
        repetition_penalty: divides positive, multiplies negative logits of tokens in the prompt
            or the generated text; 0.01 to 100, 1.0 changes nothing.
    """

    n: int = 1
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int | None = 128
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))
        if self.top_k == -1:
            object.__setattr__(self, "top_k", 0)

    @classmethod
    def from_mapping(
        cls, mapping: Mapping[str, Any], defaults: "SamplingParams"
    ) -> "SamplingParams":
        """The job's defaults, overridden by a row's own values; null means the default.

        Raises:
            SamplingParamsError: an unknown name, with the nearest one there is, or a value out
                of range.
        """
        for name in mapping:
            if name not in _CHECKS:
                raise SamplingParamsError(_unknown(name))
        given = {name: value for name, value in mapping.items() if value is not None}
        return replace(defaults, **given)

    @classmethod
    def from_cell(cls, cell: object, defaults: "SamplingParams") -> "SamplingParams":
        """From a cell of a ``sampling_params`` column: a struct, a JSON object or null.

        Raises:
            SamplingParamsError: no JSON object, or as ``from_mapping``.
        """
        value = _json(cell) if isinstance(cell, str) else cell
        if value is None:
            return defaults
        if not isinstance(value, Mapping):
            raise SamplingParamsError(f"sampling_params: {shown(value)} is not a JSON object")
        return cls.from_mapping(value, defaults)

    @property
    def has_penalties(self) -> bool:
        """Whether logits depend on the tokens so far beyond the model."""
        return (self.presence_penalty, self.frequency_penalty, self.repetition_penalty) != (0, 0, 1)

    @property
    def needs_logits(self) -> bool:
        """Whether sampling looks at more than the most likely token."""
        return self.temperature > 0 or self.logprobs is not None or self.has_penalties


assert tuple(_CHECKS) == tuple(field.name for field in fields(SamplingParams))


def _unknown(name: object) -> str:
    near = get_close_matches(str(name), _CHECKS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_CHECKS)}"
    return f"sampling_params: {shown(name)} is no sampling parameter; {hint}"


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", None) or "nested too deeply or a number too long"
        raise SamplingParamsError(
            f"sampling_params: {shown(text)} is not valid JSON: {reason}"
        ) from None
