"""gpt-oss folders in MXFP4, as the model is published."""

import json

import numpy as np
import pytest

from worker.errors import CheckpointError, UnsupportedModelError
from worker.gguf import dequantize
from worker.huggingface import HuggingFaceFolder

from . import checkpoints

FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
EXPERTS = "model.layers.{}.mlp.experts.{}"


def _values(blocks, scales):
    """The values of blocks [..., n, 16] with exponents [..., n]: low nibbles first."""
    codes = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*blocks.shape[:-1], 32)
    signs = np.where(codes & 8, -1, 1)
    values = signs * FP4[codes & 7] * 2.0 ** (scales[..., None].astype(np.float64) - 127)
    return values.astype(np.float32).reshape(*blocks.shape[:-2], -1)


@pytest.fixture
def packed(tmp_path):
    """A folder whose experts are random blocks, and these blocks and exponents by name."""
    folder = checkpoints.copy("gptoss", tmp_path, quantization_config={"quant_method": "mxfp4"})
    stored, made = checkpoints.tensors(folder), {}
    random = np.random.default_rng(0)
    for layer in range(3):
        for part, rows, columns in (("gate_up_proj", 128, 32), ("down_proj", 32, 64)):
            name = EXPERTS.format(layer, part)
            del stored[name]
            shape = (4, rows, columns // 32)
            blocks = random.integers(0, 256, (*shape, 16), np.uint8)
            scales = random.integers(110, 125, shape, np.uint8)
            made[name] = blocks, scales
            stored[f"{name}_blocks"] = "U8", list(blocks.shape), blocks.tobytes()
            stored[f"{name}_scales"] = "U8", list(scales.shape), scales.tobytes()
    (folder / "model.safetensors").write_bytes(checkpoints.safetensors(stored))
    return folder, made


def _read(model, name):
    info = model.tensor(name)
    values = np.empty((info.rows, info.columns), np.float32)
    pieces = [model.rows(name, first, first + 1) for first in range(info.rows)]
    dequantize(np.concatenate(pieces), info.qtype, values)
    assert np.array_equal(model.raw(name), np.concatenate(pieces))
    return values.reshape(info.shape)


def test_experts_have_the_values_of_their_blocks(packed):
    """Gates are the even outputs, ups the odd ones; all stays in four bits."""
    folder, made = packed
    model = HuggingFaceFolder.open(folder)
    for layer in range(3):
        gate_up = _values(*made[EXPERTS.format(layer, "gate_up_proj")])
        prefix = f"blk.{layer}.ffn_"
        assert np.array_equal(gate_up[:, 0::2], _read(model, f"{prefix}gate_exps.weight"))
        assert np.array_equal(gate_up[:, 1::2], _read(model, f"{prefix}up_exps.weight"))
        down = _values(*made[EXPERTS.format(layer, "down_proj")])
        assert np.array_equal(down, _read(model, f"{prefix}down_exps.weight"))
        assert "MXFP4" == model.tensor(f"{prefix}down_exps.weight").qtype.name


def test_blocks_without_scales_are_refused(packed):
    """And scales of another shape."""
    folder, _ = packed
    stored = checkpoints.tensors(folder)
    name = EXPERTS.format(1, "down_proj") + "_scales"
    _, shape, content = stored[name]
    stored[name] = "U8", [*shape[::-1]], content
    (folder / "model.safetensors").write_bytes(checkpoints.safetensors(stored))
    with pytest.raises(CheckpointError, match=r"down_proj_blocks has no _scales that fit it"):
        HuggingFaceFolder.open(folder)
    del stored[name]
    (folder / "model.safetensors").write_bytes(checkpoints.safetensors(stored))
    with pytest.raises(CheckpointError, match=r"down_proj_blocks has no _scales that fit it"):
        HuggingFaceFolder.open(folder)


def test_no_other_model_is_read_in_mxfp4(tmp_path):
    """A quantised checkpoint of a family that knows nothing of it is refused."""
    folder = checkpoints.copy("llama", tmp_path, quantization_config={"quant_method": "mxfp4"})
    assert json.loads((folder / "config.json").read_text())["quantization_config"]
    with pytest.raises(UnsupportedModelError, match=r"quantised \(mxfp4\)"):
        HuggingFaceFolder.open(folder)
