"""A request from the command line: one prompt or one conversation, and how to sample."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.errors import JobConfigError
from worker.engine.request import Request, RowId
from worker.engine.sampling_params import SamplingParams
from worker.errors import ModelError, RowError
from worker.tokenizer.prompt_encoder import PromptEncoder

from .chat_template_file import read_template


def one_request(
    prompt: str | None, messages: Path | None, tools: Path | None, sampling: Mapping[str, Any]
) -> Request:
    """The request that ``generate`` was given.

    Raises:
        JobConfigError: not exactly one of prompt and messages, a file that holds no
            conversation, or a sampling value that cannot be used.
    """
    if (prompt is None) == (messages is None):
        raise JobConfigError("give either --prompt TEXT or --messages FILE")
    if tools is not None and messages is None:
        raise JobConfigError("--tools are for --messages; leave them out or give both")
    return Request(
        row_id=RowId(0),
        prompt=prompt,
        messages=None if messages is None else read_objects(messages, "messages"),
        tools=None if tools is None else read_objects(tools, "tools"),
        sampling=_sampling(sampling),
    )


def read_objects(path: Path, what: str) -> list[Mapping[str, Any]]:
    """The messages or tools in a JSON file, ``-`` for standard input.

    What the list holds is checked where every row's is, by the prompt encoder.

    Raises:
        JobConfigError: no such file, not JSON, or not a list.
    """
    try:
        raw = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        objects = json.loads(raw)
    except OSError as error:
        raise JobConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise JobConfigError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(objects, list):
        found = type(objects).__name__
        raise JobConfigError(f"{path}: found a {found}, expected a list of {what}")
    return objects


def prompt_options(
    chat_template: str | None,
    template_kwargs: str | None,
    tokenizer_pre: str | None,
    parse_special: bool,
) -> dict[str, Any]:
    """Engine settings of tokenizer and chat template, from command-line options that were given.

    Raises:
        JobConfigError: a template that cannot be read, kwargs that are no JSON object.
    """
    options: dict[str, Any] = {"parse_special": parse_special}
    if chat_template is not None:
        options["chat_template"] = read_template(chat_template)
    if template_kwargs is not None:
        options["chat_template_kwargs"] = _json_object(template_kwargs)
    if tokenizer_pre is not None:
        options["tokenizer_pre"] = tokenizer_pre
    return options


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise JobConfigError(f"--template-kwargs: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise JobConfigError(
            f"--template-kwargs: found a {type(value).__name__}, expected an object, for example "
            '{"enable_thinking": false}'
        )
    return value


def need_template(encoder: PromptEncoder, model: Path) -> None:
    """Check that a conversation can be rendered.

    Raises:
        ModelError: neither the model file nor the command line gives a template.
    """
    if not encoder.has_template:
        raise ModelError(
            f"{model}: no tokenizer.chat_template in the file, and --messages needs one; give a "
            "template with --chat-template FILE or NAME, or use plain text"
        )


def _sampling(given: Mapping[str, Any]) -> SamplingParams:
    try:
        return SamplingParams.from_mapping(given, SamplingParams())
    except RowError as error:
        raise JobConfigError(str(error)) from error
