"""The engine on two real models against the golden files, all prompts in one batch."""

import json

import pytest

from worker.engine.config import EngineConfig
from worker.engine.engine import Engine
from worker.engine.loading import load
from worker.engine.request import Request
from worker.engine.sampling_params import SamplingParams

pytestmark = pytest.mark.model
TOLERANCE = 5e-3
FILES = {"smollm2": "smollm2-135m-q4_1.json", "gemma3_270m": "gemma-3-270m-q4_k_m.json"}


@pytest.fixture(scope="module", params=[(name, mode) for name in FILES for mode in ("f32", "int8")])
def loaded(request):
    """A real model in either mode, loaded once for all engines of this file."""
    name, mode = request.param
    parts = load(request.getfixturevalue(name), EngineConfig(compute=mode))
    yield parts
    parts.team.close()


@pytest.fixture
def mode(request):
    """The compute mode of the loaded model."""
    return request.node.callspec.params["loaded"][1]


@pytest.fixture
def prompts(request, data):
    """The golden prompts of the loaded model."""
    name = FILES[request.node.callspec.params["loaded"][0]]
    return json.loads((data / "golden" / name).read_text())["prompts"]


def _requests(prompts, max_tokens):
    sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=True, logprobs=32)
    return [
        Request(row_id=row, prompt_token_ids=prompt["ids"], sampling=sampling)
        for row, prompt in enumerate(prompts)
    ]


def _generate(loaded, prompts, max_tokens, **settings):
    engine = Engine(loaded, EngineConfig(**settings))
    completions = engine.generate(_requests(prompts, max_tokens))
    engine.check_invariants()
    return completions, engine.stats.snapshot()


def _until_near_tie(greedy):
    """Steps before the first whose two best logits may change places."""
    return next(
        (i for i, gap in enumerate(greedy["gap"]) if gap < 2 * TOLERANCE), len(greedy["ids"])
    )


def test_greedy_tokens_and_logprobs_are_golden(loaded, prompts, mode):
    """48 greedy tokens of every prompt, and the most likely first tokens with log-probs."""
    if mode == "int8":
        pytest.skip("rounded activations move logits: test_fidelity.py bounds how far")
    completions, _ = _generate(loaded, prompts, 48, compute=mode)
    for prompt, completion in zip(prompts, completions, strict=True):
        sure = _until_near_tie(prompt["greedy"])
        assert list(completion.token_ids[:sure]) == prompt["greedy"]["ids"][:sure], prompt["name"]
        expected = dict(
            zip(prompt["last_top32"]["ids"], prompt["last_top32"]["logits"], strict=True)
        )
        got = dict(completion.logprobs[0].top)
        for token in expected.keys() & got.keys():
            logprob = expected[token] - prompt["last_logsumexp"]
            assert got[token] == pytest.approx(logprob, abs=TOLERANCE), (prompt["name"], token)
        assert len(expected.keys() & got.keys()) >= 30


def test_batch_chunk_and_preemption_change_no_bit(loaded, prompts, mode):
    """Tokens and log-probs of each prompt are the same alone, in chunks of 7 and preempted."""
    prompts = [prompt for prompt in prompts if prompt["n_tokens"] < 40][:4]
    settings = [
        {},
        {"max_num_seqs": 1, "max_num_batched_tokens": 7},
        {"kv_pool_tokens": 96},
    ]
    runs = [_generate(loaded, prompts, 40, compute=mode, **setting) for setting in settings]
    outcomes = [[(c.token_ids, c.logprobs) for c in completions] for completions, _ in runs]
    assert outcomes[1:] == outcomes[:1] * 2
    assert [snapshot.preemptions > 0 for _, snapshot in runs] == [False, False, True]
