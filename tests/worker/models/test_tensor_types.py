"""A model in every tensor type, in both compute modes, against its float32 twin."""

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as QType

from tests.worker.kernels.kernel_outputs import stored_rows
from tests.worker.models import tiny_llama
from tests.worker.models.feeding import logits_of, open_model
from worker.gguf import SUPPORTED_TYPES, dequantize
from worker.kernels.layouts import layout_of

TYPES = sorted(SUPPORTED_TYPES)
IDS = [1, 5, 2, 39, 7, 7, 0, 11]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Packed files of these models are nobody else's; kernels stay where they are."""
    monkeypatch.setattr("worker.packed_folder.cache_folder", lambda: tmp_path / "cache")


def _write(folder, qtype):
    """A llama with a width of 256 whose matrices are of this type, and its twin in float32."""
    writers = [gguf.GGUFWriter(folder / f"{name}.gguf", "llama") for name in ("stored", "twin")]
    keys = tiny_llama.keys() | {"llama.embedding_length": 256, "llama.feed_forward_length": 256}
    for writer in writers:
        for key, value in keys.items():
            if isinstance(value, int):
                writer.add_uint32(key, value)
            elif isinstance(value, float):
                writer.add_float32(key, value)
            else:
                writer.add_array(key, value)
    for number, (name, like) in enumerate(tiny_llama.tensors().items()):
        shape = [256 if size != tiny_llama.VOCABULARY else size for size in like.shape]
        if len(shape) == 1:
            stored = values = np.linspace(0.5, 1.5, 256, dtype=np.float32)
        else:
            shape[0] = 128 if name.endswith(("attn_k.weight", "attn_v.weight")) else shape[0]
            stored = stored_rows(200 + number, qtype, *shape, reach=2.0**-4)
            values = np.empty(shape, np.float32)
            dequantize(stored, qtype, values)
        writers[0].add_tensor(name, stored, raw_dtype=qtype if len(shape) == 2 else QType.F32)
        writers[1].add_tensor(name, values)
    for writer in writers:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return folder / "stored.gguf", folder / "twin.gguf"


@pytest.mark.parametrize("qtype", TYPES, ids=lambda t: t.name)
def test_a_model_of_this_type_gives_the_logits_of_its_twin(tmp_path, team, qtype):
    """In f32 always; in int8 where the type has no integer kernel and goes through the cache."""
    stored, twin = _write(tmp_path, qtype)
    expected = logits_of(open_model(twin, team), IDS)
    assert np.isfinite(expected).all()
    assert np.array_equal(expected, logits_of(open_model(stored, team), IDS))
    model = open_model(stored, team, mode="int8")
    found = logits_of(model, IDS)
    if layout_of(qtype) is None:
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * abs(expected).max())
        assert model.dequant_cache.stats().dequantised_bytes > 0
    else:
        assert np.corrcoef(expected.ravel(), found.ravel())[0, 1] > 0.99


@pytest.mark.parametrize("qtype", [QType.IQ2_S, QType.TQ1_0], ids=lambda t: t.name)
def test_the_window_of_the_cache_changes_no_bit(tmp_path, team, qtype):
    """Two layers and a head through two buffers, in int8."""
    stored, _ = _write(tmp_path, qtype)
    whole = open_model(stored, team, mode="int8")
    sliding = open_model(stored, team, mode="int8", dequant_cache_layers=2)
    assert np.array_equal(logits_of(whole, IDS, 3), logits_of(sliding, IDS, 3))
    assert 0 == sliding.dequant_cache.stats().pinned < whole.dequant_cache.stats().pinned
