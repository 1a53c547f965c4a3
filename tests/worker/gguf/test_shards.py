"""Models in several files."""

import shutil

import pytest

from worker.errors import GGUFError
from worker.gguf import GGUFFile
from worker.model_source import model_sha256

from . import gguf_bytes as g

F32 = 0


def _shard(number, count, names, total=None, key_count=None):
    """One shard: `number` from 0; every tensor holds two floats with its shard's number."""
    pairs = [g.pair("split.no", g.U16, number), g.pair("split.count", g.U16, key_count or count)]
    if total is not None:
        pairs.append(g.pair("split.tensors.count", g.I32, total))
    table = [g.tensor(name, [2], F32, 32 * i) for i, name in enumerate(names)]
    data = b"".join(bytes([number] * 8) + bytes(24) for _ in names)
    architecture = b"" if number else g.ARCHITECTURE
    return g.gguf(pairs, table, data, architecture=architecture)


def _write_model(folder, count=3, total=None):
    for number in range(count):
        content = _shard(number, count, [f"t{number}", f"u{number}"], total)
        g.write(folder, content, f"m-{number + 1:05}-of-{count:05}.gguf")
    return folder / f"m-00001-of-{count:05}.gguf"


def _refused(path):
    with pytest.raises(GGUFError) as caught:
        GGUFFile.open(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_all_shards_are_opened_as_one(tmp_path):
    """Tensors of all shards are there, each read from its own file; sizes add up."""
    model = GGUFFile.open(_write_model(tmp_path, total=6))
    assert ["t0", "u0", "t1", "u1", "t2", "u2"] == list(model.tensors)
    assert [[2] * 8] == model.raw("u2").tolist()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == model.n_bytes
    model.release("u2")
    assert [[2] * 8] == model.raw("u2").tolist()


def test_a_split_model_equals_the_whole(data):
    """The shards of case 131 hold the tensors of the model they were made of."""
    split = GGUFFile.open(data / "cases/131-split-complete/model-00001-of-00002.gguf")
    whole = GGUFFile.open(data / "cases/109-alignment-64/model.gguf")
    assert sorted(whole.tensors) == sorted(split.tensors)
    for name in whole.tensors:
        assert whole.raw(name).tobytes() == split.raw(name).tobytes()


def test_missing_shards_are_named(tmp_path):
    """Every missing file is named, and where it was looked for."""
    first = _write_model(tmp_path)
    (tmp_path / "m-00002-of-00003.gguf").unlink()
    (tmp_path / "m-00003-of-00003.gguf").unlink()
    message = _refused(first)
    assert "m-00002-of-00003.gguf, m-00003-of-00003.gguf is missing" in message
    assert "put all shards into one folder" in message


def test_many_missing_shards_make_a_short_message(tmp_path):
    """65,535 shards are not listed one by one."""
    path = g.write(tmp_path, _shard(0, 65535, ["a"]), "m-00001-of-65535.gguf")
    message = _refused(path)
    assert "(65534 not found in" in message
    assert len(message) < 600


def test_another_shard_than_the_first_leads_to_the_first(tmp_path):
    """The first shard is named, and whether it is there."""
    _write_model(tmp_path)
    second = tmp_path / "m-00002-of-00003.gguf"
    assert _refused(second).endswith("name the first shard, m-00001-of-00003.gguf")
    (tmp_path / "m-00001-of-00003.gguf").unlink()
    assert "m-00001-of-00003.gguf, which is missing: put all shards into one folder" in _refused(
        second
    )


@pytest.mark.parametrize("name", ["model.gguf", "m-00002-of-00003.gguf", "m-00001-of-00004.gguf"])
def test_a_renamed_shard_is_refused_with_the_name_it_should_have(tmp_path, name):
    """A shard finds its siblings by its name, so the name must be right."""
    path = _write_model(tmp_path)
    shutil.copy(path, tmp_path / "copy")
    (tmp_path / "copy").replace(tmp_path / name)
    assert "this is shard 1 of 3 by its metadata" in _refused(tmp_path / name)
    assert "-00001-of-00003.gguf" in _refused(tmp_path / name)


def test_a_sibling_with_another_number_is_refused(tmp_path):
    """Two shards that were swapped are recognised by split.no."""
    first = _write_model(tmp_path)
    g.write(tmp_path, _shard(2, 3, ["x"]), "m-00002-of-00003.gguf")
    assert "m-00002-of-00003.gguf: key split.no is 2, expected 1" in _refused(first)


def test_a_sibling_of_another_model_is_refused(tmp_path):
    """Count, total and tensor names tell a foreign shard."""
    first = _write_model(tmp_path, total=6)
    foreign = tmp_path / "m-00002-of-00003.gguf"
    foreign.write_bytes(_shard(1, 3, ["t1", "u1"], total=6, key_count=5))
    assert "key split.count is 5, expected 3" in _refused(first)
    foreign.write_bytes(_shard(1, 3, ["t1", "u1"], total=9))
    assert "key split.tensors.count is 9, expected 6" in _refused(first)
    foreign.write_bytes(_shard(1, 3, ["t1"], total=6))
    assert "split.tensors.count is 6, but the shards hold 5 tensors" in _refused(first)
    foreign.write_bytes(_shard(1, 3, ["t1", "t0"], total=6))
    assert "tensor t0 is in both m-00001-of-00003.gguf and m-00002-of-00003.gguf" in _refused(first)


def test_a_damaged_sibling_is_named(tmp_path):
    """The message is about the file that is damaged."""
    first = _write_model(tmp_path)
    second = tmp_path / "m-00002-of-00003.gguf"
    second.write_bytes(second.read_bytes()[:-40])
    assert _refused(first).startswith(f"{second}: tensor u1")


def test_one_of_one_is_an_ordinary_file(tmp_path):
    """A split into one file needs no name."""
    model = GGUFFile.open(g.write(tmp_path, _shard(0, 1, ["a"])))
    assert ["a"] == list(model.tensors)


def test_the_hash_of_a_split_model_is_that_of_its_source(tmp_path, monkeypatch):
    """All shards count, in the form that users give it in."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    path = _write_model(tmp_path)
    assert model_sha256(path) == GGUFFile.open(path).sha256()
