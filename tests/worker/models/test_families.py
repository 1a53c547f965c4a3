"""Every dense family: nothing of a file is guessed, and nothing of it is left out."""

from functools import cache
from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.worker.models import tiny_llama
from tests.worker.models.feeding import open_model
from worker.errors import GGUFError, UnsupportedModelError
from worker.models.registry import SUPPORTED_ARCHITECTURES

TINY = Path(__file__).parents[2] / "data" / "tiny"
FAMILIES = [
    "gemma2", "gemma3", "gpt2", "granite", "llama-biases", "olmo2", "phi3", "phi3-longrope",
    "qwen2", "qwen3", "smollm3", "stablelm", "starcoder2",
]  # fmt: skip
# Tensors whose absence means something: tied embeddings, one block of another kind, no rotation
# by divisors, no norm of heads.
OPTIONAL = ("output.weight", "ffn_norm.weight", "attn_q_norm.weight", "attn_k_norm.weight")
STRAY = {
    "blk.0.attn_sinks.weight": "heads",
    "blk.1.ffn_gate_inp.weight": "hidden",
    "blk.0.attn_q_norm.weight": "hidden",
    "blk.0.post_ffw_norm.weight": "hidden",
    "blk.1.ffn_norm.bias": "hidden",
    "blk.1.attn_rel_b.weight": "hidden",
    "output.bias": "vocabulary",
    "position_embd.weight": "hidden",
    "rope_freqs.weight": "hidden",
}
ROTATED_BY_DIVISORS = {"llama", "granite", "smollm3", "phi3"}


@cache
def _contents(name):
    """Architecture, metadata and tensors of a family's file."""
    reader = gguf.GGUFReader(TINY / name / f"{name}-F16.gguf")
    fields = {key: field.contents() for key, field in reader.fields.items()}
    metadata = {
        key: value
        for key, value in fields.items()
        if not key.startswith(("GGUF.", "general.")) and "merges" not in key
    }
    tensors = {tensor.name: np.array(tensor.data) for tensor in reader.tensors}
    return fields["general.architecture"], metadata, tensors


def _refusal(path, team):
    with pytest.raises((GGUFError, UnsupportedModelError)) as raised:
        open_model(path, team, matmul="compiled")
    return str(raised.value)


def test_all_families_are_here():
    """But those of experts, which have tests of their own."""
    here = {_contents(name)[0] for name in FAMILIES}
    assert here == {name for name in SUPPORTED_ARCHITECTURES if name in here}
    assert len(here) == 12


@pytest.mark.parametrize("name", FAMILIES)
def test_a_missing_tensor_is_named(name, tmp_path, team):
    """Whichever it is; biases of projections may be there or not."""
    architecture, metadata, tensors = _contents(name)
    required = [
        tensor
        for tensor in tensors
        if tensor.startswith("blk.0.") or not tensor.startswith("blk.")
        if not tensor.endswith(OPTIONAL) or architecture not in ("stablelm",)
        if tensor != "output.weight" and "rope_f" not in tensor
        if not (tensor.endswith(".bias") and "norm" not in tensor)
    ]
    for missing in required:
        rest = {tensor: values for tensor, values in tensors.items() if tensor != missing}
        path = tiny_llama.write(tmp_path / "model.gguf", metadata, rest, architecture)
        message = _refusal(path, team)
        assert "model.gguf" in message
        assert missing in message, (missing, message)


def _strays(name):
    """Tensors that a family's files never have, with a shape that would fit somewhere."""
    architecture, metadata, tensors = _contents(name)
    widths = {
        "heads": metadata[f"{architecture}.attention.head_count"],
        "hidden": metadata[f"{architecture}.embedding_length"],
        "vocabulary": len(tensors["token_embd.weight"]),
    }
    may_have = {"rope_freqs.weight"} if architecture in ROTATED_BY_DIVISORS else set()
    return {
        stray: np.ones(widths[width], np.float32)
        for stray, width in STRAY.items()
        if stray not in tensors and stray not in may_have
    }


@pytest.mark.parametrize("name", FAMILIES)
def test_a_tensor_that_the_family_does_not_use_is_refused(name, tmp_path, team):
    """It would change the results; so would one that it uses, of another shape."""
    architecture, metadata, tensors = _contents(name)
    for stray, values in _strays(name).items():
        path = tmp_path / "model.gguf"
        tiny_llama.write(path, metadata, tensors | {stray: values}, architecture)
        assert stray in _refusal(path, team)


@pytest.mark.parametrize("name", FAMILIES)
def test_longrope_without_its_divisors_is_refused(name, tmp_path, team):
    """Its key alone; positions would be rotated as if there were no scaling."""
    architecture, metadata, tensors = _contents(name)
    metadata = {key: value for key, value in metadata.items() if ".rope.scaling." not in key}
    metadata |= {f"{architecture}.rope.scaling.type": "longrope"}
    rest = {key: values for key, values in tensors.items() if "rope_factors" not in key}
    path = tiny_llama.write(tmp_path / "model.gguf", metadata, rest, architecture)
    words = "rope_factors_long" if architecture in ROTATED_BY_DIVISORS else "longrope"
    assert words in _refusal(path, team)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_key_that_the_family_does_not_read_is_refused(name, tmp_path, team):
    """With its value; keys that say "not used" are as good as none."""
    architecture, metadata, tensors = _contents(name)
    for key in ("attention.scale", "logit_scale", "attention.clamp_kqv", "no.such.key"):
        full = f"{architecture}.{key}"
        if full not in metadata:
            on, off = tmp_path / "on.gguf", tmp_path / "off.gguf"
            tiny_llama.write(on, metadata | {full: 0.5}, tensors, architecture)
            assert f"{full} is 0.5" in _refusal(on, team)
            open_model(tiny_llama.write(off, metadata | {full: 0.0}, tensors, architecture), team)
