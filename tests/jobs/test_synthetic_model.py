"""Model files of random weights, made at a tiny size."""

import importlib.util
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize

from worker.engine.engine import Engine
from worker.engine.request import Request, RowId
from worker.engine.sampling_params import SamplingParams
from worker.gguf import GGUFFile
from worker.gguf.summary import summarize

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.fixture(scope="module")
def make():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("synthetic", CONFIGS / "make_synthetic_model.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["synthetic"] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    yield module
    del sys.modules["synthetic"]


@pytest.fixture
def write(make, tiny_llama, tmp_path):
    """Write a tiny model of a type."""

    def write(type_name: str, name: str = "model.gguf") -> Path:
        path = tmp_path / name
        make.write_model(tiny_llama, path, make.SIZES["tiny"], type_name)
        return path

    return write


@pytest.fixture(scope="module")
def tiny_llama(data) -> Path:
    """The file whose tokenizer is copied."""
    return data / "tiny" / "llama" / "llama-Q8_0.gguf"


@pytest.mark.parametrize("type_name", ["Q4_K_M", "Q2_K", "Q5_0", "IQ4_XS", "BF16", "F32"])
def test_the_model_runs_with_finite_logits(write, type_name):
    """Log-probabilities of every token of the vocabulary are numbers, and not all alike."""
    engine = Engine.from_gguf(write(type_name))
    try:
        vocab = engine.tokenizer.vocab_size
        sampling = SamplingParams(max_tokens=3, ignore_eos=True, logprobs=20)
        [completion] = engine.generate(
            [Request(row_id=RowId(0), prompt_token_ids=list(range(20)), sampling=sampling)]
        )
    finally:
        engine.close()
    assert completion.error is None
    assert all(0 <= token < vocab for token in completion.token_ids)
    for step in completion.logprobs:
        values = [value for _, value in step.top]
        assert np.isfinite(values).all()
        assert values[0] > values[-1]


def test_every_type_has_the_deviation_of_its_columns(make):
    """Codes, scales and minima together give values around 0 with deviation 1 / sqrt(columns)."""
    for name in make.TYPE_NAMES[1:]:
        tensor = make.Tensor("x", GGMLQuantizationType[name], (64, 1024))
        stored = make.random_tensor(tensor, (1,))
        values = dequantize(stored.view(np.uint8), tensor.qtype)
        assert (64, 1024) == values.shape, name
        assert 1 / 32 == pytest.approx(values.std(), rel=0.1), name
        assert abs(values.mean()) < 0.1 / 32, name


def test_a_file_of_one_type_holds_nothing_else(write):
    """All matrices have the type that was asked for; norms are F32."""
    types = summarize(GGUFFile.open(write("Q5_K"))).types
    assert {"Q5_K", "F32"} == set(types)
    assert types["F32"].n_values < 2000


def test_the_mix_is_mostly_q4_k_and_q6_k(make):
    """The share that the bench asks for holds at the size that it is for."""
    tensors = list(make.model_tensors(make.SIZES["3B"], "Q4_K_M", 49152))
    sizes = dict.fromkeys(("Q4_K", "Q6_K", "F32"), 0)
    for tensor in tensors:
        sizes[tensor.qtype.name] += int(np.prod(tensor.shape))
    assert 2.5e9 < sum(sizes.values()) < 3.5e9
    assert sizes["Q4_K"] > sizes["Q6_K"] > 0.1 * sum(sizes.values())
    assert sizes["F32"] < 1e-3 * sum(sizes.values())
    assert all(tensor.shape[-1] % 256 == 0 for tensor in tensors)


def test_a_third_to_a_half_of_the_layers_keep_precision(make):
    """The first and last eighth, and each third one between."""
    kept = [layer for layer in range(16) if make.keeps_precision(layer, 16)]
    assert [0, 1, 4, 7, 10, 13, 14, 15] == kept


def test_the_same_arguments_give_the_same_bytes(write):
    """A bench on another machine has the same file."""
    digests = {sha256(write("Q3_K", name).read_bytes()).digest() for name in ("a", "b")}
    assert 1 == len(digests)


def test_the_tokenizer_is_that_of_the_source(write, tiny_llama):
    """Every key of the tokenizer is there with its value."""
    source, copy = GGUFFile.open(tiny_llama), GGUFFile.open(write("Q4_0"))
    keys = [key for key in source.metadata if key.startswith("tokenizer.")]
    assert len(keys) > 3
    for key in keys:
        assert list(np.ravel(source.metadata[key])) == list(np.ravel(copy.metadata[key])), key
