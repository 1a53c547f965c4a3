"""A request from the command line: one prompt or one conversation, and how to sample."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.errors import JobConfigError
from worker.engine.request import Message, Request, RowId
from worker.engine.sampling_params import SamplingParams
from worker.errors import ModelError, RowError
from worker.tokenizer.prompt_encoder import PromptEncoder


def one_request(prompt: str | None, messages: Path | None, sampling: Mapping[str, Any]) -> Request:
    """The request that ``generate`` was given.

    Raises:
        JobConfigError: not exactly one of prompt and messages, a file that holds no
            conversation, or a sampling value that cannot be used.
    """
    if (prompt is None) == (messages is None):
        raise JobConfigError("give either --prompt TEXT or --messages FILE")
    return Request(
        row_id=RowId(0),
        prompt=prompt,
        messages=None if messages is None else read_messages(messages),
        sampling=_sampling(sampling),
    )


def read_messages(path: Path) -> list[Message]:
    """The conversation in a JSON file, ``-`` for standard input.

    What the messages hold is checked where every row's are, by the prompt encoder.

    Raises:
        JobConfigError: no such file, not JSON, or not a list.
    """
    try:
        raw = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        messages = json.loads(raw)
    except OSError as error:
        raise JobConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise JobConfigError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(messages, list):
        found = type(messages).__name__
        raise JobConfigError(f"{path}: found a {found}, expected a list of messages")
    return messages


def read_template(path: Path | None) -> str | None:
    """The chat template in a file, None without one.

    Raises:
        JobConfigError: no such file, or not UTF-8.
    """
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise JobConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise JobConfigError(f"{path}: not valid UTF-8 (byte {error.start})") from error


def need_template(encoder: PromptEncoder, model: Path) -> None:
    """Check that a conversation can be rendered.

    Raises:
        ModelError: neither the model file nor the command line gives a template.
    """
    if not encoder.has_template:
        raise ModelError(
            f"{model}: no tokenizer.chat_template in the file, and --messages needs one; give a "
            "template with --chat-template FILE, or use plain text"
        )


def _sampling(given: Mapping[str, Any]) -> SamplingParams:
    try:
        return SamplingParams.from_mapping(given, SamplingParams())
    except RowError as error:
        raise JobConfigError(str(error)) from error
