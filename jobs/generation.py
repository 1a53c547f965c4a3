"""``tokenmill generate``: one request, decoded in this process and shown as it comes."""

import json
import sys
from collections.abc import Mapping
from typing import Any

from cluster.errors import JobConfigError
from worker.engine.completion import Completion, TokenLogprobs
from worker.engine.engine import Engine
from worker.engine.request import Request
from worker.errors import RowError
from worker.model_source import fetch_model
from worker.tokenizer.tokenizer import Tokenizer

from .engine_options import engine_config
from .one_request import need_template


def generate_one(
    model: str,
    sha256: str | None,
    engine_options: Mapping[str, Any],
    request: Request,
    output_format: str,
) -> None:
    """Decode one request; text mode prints pieces as they come, json one object at the end.

    Of several completions the first is the one that is streamed; each has a heading then.

    Raises:
        JobConfigError: options that cannot be.
        ModelError: the model cannot be used, or has no template for messages.
        RowError: the request cannot be answered.
    """
    if request.sampling.logprobs is not None and output_format == "text":
        raise JobConfigError("--logprobs are shown with -o json only; add it")
    config = engine_config(engine_options)
    path = fetch_model(model, sha256=sha256)
    engine = Engine.from_gguf(path, config)
    if request.messages is not None:
        need_template(engine.encoder, path)
    completion = _stream(engine, request, output_format == "text")
    if completion.error is not None:
        raise RowError(completion.error)
    if output_format == "json":
        print(json.dumps(as_json(completion, engine.tokenizer), ensure_ascii=False))
    else:
        for number, other in enumerate(completion.others, 2):
            print(_heading(number, request.sampling.n), other.text, sep="\n")


def as_json(completion: Completion, tokenizer: Tokenizer) -> dict[str, Any]:
    """A completion as the JSON object that is printed; several also as a list of them all."""
    answer = _generated_as_json(completion, tokenizer) | {
        "num_prompt_tokens": len(completion.prompt_token_ids),
        "prompt_tokens": list(completion.prompt_token_ids),
        "ttft_s": completion.ttft_s,
        "latency_s": completion.latency_s,
    }
    if completion.others:
        every = (completion, *completion.others)
        answer["completions"] = [_generated_as_json(each, tokenizer) for each in every]
    return answer


def _generated_as_json(completion: Completion, tokenizer: Tokenizer) -> dict[str, Any]:
    logprobs = completion.logprobs
    return {
        "text": completion.text,
        "finish_reason": str(completion.finish_reason),
        "stop_reason": completion.stop_reason,
        "num_generated_tokens": len(completion.token_ids),
        "generated_tokens": list(completion.token_ids),
        "logprobs": logprobs and [_logprobs_as_json(each, tokenizer) for each in logprobs],
    }


def _logprobs_as_json(logprobs: TokenLogprobs, tokenizer: Tokenizer) -> dict[str, Any]:
    def entry(token_id: int, logprob: float) -> dict[str, Any]:
        piece = tokenizer.piece_text(token_id)
        return {"token_id": token_id, "piece": piece, "logprob": logprob}

    top = [entry(token_id, logprob) for token_id, logprob in logprobs.top]
    return {**entry(logprobs.token_id, logprobs.logprob), "top": top}


def _stream(engine: Engine, request: Request, show: bool) -> Completion:
    """Run the request to its end, writing its text while it grows if asked to."""
    if show and request.sampling.n > 1:
        print(_heading(1, request.sampling.n), flush=True)
    for piece in engine.stream(request):
        if isinstance(piece, Completion):
            if show and piece.error is None:
                print(flush=True)
            return piece
        if show:
            sys.stdout.write(piece)
            sys.stdout.flush()
    raise AssertionError("a stream ends with its completion")


def _heading(number: int, n: int) -> str:
    return f"--- completion {number} of {n} ---"
