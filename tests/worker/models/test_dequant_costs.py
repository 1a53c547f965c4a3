"""What of a model is dequantised, said before anything is loaded."""

import gguf
import numpy as np
import pytest

from tests.worker.models import tiny_llama
from tests.worker.models.feeding import logits_of, open_model
from worker.errors import GGUFError, UnsupportedModelError
from worker.models.dequant_costs import dequant_costs
from worker.open_model import open_model as open_file

HEAD_AND_LAYERS = 15


@pytest.mark.parametrize("name", ["llama-IQ4_NL", "llama-F16", "llama-Q8_0"])
@pytest.mark.parametrize("mode", ["int8", "f32"])
def test_costs_are_what_a_run_has(data, team, tmp_path, monkeypatch, name, mode):
    """Bytes of all copies, and those made anew in each step with the smallest cache."""
    monkeypatch.setattr("worker.packed_folder.cache_folder", lambda: tmp_path / "cache")
    path = data / "tiny" / "llama" / f"{name}.gguf"
    costs = dequant_costs(open_file(path))[mode]
    whole = open_model(path, team, mode=mode)
    logits_of(whole, [1, 2, 3])
    assert costs.n_bytes == whole.dequant_cache.stats().dequantised_bytes
    if costs.tensors:
        least = open_model(path, team, mode=mode, dequant_cache_bytes=costs.least_bytes)
        logits_of(least, [1, 2, 3], chunk=1)
        stats = least.dequant_cache.stats()
        assert stats.reserved_bytes <= costs.least_bytes
        assert stats.dequantised_bytes <= 3 * max(costs.step_bytes, costs.n_bytes)


def test_types_with_kernels_are_not_dequantised(data):
    """In int8 nothing but what has no kernel; in f32 every matrix."""
    costs = dequant_costs(open_file(data / "tiny" / "llama" / "llama-Q4_0.gguf"))
    assert ((), 0, 0, 0) == (
        costs["int8"].tensors,
        costs["int8"].n_bytes,
        costs["int8"].least_bytes,
        costs["int8"].step_bytes,
    )
    assert HEAD_AND_LAYERS == len(costs["f32"].tensors)


def test_a_plan_finds_what_a_load_would(tmp_path):
    """A tensor that is missing, and one that has no place."""
    weights = tiny_llama.tensors()
    extra = {**weights, "blk.0.attn_odd.weight": np.ones(4, np.float32)}
    path = tiny_llama.write(tmp_path / "extra.gguf", tiny_llama.keys(), extra)
    with pytest.raises(UnsupportedModelError, match=r"blk\.0\.attn_odd\.weight"):
        dequant_costs(open_file(path))
    del weights["blk.1.ffn_up.weight"]
    path = tiny_llama.write(tmp_path / "missing.gguf", tiny_llama.keys(), weights)
    with pytest.raises(GGUFError, match=r"blk\.1\.ffn_up\.weight.* is missing"):
        dequant_costs(open_file(path))


def test_a_vocabulary_without_a_model_is_told(tmp_path):
    """Such files are made for tests of tokenizers."""
    writer = gguf.GGUFWriter(tmp_path / "vocab.gguf", "llama")
    writer.add_block_count(32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(GGUFError, match="holds no tensors, only metadata such as a vocabulary"):
        dequant_costs(open_file(tmp_path / "vocab.gguf"))
