"""``tokenmill tokenize``: what the model sees of a text or a conversation."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from worker.engine.request import Request, RowId
from worker.errors import RowError
from worker.model_source import fetch_model
from worker.open_model import open_model
from worker.tokenizer.prompt_encoder import PromptEncoder
from worker.tokenizer.tokenizer import Tokenizer

from .one_request import need_template, read_messages, read_template


def tokenize_input(
    model: str, messages_file: Path | None, template_file: Path | None, output_format: str
) -> None:
    """Print the ids and pieces of standard input, or of a conversation and its rendered prompt.

    Standard input is taken byte for byte: a last line break is part of the text.

    Raises:
        ModelError: the model file, its tokenizer or its template cannot be used.
        RowError: the text is not UTF-8 or has no tokens, or the template refuses the messages.
    """
    template = read_template(template_file)
    gguf = open_model(fetch_model(model), any_type=True)
    tokenizer = Tokenizer.from_metadata(gguf.metadata)
    encoder = PromptEncoder.for_model(tokenizer, now=datetime.now(UTC), chat_template=template)
    if messages_file is None:
        rendered = None
        request = Request(row_id=RowId(0), prompt=_standard_input())
    else:
        need_template(encoder, gguf.path)
        messages = read_messages(messages_file)
        rendered = encoder.render(messages)
        request = Request(row_id=RowId(0), messages=messages)
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
