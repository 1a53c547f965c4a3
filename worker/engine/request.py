"""A request: what the engine is asked to complete."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NewType

from .sampling_params import SamplingParams

RowId = NewType("RowId", int)
"""A row's position in the dataset; with the job seed it keys the row's random draws."""

Message = Mapping[str, Any]
"""One chat message: ``role``, ``content`` and whatever else the template reads."""


Tool = Mapping[str, Any]
"""A function that the model may call, as a JSON schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One row to complete. Exactly one of prompt, messages and prompt_token_ids is given.

    Attributes:
        row_id: comes back in the Completion; unique among the requests in flight.
        prompt: plain text; special tokens in it stay text unless the engine parses them.
        messages: a conversation for the chat template.
        tools: what the template tells the model it may call; for messages.
        prompt_token_ids: ids as they are, no BOS added.
        sampling: how to sample.
    """

    row_id: RowId
    prompt: str | None = None
    messages: Sequence[Message] | None = None
    tools: Sequence[Tool] | None = None
    prompt_token_ids: Sequence[int] | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)
