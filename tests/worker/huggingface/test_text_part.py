"""Checkpoints that see images: the text model is read, the rest is left alone."""

import json

import pytest

from worker.huggingface import HuggingFaceFolder

from . import checkpoints
from .checkpoints import FOLDERS

CASES = [
    ("gemma3", "Gemma3ForConditionalGeneration", "language_model.model.", "vision_tower.a.weight"),
    ("gemma3", "Gemma3ForConditionalGeneration", "model.language_model.", "model.vision_tower.a"),
    ("qwen35", "Qwen3_5ForConditionalGeneration", "model.language_model.", "model.visual.a.bias"),
]


@pytest.mark.parametrize(("name", "kind", "prefix", "other"), CASES)
def test_the_text_part_is_the_text_model(tmp_path, name, kind, prefix, other):
    """Fields stand in text_config, tensors behind a prefix, among others that have no place."""
    folder = checkpoints.copy(name, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    outer = {"architectures": [kind], "vision_config": {"hidden_size": 5}, "text_config": config}
    outer["tie_word_embeddings"] = config["tie_word_embeddings"]
    (folder / "config.json").write_text(json.dumps(outer))
    stored = {
        prefix + tensor.removeprefix("model.") if tensor.startswith("model.") else tensor: each
        for tensor, each in checkpoints.tensors(folder).items()
    }
    stored[other] = "BF16", [2], bytes(4)
    (folder / "model.safetensors").write_bytes(checkpoints.safetensors(stored))
    expected, found = HuggingFaceFolder.open(FOLDERS / name), HuggingFaceFolder.open(folder)
    assert {k: str(v) for k, v in expected.metadata.items()} == {
        k: str(v) for k, v in found.metadata.items()
    }
    assert set(expected.tensors) == set(found.tensors)
    for tensor in expected.tensors:
        assert expected.raw(tensor).tobytes() == found.raw(tensor).tobytes()
