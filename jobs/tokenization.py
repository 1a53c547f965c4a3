"""``tokenmill tokenize``: what the model sees of a text or a conversation."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from worker.engine.prompting import prompt_encoder
from worker.errors import RowError
from worker.model_source import fetch_model
from worker.open_model import open_model

from .engine_options import engine_config
from .one_request import need_template, one_request


def tokenize_input(
    model: str,
    messages_file: Path | None,
    tools_file: Path | None,
    engine_options: Mapping[str, Any],
    output_format: str,
) -> None:
    """Print the ids and pieces of standard input, or of a conversation and its rendered prompt.

    Standard input is taken byte for byte: a last line break is part of the text.

    Raises:
        JobConfigError: options that cannot be.
        ModelError: the model file, its tokenizer or its template cannot be used.
        EngineConfigError: a setting of tokenizer or template cannot be used with it.
        RowError: the text is not UTF-8 or has no tokens, or the template refuses the messages.
    """
    config = engine_config(engine_options)
    gguf = open_model(fetch_model(model), any_type=True)
    tokenizer, encoder = prompt_encoder(gguf, config)
    prompt = _standard_input() if messages_file is None else None
    request = one_request(prompt, messages_file, tools_file, {})
    rendered = None
    if request.messages is not None:
        need_template(encoder, gguf.path)
        rendered = encoder.render(request.messages, request.tools)
    ids = encoder.encode(request)
    pieces = [tokenizer.piece_text(token_id) for token_id in ids]
    show = _print_json if output_format == "json" else _print_text
    show(ids, pieces, rendered)


def _standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise RowError(f"standard input is not valid UTF-8 (byte {error.start})") from error


def _print_text(ids: list[int], pieces: list[str], rendered: str | None) -> None:
    if rendered is not None:
        print(rendered)
        print("---")
    width = max(len(str(token_id)) for token_id in ids)
    for token_id, piece in zip(ids, pieces, strict=True):
        print(f"{token_id:>{width}}  {json.dumps(piece, ensure_ascii=False)}")


def _print_json(ids: list[int], pieces: list[str], rendered: str | None) -> None:
    prompt = {} if rendered is None else {"prompt": rendered}
    print(json.dumps(prompt | {"ids": ids, "pieces": pieces}, ensure_ascii=False))
