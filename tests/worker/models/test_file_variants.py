"""One model in every form that a GGUF file can have: the logits are the same, bit for bit."""

import gguf
import numpy as np
import pytest

from tests.worker.models import tiny_llama
from tests.worker.models.feeding import logits_of, open_model

IDS = [1, 5, 2, 39, 7, 7, 0, 11]


def _write(path, *, weights, alignment=None, **split):
    """A tiny llama; ``split`` as GGUFWriter has it."""
    writer = gguf.GGUFWriter(path, "llama", **split)
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    for key, value in tiny_llama.keys().items():
        if isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_array(key, value)
    for name, tensor in weights.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def expected(tmp_path_factory, team):
    """Logits of the model in an ordinary file, embeddings tied."""
    path = tmp_path_factory.mktemp("plain") / "m.gguf"
    _write(path, weights=tiny_llama.tensors())
    return logits_of(open_model(path, team), IDS)


@pytest.mark.parametrize("alignment", [8, 16, 32, 64, 256, 4096, 65536])
def test_any_alignment(tmp_path, team, expected, alignment):
    """A power of two that the file names."""
    _write(tmp_path / "m.gguf", weights=tiny_llama.tensors(), alignment=alignment)
    assert np.array_equal(expected, logits_of(open_model(tmp_path / "m.gguf", team), IDS))


def test_version_2(tmp_path, team, expected):
    """Of the same layout as version 3 on little-endian machines."""
    path = tmp_path / "m.gguf"
    _write(path, weights=tiny_llama.tensors())
    content = bytearray(path.read_bytes())
    assert b"GGUF\x03\x00\x00\x00" == content[:8]
    content[4] = 2
    path.write_bytes(content)
    assert np.array_equal(expected, logits_of(open_model(path, team), IDS))


@pytest.mark.parametrize("first", ["with tensors", "without tensors"])
@pytest.mark.parametrize("size", [1, 5, 19])
def test_splits(tmp_path, team, expected, size, first):
    """Several files with so many tensors each; the first one may hold metadata alone."""
    small = first == "without tensors"
    split = {"split_max_tensors": size, "small_first_shard": small}
    _write(tmp_path / "m.gguf", weights=tiny_llama.tensors(), **split)
    files = sorted(tmp_path.glob("m-*-of-*.gguf"))
    assert len(files) == -(-len(tiny_llama.tensors()) // size) + small
    assert np.array_equal(expected, logits_of(open_model(files[0], team), IDS))


@pytest.mark.parametrize("mode", ["f32", "int8"])
def test_a_head_equal_to_the_embedding_is_the_tied_one(tmp_path, team, mode, monkeypatch):
    """Tied or untied: the same numbers."""
    monkeypatch.setattr("worker.packed_folder.cache_folder", lambda: tmp_path / "cache")
    weights = tiny_llama.tensors()
    _write(tmp_path / "tied.gguf", weights=weights)
    untied = {**weights, "output.weight": weights["token_embd.weight"]}
    _write(tmp_path / "untied.gguf", weights=untied)
    tied, own = (open_model(tmp_path / f"{n}.gguf", team, mode=mode) for n in ("tied", "untied"))
    assert (True, False) == (tied.config.tied_embeddings, own.config.tied_embeddings)
    assert np.array_equal(logits_of(tied, IDS), logits_of(own, IDS))
