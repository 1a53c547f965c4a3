"""Folders become the tensors and keys of the GGUF file that llama.cpp's converter makes of them."""

import hashlib
import json
import os
from itertools import pairwise

import numpy as np
import pytest

from worker.errors import CheckpointError, GGUFError, UnsupportedModelError
from worker.gguf import dequantize
from worker.huggingface import HuggingFaceFolder
from worker.models.registry import model_config

from . import checkpoints
from .checkpoints import FOLDERS, NAMES

CONVERTED = [name for name in NAMES if (FOLDERS / name / "converter.json").exists()]
# What one side says and the other leaves to the reader's default.
IMPLIED = {"vocab_size", "rope.dimension_count", "rope.freq_base"}
IMPLIED |= {"attention.sliding_window_pattern", "rope.scaling.yarn_truncate"}


def _values(model, name):
    info = model.tensor(name)
    values = np.empty((info.rows, info.columns), np.float32)
    dequantize(model.raw(name), info.qtype, values)
    return values


def _digest(values):
    return hashlib.sha256(values.tobytes()).hexdigest()[:16]


@pytest.mark.parametrize("name", CONVERTED)
def test_tensors_are_those_of_the_converter(name):
    """Names, shapes and every value."""
    expected = json.loads((FOLDERS / name / "converter.json").read_text())["tensors"]
    model = HuggingFaceFolder.open(FOLDERS / name)
    found = {
        tensor: [list(info.shape), _digest(_values(model, tensor))]
        for tensor, info in model.tensors.items()
    }
    assert expected == found


@pytest.mark.parametrize("name", CONVERTED)
def test_keys_are_those_of_the_converter(name):
    """Equal values, to float32; neither side has a key that the other lacks and that matters."""
    expected = json.loads((FOLDERS / name / "converter.json").read_text())["keys"]
    metadata = HuggingFaceFolder.open(FOLDERS / name).metadata
    prefix = metadata.text("general.architecture") + "."
    found = {key: value for key, value in metadata.items() if key.startswith(prefix)}
    for key in set(expected) & set(found):
        is_text = isinstance(found[key], str)
        assert expected[key] == (found[key] if is_text else pytest.approx(found[key], rel=1e-6))
    assert set() == {key.removeprefix(prefix) for key in set(expected) ^ set(found)} - IMPLIED


@pytest.mark.parametrize("name", NAMES)
def test_rows_asked_for_in_pieces_are_the_rows(name):
    """Whatever is reordered, transposed or stacked on the way."""
    model = HuggingFaceFolder.open(FOLDERS / name)
    for tensor, info in model.tensors.items():
        cuts = sorted({0, info.rows // 3, info.rows // 2 + 1, info.rows})
        pieces = [model.rows(tensor, a, b) for a, b in pairwise(cuts)]
        assert np.array_equal(model.raw(tensor), np.concatenate(pieces)), tensor
        assert all(piece.flags.c_contiguous for piece in pieces), tensor


def test_shards_are_the_whole(tmp_path):
    """Three files and an index hold what one file holds; sizes add up."""
    whole = HuggingFaceFolder.open(FOLDERS / "qwen2")
    folder = checkpoints.split(checkpoints.copy("qwen2", tmp_path), 3)
    split = HuggingFaceFolder.open(folder)
    assert sorted(whole.tensors) == sorted(split.tensors)
    for name in whole.tensors:
        assert whole.raw(name).tobytes() == split.raw(name).tobytes()
    assert sum(path.stat().st_size for path in folder.glob("*.safetensors")) == split.n_bytes
    assert whole.sha256() != split.sha256()


@pytest.mark.parametrize("dtype", ["F16", "F32"])
def test_other_types_give_the_same_values(tmp_path, dtype):
    """A value of bfloat16 of this size is exact in float16 and float32."""
    folder = checkpoints.copy("llama", tmp_path)
    stored = checkpoints.as_type(checkpoints.tensors(folder), dtype)
    (folder / "model.safetensors").write_bytes(checkpoints.safetensors(stored))
    expected, found = HuggingFaceFolder.open(FOLDERS / "llama"), HuggingFaceFolder.open(folder)
    for name in expected.tensors:
        assert dtype == found.tensor(name).qtype.name
        if dtype == "F32":
            assert np.array_equal(_values(expected, name), _values(found, name))
        else:
            np.testing.assert_allclose(_values(expected, name), _values(found, name), atol=1e-7)


def test_the_hash_is_of_config_and_weights(tmp_path):
    """Another configuration is another model."""
    a = checkpoints.copy("llama", tmp_path / "a")
    b = checkpoints.copy("llama", tmp_path / "b", rms_norm_eps=1e-3)
    assert HuggingFaceFolder.open(a).sha256() == HuggingFaceFolder.open(a).sha256()
    assert HuggingFaceFolder.open(a).sha256() != HuggingFaceFolder.open(b).sha256()


def test_an_older_config_means_the_same(tmp_path):
    """Fields of rotary positions had other places before transformers 5."""
    config = json.loads((FOLDERS / "llama3" / "config.json").read_text())
    scaling = config["rope_parameters"]
    base = scaling.pop("rope_theta")
    older = checkpoints.copy(
        "llama3", tmp_path, rope_parameters=None, rope_theta=base, rope_scaling=scaling
    )
    expected, found = HuggingFaceFolder.open(FOLDERS / "llama3"), HuggingFaceFolder.open(older)
    assert dict(expected.metadata) == dict(found.metadata)
    assert expected.raw("rope_freqs.weight").tobytes() == found.raw("rope_freqs.weight").tobytes()


def test_an_older_gemma_3_means_the_same(tmp_path):
    """Every sixth layer sees everything; two bases stand beside each other."""
    older = checkpoints.copy(
        "gemma3", tmp_path, rope_parameters=None, layer_types=None, sliding_window_pattern=6,
        rope_theta=1e6, rope_local_base_freq=1e4,
    )  # fmt: skip
    expected, found = (model_config(HuggingFaceFolder.open(f)) for f in (FOLDERS / "gemma3", older))
    assert expected == found


def _refused(folder, error=CheckpointError):
    with pytest.raises(error) as caught:
        HuggingFaceFolder.open(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_pickle_files_are_never_opened(tmp_path):
    """A folder with nothing else says so, and what to take."""
    folder = checkpoints.copy("llama", tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    message = _refused(folder)
    assert "the weights are in pytorch_model.bin, a pickle file" in message
    assert "take safetensors files or a GGUF file" in message


def test_a_folder_without_weights_says_what_is_missing(tmp_path):
    """And one without config.json."""
    folder = checkpoints.copy("llama", tmp_path)
    (folder / "model.safetensors").unlink()
    assert "neither model.safetensors nor model.safetensors.index.json" in _refused(folder)
    (folder / "config.json").unlink()
    assert "config.json: there is no such file" in _refused(folder)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"architectures": ["BertModel"]}, ["BertModel", "LlamaForCausalLM"]),
        ({"hidden_act": "relu"}, ["field hidden_act is relu", "silu"]),
        ({"quantization_config": {"quant_method": "gptq"}}, ["quantised (gptq)", "BF16"]),
        ({"rope_parameters": {"rope_type": "spiral"}}, ["'spiral'", "default, linear, yarn"]),
    ],
)
def test_what_is_not_computed_is_named(tmp_path, fields, words):
    """The field, its value and what is supported."""
    message = _refused(checkpoints.copy("llama", tmp_path, **fields), UnsupportedModelError)
    assert [] == [word for word in words if word not in message]


def test_soft_caps_that_are_null_are_none(tmp_path):
    """Fields that Gemma 2 leaves out mean its own caps."""
    names = ("attn_logit_softcapping", "final_logit_softcapping")
    without = checkpoints.copy("gemma2", tmp_path / "without", **dict.fromkeys(names))
    config = json.loads((without / "config.json").read_text()) | dict.fromkeys(names)
    null = checkpoints.copy("gemma2", tmp_path / "null")
    (null / "config.json").write_text(json.dumps(config))
    caps = [
        (config.attention_cap, config.logit_cap)
        for config in (model_config(HuggingFaceFolder.open(folder)) for folder in (without, null))
    ]
    assert [(50.0, 30.0), (None, None)] == caps


LONG = {
    "rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 64,
    "short_factor": [1.0] * 4, "long_factor": [2.0] * 4,
}  # fmt: skip
DIVIDED = {"granite", "linear", "llama", "llama3", "mistral", "mixtral", "phi3", "phi3long"}
DIVIDED |= {"smollm3", "yarn"}


@pytest.mark.parametrize("kind", ["llama3", "longrope"])
@pytest.mark.parametrize("name", sorted(set(NAMES) - DIVIDED - {"gpt2"}))
def test_divisors_that_a_family_has_no_place_for_are_refused(tmp_path, name, kind):
    """It would run with positions that are not scaled."""
    folder = checkpoints.copy(name, tmp_path, rope_parameters=LONG | {"rope_type": kind})
    assert "scaled" in _refused(folder, UnsupportedModelError)


@pytest.mark.parametrize("name", ["llama", "mistral", "granite", "smollm3"])
def test_longrope_says_where_it_begins_and_how_sharp_it_is(tmp_path, name):
    """256 positions are four times the 64 of the training: sqrt(1 + log 4 / log 64)."""
    rope = model_config(
        HuggingFaceFolder.open(checkpoints.copy(name, tmp_path, rope_parameters=LONG, head_dim=8))
    ).rope
    assert (64, pytest.approx((4 / 3) ** 0.5)) == (rope.original_length, rope.magnitude)


@pytest.mark.parametrize("name", ["mistral", "mixtral", "starcoder2", "phi3"])
def test_a_window_of_all_layers_is_computed(tmp_path, name):
    """The context stays whole. `LlamaForCausalLM` never has one."""
    config = model_config(
        HuggingFaceFolder.open(checkpoints.copy(name, tmp_path, sliding_window=5))
    )
    assert ((5,) * 3, 256) == (config.windows, config.context_length)
    llama = checkpoints.copy("llama", tmp_path, sliding_window=5)
    assert (None,) * 3 == model_config(HuggingFaceFolder.open(llama)).windows


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"architectures": None}, ["field architectures is None"]),
        ({"architectures": [7]}, ["field architectures is [7]"]),
        ({"num_hidden_layers": None}, ["field num_hidden_layers is missing"]),
        ({"num_attention_heads": "many"}, ["field num_attention_heads is many", "an integer"]),
        ({"num_attention_heads": 0}, ["field num_attention_heads is 0", "from 1"]),
        ({"num_key_value_heads": 3}, ["16 rows", "3 heads"]),
        ({"rope_parameters": [1]}, ["field rope_parameters is [1]", "an object"]),
        ({"intermediate_size": {"a": 1}}, ["llama.feed_forward_length"]),
        ({"max_position_embeddings": [1, None]}, ["[1, None]", "llama.context_length"]),
    ],
)
def test_fields_that_cannot_be_are_named(tmp_path, fields, words):
    """Name and value, whatever JSON allows."""
    message = _refused(checkpoints.copy("llama", tmp_path, **fields))
    assert [] == [word for word in words if word not in message]


def test_a_head_that_is_promised_and_missing_is_an_error(tmp_path):
    """It would be random numbers otherwise."""
    message = _refused(checkpoints.copy("llama3", tmp_path, tie_word_embeddings=False))
    assert "tie_word_embeddings is False" in message
    assert "lm_head.weight" in message


def test_a_tied_head_in_the_file_is_not_used(tmp_path):
    """As transformers reads it."""
    folder = checkpoints.copy("llama", tmp_path, tie_word_embeddings=True)
    assert "output.weight" not in HuggingFaceFolder.open(folder).tensors


def test_a_tensor_without_a_place_keeps_its_name(tmp_path):
    """The model refuses it then, as it does for GGUF files."""
    folder = checkpoints.copy("llama", tmp_path)
    stored = checkpoints.tensors(folder)
    stored["model.layers.0.self_attn.extra.weight"] = ("BF16", [2], bytes(4))
    stored["model.layers.0.self_attn.rotary_emb.inv_freq"] = ("F32", [4], bytes(16))
    (folder / "model.safetensors").write_bytes(checkpoints.safetensors(stored))
    names = HuggingFaceFolder.open(folder).tensors
    assert "model.layers.0.self_attn.extra.weight" in names
    assert not any("inv_freq" in name for name in names)


@pytest.mark.parametrize("dtype", ["I64", "F8_E4M3", "BOOL"])
def test_types_that_are_no_weights_are_refused(tmp_path, dtype):
    """The tensor, its type and what is read."""
    folder = checkpoints.copy("llama", tmp_path)
    stored = checkpoints.tensors(folder)
    _, shape, content = stored["model.norm.weight"]
    size = {"I64": 8, "F8_E4M3": 1, "BOOL": 1}[dtype]
    stored["model.norm.weight"] = (dtype, shape, content[:1] * shape[0] * size)
    (folder / "model.safetensors").write_bytes(checkpoints.safetensors(stored))
    message = _refused(folder, UnsupportedModelError)
    assert f"tensor model.norm.weight is {dtype}" in message
    assert "F32, F16, BF16" in message


def test_an_expert_that_is_missing_is_named(tmp_path):
    """A stack has no gap."""
    folder = checkpoints.copy("mixtral", tmp_path)
    stored = checkpoints.tensors(folder)
    del stored["model.layers.1.block_sparse_moe.experts.2.w1.weight"]
    (folder / "model.safetensors").write_bytes(checkpoints.safetensors(stored))
    assert "expert 2 of tensor blk.1.ffn_gate_exps.weight is missing" in _refused(folder)


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "a.bin", 3])
def test_an_index_does_not_lead_out_of_the_folder(tmp_path, name):
    """Files are named by plain names of safetensors files."""
    folder = checkpoints.copy("llama", tmp_path)
    index = {"weight_map": {"model.norm.weight": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "expected the plain name of a safetensors file" in _refused(folder)


def test_missing_shards_are_named(tmp_path):
    """All that the index names must be there."""
    folder = checkpoints.split(checkpoints.copy("llama", tmp_path), 3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    message = _refused(folder)
    assert "model-00002-of-00003.safetensors is missing (1 of the 3 files" in message


def test_a_file_cut_while_in_use_is_an_error_and_no_signal(tmp_path):
    """The tensor is not touched any more."""
    folder = checkpoints.copy("llama", tmp_path)
    model = HuggingFaceFolder.open(folder)
    os.truncate(folder / "model.safetensors", 100)
    for name in ("token_embd.weight", "blk.0.attn_q.weight"):
        with pytest.raises(GGUFError, match="changed while it was in use"):
            model.raw(name)


@pytest.mark.parametrize("text", ["", "{", "[1]", "nul", '{"a":' * 5000 + "1" + "}" * 5000])
def test_a_config_that_is_no_object_is_refused(tmp_path, text):
    """Nesting included."""
    folder = checkpoints.copy("llama", tmp_path)
    (folder / "config.json").write_text(text)
    assert "config.json: it " in _refused(folder)


def test_a_config_of_many_megabytes_is_not_read(tmp_path):
    """The bound is named."""
    folder = checkpoints.copy("llama", tmp_path)
    with (folder / "config.json").open("wb") as file:
        file.truncate(1 << 34)
    assert "17179869184 bytes, expected at most 1048576" in _refused(folder)
