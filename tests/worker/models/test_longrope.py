"""LongRoPE: which divisors a sequence gets follows from itself, not from those beside it."""

import json

import numpy as np
import pytest

from tests.worker.models.feeding import Feeder, logits_of, open_model
from worker.engine.config import EngineConfig
from worker.engine.engine import Engine
from worker.engine.request import Request
from worker.engine.sampling_params import SamplingParams
from worker.models.rope_config import rotates_as_long

ORIGINAL = 64


@pytest.fixture(scope="module")
def path(data):
    """A tiny model made for 64 positions, and extended."""
    return data / "tiny" / "phi3-longrope" / "phi3-longrope-F16.gguf"


@pytest.fixture(scope="module")
def prompts(path):
    """A short prompt, and a long one."""
    description = json.loads((path.parent / "model.json").read_text())
    return [prompt["ids"] for prompt in description["prompts"]]


@pytest.mark.parametrize(
    ("max_tokens", "long_from", "expected"),
    [(64, 64, False), (65, 64, False), (66, 64, True), (10**9, None, False)],
)
def test_a_sequence_is_long_by_what_it_may_grow_to(max_tokens, long_from, expected):
    """The last token is not fed: 65 tokens take 64 positions."""
    assert expected == rotates_as_long(max_tokens, long_from)


@pytest.mark.parametrize("mode", ["f32", "int8"])
def test_both_kinds_side_by_side(path, prompts, team, mode):
    """In one batch, and in chunks, each has the bits that it has alone."""
    model = open_model(path, team, mode=mode)
    assert ORIGINAL == model.config.long_from
    alone = [logits_of(model, ids) for ids in prompts]
    feeder = Feeder(model, 160, sequences=2)
    feeder.long[1] = True
    together = feeder.step({0: prompts[0], 1: prompts[1][:100]})
    rest = feeder.step({1: prompts[1][100:]})
    assert np.array_equal(alone[0], together[: len(alone[0])])
    assert np.array_equal(alone[1], np.concatenate([together[len(alone[0]) :], rest]))


def test_the_kind_matters(path, prompts, team):
    """The same tokens as part of a long sequence: other keys, other logits."""
    model = open_model(path, team)
    feeder = Feeder(model, 32)
    feeder.long[0] = True
    moved = np.abs(logits_of(model, prompts[0]) - feeder.step({0: prompts[0]})).max()
    assert moved > 0.5


def test_a_prefix_is_not_shared_between_the_kinds(path, prompts):
    """Two rows of one prompt, one of which may grow long: each as alone, whoever comes first."""
    prompt = prompts[1][:48]
    sampling = [SamplingParams(max_tokens=8), SamplingParams(max_tokens=40)]

    def completions(order):
        engine = Engine.from_gguf(path, EngineConfig(block_size=16, max_num_seqs=1, threads=1))
        rows = [
            Request(row_id=row, prompt_token_ids=prompt, sampling=sampling[row]) for row in order
        ]
        found = {completion.row_id: completion.token_ids for completion in engine.generate(rows)}
        engine.close()
        return found

    alone = completions([0]) | completions([1])
    assert alone == completions([0, 1]) == completions([1, 0])
