"""Real models against transformers in float32: logits and greedy continuations.

The likelihood of a long text is compared in tests/worker/test_fidelity.py.
"""

import json

import numpy as np
import pytest

from tests.worker.models.feeding import Feeder, logits_of

TOLERANCE = 5e-3
NEAR_TIE = 1e-2
FILES = {
    "smollm2_model": "smollm2-135m-q4_1.json",
    "gemma3_model": "gemma-3-270m-q4_k_m.json",
}


@pytest.fixture(scope="module", params=sorted(FILES))
def model_and_golden(request, data):
    """A real model and its reference."""
    golden = json.loads((data / "golden" / FILES[request.param]).read_text())
    return request.getfixturevalue(request.param), golden


def _assert_same_unless_near_tie(expected, found, gaps):
    wrong = [i for i, pair in enumerate(zip(expected, found, strict=True)) if pair[0] != pair[1]]
    assert [] == [(i, gaps[i]) for i in wrong if gaps[i] > NEAR_TIE]


def test_prompt_logits_equal_the_reference(model_and_golden):
    """Every position's argmax, and the 32 largest logits of the last position."""
    model, golden = model_and_golden
    for prompt in golden["prompts"]:
        logits = logits_of(model, prompt["ids"], chunk=200)
        _assert_same_unless_near_tie(
            prompt["argmax"], logits.argmax(1).tolist(), prompt["argmax_gap"]
        )
        top = prompt["last_top32"]
        np.testing.assert_allclose(top["logits"], logits[-1][top["ids"]], atol=TOLERANCE)
        likelihood = np.log(np.exp(logits[-1].astype(np.float64)).sum())
        np.testing.assert_allclose(prompt["last_logsumexp"], likelihood, atol=TOLERANCE)


def test_greedy_continuations_equal_the_reference(model_and_golden):
    """48 tokens after every prompt, all prompts in one ragged batch; equal up to a near tie."""
    model, golden = model_and_golden
    prompts = golden["prompts"]
    longest = max(len(prompt["ids"]) for prompt in prompts) + 48
    feeder = Feeder(model, longest, len(prompts))
    found = {}
    for s, prompt in enumerate(prompts):
        last = len(prompt["ids"]) - 1
        found[s] = [int(feeder.step({s: prompt["ids"]}, [last])[0].argmax())]
    for _ in range(47):
        logits = feeder.step({s: ids[-1:] for s, ids in found.items()})
        for s, ids in found.items():
            ids.append(int(logits[s].argmax()))
    for s, prompt in enumerate(prompts):
        gaps = prompt["greedy"]["gap"]
        tie = next((i for i, gap in enumerate(gaps) if gap < NEAR_TIE), 48)
        assert prompt["greedy"]["ids"][:tie] == found[s][:tie], prompt["name"]
