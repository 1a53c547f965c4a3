"""Tiny random models against logits from transformers, over many tensor types.

Leaving out one feature (a window, the local rotary base, rope_freqs, q/k norms) moves these logits
by 1.3 or more, see sensitivity.json; the tolerance is 1e-4.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.worker.models.feeding import Feeder, logits_of, open_model

TINY = Path(__file__).parents[2] / "data" / "tiny"
CASES = [
    (path.parent.name, path.stem.removeprefix(f"{path.parent.name}-"))
    for path in sorted(TINY.glob("*/*.gguf"))
]
TOLERANCE = 1e-4


def _load(name, kind, team, **compute):
    description = json.loads((TINY / name / "model.json").read_text())
    model = open_model(TINY / name / f"{name}-{kind}.gguf", team, **compute)
    return model, description["prompts"], np.load(TINY / name / "expected.npz")


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_logits_equal_the_reference(name, kind, team):
    """All positions where the reference has them, else the last; the argmax at every position."""
    model, prompts, expected = _load(name, kind, team)
    for i, prompt in enumerate(prompts):
        logits = logits_of(model, prompt["ids"])
        reference = expected[f"{kind}.p{i}"]
        np.testing.assert_allclose(reference, logits[-len(reference) :], atol=TOLERANCE)
        assert expected[f"{kind}.p{i}.argmax"].tolist() == logits.argmax(1).tolist()


@pytest.mark.parametrize("name", ["llama", "llama3-rope", "gemma3"])
def test_the_compiled_matrix_product_gives_the_same_logits(name, team):
    """The fallback is as good as BLAS."""
    model, prompts, expected = _load(name, "F16", team, matmul="compiled")
    assert "f32, compiled float32" == model.numerics
    reference = expected["F16.p1"]
    np.testing.assert_allclose(reference, logits_of(model, prompts[1]["ids"]), atol=TOLERANCE)


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_greedy_continuation_equals_the_reference(name, team):
    """24 tokens, decoded one by one through the pool."""
    model, prompts, _ = _load(name, "F16", team)
    description = json.loads((TINY / name / "model.json").read_text())
    for prompt, greedy in zip(prompts, description["files"]["F16"]["greedy"], strict=False):
        feeder = Feeder(model, len(prompt["ids"]) + 24)
        logits = feeder.step({0: prompt["ids"]})[-1]
        found = [int(logits.argmax())]
        while len(found) < len(greedy["ids"]):
            found.append(int(feeder.step({0: found[-1:]})[0].argmax()))
        assert greedy["ids"] == found
