"""``tokenmill perplexity``: how well a model predicts a text, to judge a file or a compute mode."""

import json
import sys
from collections.abc import Mapping
from math import inf, isfinite
from pathlib import Path
from typing import Any

from cluster.errors import InputError, JobConfigError
from worker.engine.config import EngineConfig
from worker.engine.loading import LoadedModel, load
from worker.engine.perplexity import (
    DEFAULT_CONTEXT,
    MIN_CONTEXT,
    Perplexity,
    measure_perplexity,
)
from worker.engine.token_logits import TokenLogits
from worker.errors import RowError
from worker.model_source import fetch_model
from worker.tokenizer.tokenizer import Tokenizer

from .engine_options import engine_config


def print_perplexity(
    model: str,
    text_file: Path,
    context: int | None,
    engine_options: Mapping[str, Any],
    output_format: str,
) -> None:
    """Score a text file and print the result; progress goes to standard error.

    Raises:
        JobConfigError: options that cannot be.
        InputError: the file cannot be read, is not UTF-8 or has fewer than two tokens.
        ModelError: the model cannot be used, or its logits are not finite.
        PoolSizeError: the KV cache of a window does not fit this machine.
    """
    config = engine_config(engine_options)
    text = _read_text(text_file)
    loaded = load(fetch_model(model), config)
    try:
        size = _context(context, loaded)
        token_ids = _token_ids(text, text_file, loaded.tokenizer)
        found = _measure(loaded, config, size, token_ids)
        numerics = loaded.model.numerics
    finally:
        loaded.team.close()
    result = as_json(found, size, config.compute, numerics)
    print(json.dumps(result, indent=2) if output_format == "json" else "\n".join(_lines(result)))


def as_json(found: Perplexity, context: int, compute: str, numerics: str) -> dict[str, Any]:
    """The result as the JSON object that is printed."""
    return {
        "mean_nll": found.mean_nll,
        "perplexity": found.perplexity if isfinite(found.perplexity) else None,
        "num_tokens": found.num_tokens,
        "num_scored": found.num_scored,
        "num_computed": found.num_computed,
        "context": context,
        "windows": found.num_windows,
        "seconds": found.seconds,
        "tokens_per_second": found.tokens_per_second,
        "compute": compute,
        "numerics": numerics,
    }


def _lines(result: Mapping[str, Any]) -> list[str]:
    """The result for people: a name and a value a line."""
    named = {
        "mean NLL": f"{result['mean_nll']:.6f} nats a token",
        "perplexity": f"{result['perplexity'] or inf:.4f}",
        "tokens": f"{result['num_tokens']:,}, {result['num_scored']:,} of them scored",
        "windows": f"{result['windows']:,} of at most {result['context']:,} tokens",
        "speed": f"{result['tokens_per_second']:.1f} tok/s, {result['num_computed']:,} tokens in "
        f"{result['seconds']:.1f} s",
        "compute": result["compute"],
        "numerics": result["numerics"],
    }
    return [f"{name:<10}  {value}" for name, value in named.items()]


def _read_text(path: Path) -> str:
    """The file's text, byte for byte: line breaks stay as they are.

    Raises:
        InputError: no such file, or not UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: not valid UTF-8 (byte {error.start}); convert the text to UTF-8"
        ) from error


def _context(wanted: int | None, loaded: LoadedModel) -> int:
    """Tokens of a window.

    Raises:
        JobConfigError: fewer than can be, or more than the model was made for.
    """
    largest = loaded.model.config.context_length
    size = min(largest, DEFAULT_CONTEXT) if wanted is None else wanted
    if not MIN_CONTEXT <= size <= largest:
        raise JobConfigError(
            f"--context {size}: expected {MIN_CONTEXT} to {largest}, the model's context"
        )
    return size


def _token_ids(text: str, path: Path, tokenizer: Tokenizer) -> list[int]:
    """The text's tokens, with those that the model adds.

    Raises:
        InputError: the vocabulary cannot express the text, or there is nothing to predict.
    """
    try:
        token_ids = tokenizer.encode(text)
    except RowError as error:
        raise InputError(f"{path}: {error}") from error
    if len(token_ids) < 2:
        raise InputError(
            f"{path}: the text has {len(text)} characters and {len(token_ids)} tokens, begin of "
            "text included; at least 2 are needed, so that one can be predicted: give a longer text"
        )
    return token_ids


def _measure(
    loaded: LoadedModel, config: EngineConfig, context: int, token_ids: list[int]
) -> Perplexity:
    """Score the tokens in windows of at most `context`, no longer than the text."""
    logits = TokenLogits(loaded, config, max(MIN_CONTEXT, min(context, len(token_ids))))
    return measure_perplexity(logits, token_ids, loaded.tokenizer.bos_id, _show_progress)


def _show_progress(done: int, windows: int, mean: float) -> None:
    print(f"window {done} of {windows}: {mean:.4f} nats so far", file=sys.stderr, flush=True)
