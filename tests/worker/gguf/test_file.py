"""GGUFFile as its users see it, with the gguf package as the oracle."""

import os

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.errors import GGUFError, ModelError
from worker.gguf import GGUFFile
from worker.gguf.mapped_file import MappedFile

from . import gguf_bytes as g

CASE = "cases/109-alignment-64/model.gguf"


def test_tensors_equal_those_the_gguf_package_reads(data):
    """Names, shapes, types, offsets and bytes are those of another reader."""
    ours, theirs = GGUFFile.open(data / CASE), gguf.GGUFReader(data / CASE)
    expected = {
        t.name: (tuple(map(int, reversed(t.shape))), t.tensor_type, t.data_offset, t.n_bytes)
        for t in theirs.tensors
    }
    assert expected == {
        i.name: (i.shape, i.qtype, i.offset, i.n_bytes) for i in ours.tensors.values()
    }
    for tensor in theirs.tensors:
        assert tensor.data.tobytes() == ours.raw(tensor.name).tobytes()


def test_metadata_equal_those_the_gguf_package_reads(data):
    """Every key has the value that another reader finds."""
    ours, theirs = GGUFFile.open(data / CASE).metadata, gguf.GGUFReader(data / CASE).fields
    expected = {key: f.contents() for key, f in theirs.items() if not key.startswith("GGUF.")}
    found = {key: v.tolist() if isinstance(v, np.ndarray) else v for key, v in ours.items()}
    assert expected == found


def test_files_of_the_gguf_packages_writer_open(tmp_path):
    """Shapes come back in NumPy's order, rows as the writer laid them out."""
    writer = gguf.GGUFWriter(tmp_path / "w.gguf", "llama")
    values = np.arange(3 * 4 * 8, dtype=np.float32).reshape(3, 4, 8)
    writer.add_tensor("cube", values)
    writer.add_tensor("vector", values[0, 0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = GGUFFile.open(str(tmp_path / "w.gguf"))
    assert [(3, 4, 8), (8,)] == [info.shape for info in model.tensors.values()]
    assert ((12, 32), (1, 32)) == (model.raw("cube").shape, model.raw("vector").shape)
    assert values.tobytes() == model.raw("cube").tobytes()


@pytest.mark.parametrize("rows", [[], [0], [5, 0, 5, 31]])
def test_picked_rows_are_those_of_the_tensor(data, rows):
    """In any order, as often as named."""
    model = GGUFFile.open(data / CASE)
    assert np.array_equal(
        model.raw("output.weight")[rows], model.picked_rows("output.weight", rows)
    )


def test_rows_of_a_file_cut_while_in_use_are_an_error(tmp_path):
    """Neither its own check nor a read past the end believes it."""
    table = [g.tensor("a", [1 << 10, 16], 0, 0)]
    path = g.write(tmp_path, g.gguf(tensors=table, data=bytes(1 << 16)))
    opened = GGUFFile.open(path)
    mapped = MappedFile(path)
    os.truncate(path, 4096)
    with pytest.raises(GGUFError, match=r"changed while it was in use.*4096 bytes"):
        opened.picked_rows("a", [0])
    with pytest.raises(GGUFError, match=r"cut while it was in use.*4096 bytes now"):
        mapped.read(4000, 200)


def test_raw_is_a_view_and_stays_valid_after_close(data):
    """No copy is made, and a view outlives the file object."""
    model = GGUFFile.open(data / CASE)
    raw = model.raw("output.weight")
    before = raw.tobytes()
    assert not raw.flags.owndata
    assert not raw.flags.writeable
    model.release("output.weight")
    model.close()
    assert before == raw.tobytes()


def test_a_missing_tensor_is_named(data):
    """The shape the caller expected is named, too."""
    model = GGUFFile.open(data / CASE)
    with pytest.raises(GGUFError, match=r"model\.gguf: tensor blk\.9\.x is missing"):
        model.tensor("blk.9.x")
    with pytest.raises(GGUFError, match=r"blk\.9\.x \(expected shape \[3, 4\]\) is missing"):
        model.tensor("blk.9.x", (3, 4))


def test_a_tensor_of_another_shape_is_named_with_both(data):
    """A transposed matrix has the right number of bytes and is still wrong."""
    model = GGUFFile.open(data / CASE)
    assert (300, 64) == model.tensor("output.weight", (300, 64)).shape
    with pytest.raises(GGUFError, match=r"expected \[64, 300\], found \[300, 64\]"):
        model.tensor("output.weight", (64, 300))


@settings(max_examples=300, deadline=None)
@given(draws=st.data())
def test_no_damage_ends_in_anything_but_one_clear_line(data, tmp_path_factory, draws):
    """Changed bytes and cuts anywhere in the header give a model or a ModelError, at once."""
    content = bytearray((data / "cases/101-truncated-tail/model.gguf").read_bytes()[:8192])
    whole = g.gguf([g.array("a", g.STRING, ["x", "yy"]), g.pair("b", g.BOOL, True)])
    content = draws.draw(st.sampled_from([content, bytearray(whole)]))
    for _ in range(draws.draw(st.integers(1, 4))):
        place = draws.draw(st.integers(0, len(content) - 1))
        content[place] = draws.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    cut = draws.draw(st.integers(0, len(content)))
    path = g.write(tmp_path_factory.getbasetemp(), content[:cut] or b"G", "fuzz.gguf")
    try:
        dict(GGUFFile.open(path, any_type=True).metadata)
        message = ""
    except ModelError as error:
        message = str(error)
    assert [message] == (message.splitlines() or [""])


def test_every_cut_of_a_small_file_is_refused(tmp_path):
    """A file that ends before its last tensor does is never believed."""
    table = [g.tensor("a", [8], 0, 0), g.tensor("b", [32, 2], 8, 32)]
    pairs = [g.array("s", g.STRING, ["x", "yy"]), g.array("n", g.F32, [1.0]), g.pair("u", 4, 1)]
    content = g.gguf(pairs, table, bytes(32 + 68))
    GGUFFile.open(g.write(tmp_path, content))
    for cut in range(len(content)):
        with pytest.raises(GGUFError):
            GGUFFile.open(g.write(tmp_path, content[:cut]))


@pytest.mark.parametrize(
    ("model", "architecture", "n_tensors", "n_tokens"),
    [("smollm2", "llama", 272, 49152), ("gemma3_270m", "gemma3", 236, 262144)],
)
def test_real_models_open(request, model, architecture, n_tensors, n_tokens):
    """Two real files of different makers are read whole, every metadata value decoded."""
    opened = GGUFFile.open(request.getfixturevalue(model))
    metadata = dict(opened.metadata)
    assert (architecture, n_tensors) == (metadata["general.architecture"], len(opened.tensors))
    assert n_tokens == len(metadata["tokenizer.ggml.tokens"])
    assert n_tokens == metadata["tokenizer.ggml.token_type"].size


def test_a_vector_may_be_a_matrix_of_one_row(tmp_path):
    """Both ways; a matrix of one column is something else."""
    table = [g.tensor("vector", [8], 0, 0), g.tensor("matrix", [8, 1], 0, 32)]
    opened = GGUFFile.open(g.write(tmp_path, g.gguf(tensors=table, data=bytes(64))))
    assert "matrix" == opened.tensor("matrix", (8,)).name
    assert "vector" == opened.tensor("vector", (1, 8)).name
    with pytest.raises(GGUFError, match=r"expected \[8, 1\], found \[1, 8\]"):
        opened.tensor("matrix", (8, 1))


def test_a_file_cut_while_in_use_is_an_error_and_no_signal(tmp_path):
    """The tensor is not touched any more."""
    table = [g.tensor("a", [1 << 14], 0, 0)]
    path = g.write(tmp_path, g.gguf(tensors=table, data=bytes(1 << 16)))
    opened = GGUFFile.open(path)
    assert (1, 1 << 16) == opened.raw("a").shape
    os.truncate(path, 100)
    with pytest.raises(GGUFError, match=r"changed while it was in use.*100 bytes"):
        opened.raw("a")
    with pytest.raises(GGUFError, match=r"changed while it was in use.*100 bytes"):
        opened.check_unchanged()
