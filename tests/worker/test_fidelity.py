"""int8 mode against f32 mode, and both against the golden files, on real and tiny models.

The measure is llama.cpp on the same file: it rounds activations to 8 bits as well, so its distance
from the float32 reference is what rounding costs. `docs/fidelity.md` shows the figures.
"""

import json
import os
from contextlib import contextmanager
from pathlib import Path

import pytest

from worker.engine.config import EngineConfig
from worker.engine.engine import Engine
from worker.engine.fidelity import compare
from worker.engine.loading import load
from worker.engine.request import Request
from worker.engine.sampling_params import SamplingParams
from worker.engine.token_logits import TokenLogits
from worker.file_hash import file_sha256

DATA = Path(__file__).parents[1] / "data"
MODELS_VARIABLE = "TOKENMILL_MODELS"

KL_FACTOR = 1.1  # of llama.cpp's mean KL
NLL_SHARE, NLL_MARGIN = 0.003, 0.001  # of the reference's NLL: at least, and beyond llama.cpp's
LOGIT_FACTOR = 1.25  # of llama.cpp's largest difference of a logit, tiny models
# A router near a tie sends a token to other experts, in one arithmetic and not in the other.
MIXTURES = {"mixtral": 1.5, "qwen3moe": 1.5, "gpt-oss": 1.5}  # factor on both

GOLDEN = {"smollm2": "smollm2-135m-q4_1.json", "gemma3_270m": "gemma-3-270m-q4_k_m.json"}
REQUANTISED = json.loads((DATA / "golden" / "smollm2-135m-requantised-nll.json").read_text())
# Those folders that have figures of llama.cpp.
TINY = [
    path
    for path in sorted((DATA / "tiny").glob("*/*.gguf"))
    if "files" in json.loads((path.parent / "model.json").read_text())
]


def _golden(name):
    return json.loads((DATA / "golden" / name).read_text())


@contextmanager
def _token_logits(path, compute, size):
    config = EngineConfig(compute=compute, threads=2)
    loaded = load(path, config)
    try:
        yield TokenLogits(loaded, config, size)
    finally:
        loaded.team.close()


def _compare(path, texts):
    """What int8 mode makes of each text, compared with f32 mode."""
    size = max(map(len, texts))
    with _token_logits(path, "f32", size) as f32, _token_logits(path, "int8", size) as int8:
        return [compare(f32, int8, ids) for ids in texts]


def _assert_as_close_as_llama_cpp(found, reference, llama_cpp):
    """f32 mode meets its reference; int8 mode is no further from it than the contract allows."""
    nll = reference["mean_nll"]
    assert nll == pytest.approx(found.reference_nll, abs=1e-4)
    assert found.mean_kl <= KL_FACTOR * llama_cpp["kl_mean"]
    llama_cpp_share = abs(llama_cpp["mean_nll"] - nll) / nll
    assert found.nll_difference <= max(NLL_SHARE, llama_cpp_share + NLL_MARGIN)


@pytest.mark.parametrize("model", GOLDEN)
def test_int8_is_as_close_to_f32_as_llama_cpp_is(model, request):
    """1,500 tokens of a text: mean KL and likelihood."""
    golden = _golden(GOLDEN[model])["nll"]
    [found] = _compare(request.getfixturevalue(model), [golden["ids"]])
    assert golden["n_ids"] == found.num_tokens
    _assert_as_close_as_llama_cpp(found, golden["reference"], golden["llama_cpp_native_file"])


@pytest.mark.requantised
@pytest.mark.parametrize("name", REQUANTISED["models"])
def test_int8_is_as_close_to_f32_in_other_types(name):
    """The same for files made by `llama-quantize --allow-requantize` in $TOKENMILL_MODELS."""
    folder = os.environ.get(MODELS_VARIABLE)
    if folder is None:
        pytest.skip(f"{MODELS_VARIABLE} names no folder of requantised files")
    path = Path(folder) / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    golden = REQUANTISED["models"][name]
    assert golden["sha256"] == file_sha256(path)
    [found] = _compare(path, [_golden(REQUANTISED["ids_from"])["nll"]["ids"]])
    assert REQUANTISED["n_scored"] + 1 == found.num_tokens
    _assert_as_close_as_llama_cpp(found, golden["reference"], golden["llama_cpp_native_file"])


@pytest.mark.parametrize("model", GOLDEN)
def test_int8_leaves_the_greedy_reference_at_near_ties_only(model, request):
    """48 tokens after every prompt.

    Where they leave the reference, its runner-up takes over, and the gap between the two is no
    wider than the widest one at which llama.cpp leaves it.
    """
    prompts = _golden(GOLDEN[model])["prompts"]
    theirs = [prompt["llama_cpp"]["native_file"]["greedy"] for prompt in prompts]
    near_tie = max(each.get("reference_gap_there", 0.0) for each in theirs)
    engine = Engine.from_gguf(request.getfixturevalue(model), EngineConfig(compute="int8"))
    sampling = SamplingParams(max_tokens=48, ignore_eos=True)
    completions = engine.generate(
        Request(row_id=row, prompt_token_ids=prompt["ids"], sampling=sampling)
        for row, prompt in enumerate(prompts)
    )
    engine.close()
    left = []
    for prompt, completion in zip(prompts, completions, strict=True):
        greedy = prompt["greedy"]
        pairs = enumerate(zip(greedy["ids"], completion.token_ids, strict=True))
        step = next((i for i, (expected, found) in pairs if expected != found), None)
        if step is not None:
            left.append(prompt["name"])
            assert greedy["runner_up"][step] == completion.token_ids[step], prompt["name"]
            assert greedy["gap"][step] <= near_tie, prompt["name"]
    assert len(left) < len(prompts)


@pytest.mark.parametrize("path", TINY, ids=[path.stem for path in TINY])
def test_int8_of_tiny_models_is_near_f32(path):
    """Every tensor type: mean KL over both prompts, and no logit far from f32 mode's."""
    description = json.loads((path.parent / "model.json").read_text())
    kind = path.stem.removeprefix(f"{path.parent.name}-")
    theirs = [each["native_file"] for each in description["files"][kind]["llama_cpp"]]
    texts = [prompt["ids"] for prompt in description["prompts"]]
    found = _compare(path, texts)
    assert [len(text) for text in texts] == [each.num_tokens for each in found]
    ours = sum(each.mean_kl * each.num_tokens for each in found)
    bound = sum(t["kl_mean"] * len(text) for t, text in zip(theirs, texts, strict=True))
    slack = MIXTURES.get(path.parent.name, 1.0)
    assert 0 < ours <= slack * KL_FACTOR * bound
    for each, llama_cpp in zip(found, theirs, strict=True):
        assert each.max_difference <= slack * LOGIT_FACTOR * llama_cpp["max_abs_diff_all"]
