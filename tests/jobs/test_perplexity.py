"""The verb perplexity: what it prints, and what it refuses."""

import json

import pytest

from worker.engine.config import EngineConfig
from worker.engine.loading import load
from worker.engine.perplexity import measure_perplexity
from worker.engine.token_logits import TokenLogits

TEXT = "is it? It is.\r\n" * 20


@pytest.fixture
def text_file(tmp_path):
    """A text of some hundred tokens."""
    path = tmp_path / "text.txt"
    path.write_bytes(TEXT.encode())
    return path


def _measured(model, context, compute="int8"):
    """What the library finds in the text."""
    config = EngineConfig(threads=1, compute=compute)
    loaded = load(model, config)
    ids = loaded.tokenizer.encode(TEXT)
    logits = TokenLogits(loaded, config, context)
    return measure_perplexity(logits, ids, loaded.tokenizer.bos_id)


@pytest.mark.parametrize("compute", ["int8", "f32"])
def test_json_holds_the_figures(invoke, chain_llama, text_file, compute):
    """The text byte for byte, in windows of the context asked for; progress goes to stderr."""
    options = ("--context", 32, "--compute", compute, "-o", "json")
    result = invoke("perplexity", chain_llama, text_file, *options)
    assert 0 == result.exit_code, result.stderr
    answer, expected = json.loads(result.stdout), _measured(chain_llama, 32, compute)
    names = ("mean_nll", "perplexity", "num_tokens", "num_scored", "num_computed")
    assert {name: getattr(expected, name) for name in names} == {n: answer[n] for n in names}
    assert (32, expected.num_windows) == (answer["context"], answer["windows"])
    assert answer["tokens_per_second"] == answer["num_computed"] / answer["seconds"]
    assert compute == answer["compute"]
    assert answer["numerics"].startswith(compute)
    assert expected.num_windows == len(result.stderr.splitlines())


def test_text_shows_the_same_figures(invoke, chain_llama, text_file):
    """A name and a value a line; by default int8, and the model's context as it is below 2048."""
    lines = invoke("perplexity", chain_llama, text_file, "--threads", 2).stdout.splitlines()
    found = dict(line.split("  ", 1) for line in lines)
    expected = _measured(chain_llama, 256)
    assert f"{expected.mean_nll:.6f} nats a token" == found["mean NLL"].strip()
    assert f"{expected.perplexity:.4f}" == found["perplexity"].strip()
    assert f"{expected.num_windows} of at most 256 tokens" == found["windows"].strip()


def test_a_perplexity_beyond_float64_is_no_broken_json(invoke, chain_llama, text_file, monkeypatch):
    """JSON has no infinity: null."""
    from worker.engine.perplexity import Perplexity

    monkeypatch.setattr(Perplexity, "perplexity", float("inf"))
    answer = json.loads(invoke("perplexity", chain_llama, text_file, "-o", "json").stdout)
    assert answer["perplexity"] is None
    assert "inf" in invoke("perplexity", chain_llama, text_file).stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the text has 0 characters and 1 tokens"),
        (b"caf\xe9", "not valid UTF-8 (byte 3)"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_text_that_cannot_be_scored_exits_4(invoke, chain_llama, tmp_path, content, message):
    """The file is named, and what is wrong with it."""
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    result = invoke("perplexity", chain_llama, path)
    assert (4, "") == (result.exit_code, result.stdout)
    assert [f"tokenmill: {path}: {message}"] == [
        line[: len(f"tokenmill: {path}: {message}")] for line in result.stderr.splitlines()
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--context", 257), "--context 257: expected 4 to 256"),
        (("--context", 3), "--context 3: expected 4 to 256"),
        (("--compute", "f16"), "'f16'"),
        (("--threads", 0), "--threads"),
    ],
)
def test_options_that_cannot_be_exit_2(invoke, chain_llama, text_file, arguments, message):
    """A usage error, before any token is computed."""
    result = invoke("perplexity", chain_llama, text_file, *arguments)
    assert (2, "") == (result.exit_code, result.stdout)
    assert message in result.stderr


def test_a_model_that_computes_nan_exits_4(invoke, cases, text_file):
    """No figure is printed for a broken file."""
    model = cases / "127-nan-scale-everywhere" / "model.gguf"
    result = invoke("perplexity", model, text_file)
    assert (4, "") == (result.exit_code, result.stdout)
    assert "non-finite logits for token 1 of a window" in result.stderr.splitlines()[-1]
