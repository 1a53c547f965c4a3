"""Mixtures of experts: what is touched, what the metadata may say, and the integer kernels."""

import json

import gguf
import numpy as np
import pytest

from tests.worker.models import tiny_llama
from tests.worker.models.feeding import Feeder, logits_of, open_model
from worker.errors import GGUFError, UnsupportedModelError
from worker.thread_team import ThreadTeam

EXPERTS, USED = 6, 2
IDS = [3, 1, 4, 15, 9, 26, 5, 35, 8, 9, 7, 9, 32, 38, 4, 6, 2, 6, 4, 33]
QUANTISED = [
    ("mixtral", "Q4_0"),
    ("mixtral", "Q8_0"),
    ("qwen3moe", "Q4_1"),
    ("gpt-oss", "Q8_0"),
    ("gpt-oss", "MXFP4_MOE"),
    ("qwen35", "Q8_0"),
]


def mixture_keys(**changed):
    """Metadata of a llama file with experts."""
    keys = {"llama.expert_count": EXPERTS, "llama.expert_used_count": USED}
    return tiny_llama.keys() | keys | {f"llama.{name}": value for name, value in changed.items()}


def mixture(rows=tiny_llama.FEED_FORWARD):
    """Weights of a llama file with experts of so many values."""
    random = np.random.default_rng(0)
    weights = {
        n: w
        for n, w in tiny_llama.tensors().items()
        if not n.endswith(("_gate.weight", "_up.weight", "_down.weight"))
    }
    hidden = tiny_llama.HIDDEN
    for layer in range(tiny_llama.LAYERS):
        shapes = {
            "gate_inp": (EXPERTS, hidden),
            "gate_exps": (EXPERTS, rows, hidden),
            "up_exps": (EXPERTS, rows, hidden),
            "down_exps": (EXPERTS, hidden, rows),
        }
        for name, shape in shapes.items():
            values = 0.3 * random.standard_normal(shape, np.float32)
            weights[f"blk.{layer}.ffn_{name}.weight"] = values
    return weights


def test_the_weights_of_experts_that_were_not_chosen_are_not_touched(tmp_path, team):
    """NaN there changes nothing, and nothing of them is dequantised."""
    weights = mixture()
    # All embeddings lean to one side, so that experts 4 and 1 are chosen whatever the token.
    weights["token_embd.weight"] = np.abs(weights["token_embd.weight"]) + 5
    for layer in range(tiny_llama.LAYERS):
        weights[f"blk.{layer}.ffn_norm.weight"][:] = 1
        router = weights[f"blk.{layer}.ffn_gate_inp.weight"]
        router[:] = -1
        router[1], router[4] = 1, 2
    sound = logits_of(
        open_model(tiny_llama.write(tmp_path / "a", mixture_keys(), weights), team), IDS
    )
    for name, values in weights.items():
        if name.endswith("_exps.weight"):
            values[[0, 2, 3, 5]] = np.nan
    path = tiny_llama.write(tmp_path / "b", mixture_keys(), weights)
    for mode in ("f32", "int8"):
        model = open_model(path, team, mode=mode)
        np.testing.assert_allclose(sound, logits_of(model, IDS), atol=1e-4)
        if mode == "f32":
            # A unit for what stands alone, and gate/up and down of two experts; then the head.
            heads = len(model.dequant_cache.units) - tiny_llama.LAYERS * (1 + 2 * EXPERTS)
            assert model.dequant_cache.stats().misses == tiny_llama.LAYERS * (1 + 2 * 2) + heads


@pytest.mark.parametrize("rows", [32, 40])
def test_both_modes_agree_on_floats(rows, tmp_path, team):
    """Also where an expert's rows fill no whole row blocks, so that it cannot be packed."""
    keys = mixture_keys(feed_forward_length=rows)
    path = tiny_llama.write(tmp_path / "model", keys, mixture(rows))
    exact = logits_of(open_model(path, team), IDS)
    model = open_model(path, team, mode="int8")
    np.testing.assert_allclose(exact, logits_of(model, IDS), atol=1e-4)
    assert (model.dequant_cache.stats().misses > 0) is (rows % 16 != 0)


@pytest.mark.parametrize(
    ("changed", "naive"),
    [
        ({}, {}),
        ({"expert_weights_norm": True}, {}),
        ({"expert_weights_norm": False}, {"is_share_of_all": True}),
        ({"expert_weights_scale": 1.5}, {"scale": 1.5}),
        ({"expert_used_count": 3}, {"used": 3}),
        ({"expert_gating_func": 1}, {}),
    ],
)
def test_a_layer_is_the_weighted_sum_of_its_experts(changed, naive, tmp_path, team):
    """As computed token by token and expert by expert in float64."""
    weights = mixture()
    for name in weights:  # nothing but the mixture of the first layer
        if "attn_output" in name or name == "blk.1.ffn_down_exps.weight":
            weights[name][:] = 0
    path = tiny_llama.write(tmp_path / "model", mixture_keys(**changed), weights)
    expected = naive_logits(weights, **naive)
    np.testing.assert_allclose(expected, logits_of(open_model(path, team), IDS), atol=2e-4)


def naive_logits(weights, used=USED, is_share_of_all=False, scale=1.0):
    """Logits of a model whose only layer is a mixture."""
    w = {name: values.astype(np.float64) for name, values in weights.items()}
    x = w["token_embd.weight"][IDS]
    h = normalised(x) * w["blk.0.ffn_norm.weight"]
    for t, token in enumerate(h):
        powers = np.exp(w["blk.0.ffn_gate_inp.weight"] @ token)
        chosen = np.argsort(-powers, kind="stable")[:used]
        total = powers.sum() if is_share_of_all else powers[chosen].sum()
        for expert in chosen:
            gate, up, down = (
                w[f"blk.0.ffn_{part}_exps.weight"][expert] for part in ("gate", "up", "down")
            )
            g = gate @ token
            x[t] += scale * powers[expert] / total * (down @ (g / (1 + np.exp(-g)) * (up @ token)))
    return normalised(x) * w["output_norm.weight"] @ w["token_embd.weight"].T


def normalised(x):
    """Rows divided by their root mean square."""
    return x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-5)


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"expert_used_count": 7}, GGUFError, "expert_used_count is 7, more than"),
        ({"expert_used_count": None}, GGUFError, "expert_used_count"),
        ({"expert_gating_func": 2}, UnsupportedModelError, "expert_gating_func is 2"),
        ({"expert_shared_count": 1}, UnsupportedModelError, "expert_shared_count"),
        ({"expert_group_count": 2}, UnsupportedModelError, "expert_group_count"),
        ({"expert_count": 5}, GGUFError, r"ffn_gate_inp.weight has the wrong shape"),
        ({"expert_count": 2**31 - 1}, GGUFError, r"ffn_gate_inp.weight has the wrong shape"),
        ({"expert_count": -1}, GGUFError, "expert_count is -1"),
    ],
)
def test_variants_that_are_not_computed_are_refused(changed, error, words, tmp_path, team):
    """An error that names the key or the tensor."""
    path = tiny_llama.write(tmp_path / "model", mixture_keys(**changed), mixture())
    with pytest.raises(error, match=words):
        open_model(path, team)


def test_an_expert_tensor_that_is_missing_is_named(tmp_path, team):
    """The message says which, and its shape."""
    weights = mixture()
    del weights["blk.1.ffn_up_exps.weight"]
    path = tiny_llama.write(tmp_path / "model", mixture_keys(), weights)
    with pytest.raises(GGUFError, match=r"blk\.1\.ffn_up_exps\.weight.*\[6, 48, 32\].*missing"):
        open_model(path, team)


@pytest.mark.parametrize(("name", "kind"), QUANTISED)
def test_the_integer_kernels_stay_near_the_reference(name, kind, data, team):
    """Logits spread by about 1; 8-bit activations move them by less than a tenth of that."""
    folder = data / "tiny" / name
    expected = np.load(folder / "expected.npz")
    model = open_model(folder / f"{name}-{kind}.gguf", team, mode="int8")
    for i, prompt in enumerate(json.loads((folder / "model.json").read_text())["prompts"]):
        found = logits_of(model, prompt["ids"])
        reference = expected[f"{kind}.p{i}"]
        assert np.abs(reference - found[-len(reference) :]).max() < 0.15
        assert (expected[f"{kind}.p{i}.argmax"] == found.argmax(1)).mean() > 0.8


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("name", "kind"), QUANTISED)
def test_integer_rows_do_not_depend_on_their_neighbours(name, kind, threads, data):
    """In chunks, and beside sequences that go to other experts, on any number of threads."""
    folder = data / "tiny" / name
    prompts = json.loads((folder / "model.json").read_text())["prompts"]
    short, long = prompts[0]["ids"], prompts[1]["ids"]
    with ThreadTeam(threads) as team:
        model = open_model(folder / f"{name}-{kind}.gguf", team, mode="int8")
        alone = logits_of(model, long)
        for chunk in (1, 7, 16, 33):
            assert np.array_equal(alone, logits_of(model, long, chunk))
        feeder = Feeder(model, len(long), sequences=3)
        found = []
        for at in range(0, len(long), 10):
            rows = feeder.step({2: short[at % 12 :][:3], 0: long[at : at + 10], 1: [at + 5]})
            found.append(rows[3 : 3 + len(long[at : at + 10])])
        assert np.array_equal(alone, np.concatenate(found))


def test_quantised_experts_are_packed(data, team):
    """Nothing of the experts goes through the dequant cache."""
    model = open_model(data / "tiny" / "mixtral" / "mixtral-Q4_0.gguf", team, mode="int8")
    assert () == model.dequant_cache.units
    assert gguf.GGMLQuantizationType.Q4_0 in {
        tensor.tensor_type
        for tensor in gguf.GGUFReader(data / "tiny" / "mixtral" / "mixtral-Q4_0.gguf").tensors
        if tensor.name.endswith("_exps.weight")
    }
