"""What a model says of its logit rows."""

from dataclasses import replace

import numpy as np
import pytest

from tests.worker.models import tiny_llama
from tests.worker.models.feeding import Feeder, open_model

TOKENS = 37  # of the tokenizer; the embedding has three rows more


@pytest.fixture(params=["f32", "int8"])
def mode(request):
    """How weights are kept; the head differs most."""
    return request.param


def padded_model(tmp_path, team, mode, rows_past_the_tokens):
    """A small llama whose embedding has rows without a token."""
    weights = tiny_llama.tensors()
    weights["token_embd.weight"][TOKENS:] *= rows_past_the_tokens
    metadata = tiny_llama.keys() | {"tokenizer.ggml.tokens": [f"t{i}" for i in range(TOKENS)]}
    path = tiny_llama.write(tmp_path / "model.gguf", metadata, weights)
    return open_model(path, team, mode=mode)


def step(model, keep):
    """Logits of a first step of seven tokens, kept as told."""
    feeder = Feeder(model, 16)
    batch = feeder.batch({0: [5, 6, 7, 8, 9, 10, 11]})
    return model.forward(replace(batch, keep_logits=np.array(keep)), feeder.kv)


@pytest.mark.parametrize("factor", [1.0, 1e4, np.nan])
def test_the_best_token_is_one_of_the_tokenizer(tmp_path, team, mode, factor):
    """Logits past its last token are padding, whatever they are."""
    logits = step(padded_model(tmp_path, team, mode, factor), [True] * 7)
    rows = logits.rows[:, :TOKENS]
    assert rows.argmax(1).tolist() == logits.best_token.tolist()
    assert rows.max(1).tolist() == logits.best_value.tolist()
    assert logits.kept.all()
    assert len(logits) == 7


def test_best_tokens_do_not_depend_on_what_is_kept(tmp_path, team, mode):
    """Rows that are kept hold the same logits, rows that are not have the same best token."""
    model = padded_model(tmp_path, team, mode, 1.0)
    every = step(model, [True] * 7)
    rows, tokens, values = every.rows.copy(), every.best_token.tolist(), every.best_value.tolist()
    some = step(model, [True, False, False, True, False, True, False])
    assert (tokens, values) == (some.best_token.tolist(), some.best_value.tolist())
    kept = np.flatnonzero(some.kept).tolist()
    assert {0, 3, 5} <= set(kept)
    assert rows[kept].tolist() == some.rows[kept].tolist()


def test_a_row_with_a_logit_that_is_not_finite_has_no_best_token(tmp_path, team, mode):
    """A NaN in a token's embedding is one in its logit, in every row."""
    weights = tiny_llama.tensors()
    weights["token_embd.weight"][20, 3] = np.nan
    path = tiny_llama.write(tmp_path / "model.gguf", tiny_llama.keys(), weights)
    assert [-1] * 7 == step(open_model(path, team, mode=mode), [False] * 7).best_token.tolist()
