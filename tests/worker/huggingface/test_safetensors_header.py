"""The header of safetensors files: what the format's own library writes, and what nobody should."""

import json
import tracemalloc

import numpy as np
import pytest
import safetensors
import safetensors.numpy

from worker.errors import CheckpointError
from worker.gguf.mapped_file import MappedFile
from worker.huggingface.safetensors_header import MAX_HEADER_BYTES, read_header

from .checkpoints import FOLDERS, NAMES, with_header


def _write(folder, content):
    path = folder / "model.safetensors"
    path.write_bytes(content)
    return MappedFile(path)


def _refused(folder, content):
    with pytest.raises(CheckpointError) as caught:
        read_header(_write(folder, content))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def _entry(dtype="F32", shape=(1,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize("name", NAMES)
def test_tensors_are_those_of_the_library(name):
    """Names, types, shapes and bytes."""
    path = FOLDERS / name / "model.safetensors"
    expected = dict(safetensors.deserialize(path.read_bytes()))
    content = path.read_bytes()
    found = {
        tensor: {
            "dtype": info.dtype,
            "shape": list(info.shape),
            "data": content[info.offset : info.offset + info.n_bytes],
        }
        for tensor, info in read_header(MappedFile(path)).items()
    }
    assert {k: {**v, "data": bytes(v["data"])} for k, v in expected.items()} == found


def test_remarks_and_odd_names_of_the_library_are_read(tmp_path):
    """Quotes, backslashes and braces in names and remarks, empty tensors and scalars."""
    names = ['a"b', "c\\", 'd\\"}', "{", "é", "\n", "__metadata"]
    tensors = {name: np.arange(i, dtype=np.int16) for i, name in enumerate(names)}
    tensors["scalar"] = np.array(2.0)
    remarks = {'k"}': '"}\\', "}": "x" * 5000, "\\": ""}
    safetensors.numpy.save_file(tensors, tmp_path / "a.safetensors", remarks)
    found = read_header(MappedFile(tmp_path / "a.safetensors"))
    assert {name: value.shape for name, value in tensors.items()} == {
        name: info.shape for name, info in found.items()
    }


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("", "length of 0 bytes"),
        ("[]", "expected '{'"),
        ("{ ", "expected '\"'"),
        ("{}x", "goes on behind its end"),
        ('{"a"', "expected ':'"),
        ('{"a":1', "the entry of tensor a has no end"),
        ('{"a":[[[[' + "[" * 3000, "has no end within 2048 bytes"),
        ('{"a":{}}', "tensor a has the entry {}"),
        ('{"a":{"b":1}', "tensor a has the entry {'b': 1}"),
        ('{"a', "without an end"),
        ('{"a\\"', "without an end"),
        ('{"\\x":{}}', "is no JSON text"),
        ('{"__metadata__":[]}', "expected '{'"),
        ('{"__metadata__":{"a":{', "__metadata__ has '{'"),
        ('{"__metadata__":{"a"', "__metadata__ has ''"),
    ],
)
def test_text_that_is_no_header_is_refused(tmp_path, header, words):
    """What was found and what was expected."""
    assert words in _refused(tmp_path, with_header(header))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (_entry("F4"), "of type F4, which is not known"),
        (_entry(3), "of type 3"),
        (_entry(["F32"]), "of type ['F32']"),
        (_entry(shape=(2,)), "[2] of F32, 8 bytes, at [0, 4]"),
        (_entry(shape=(-1,)), "the shape [-1]"),
        (_entry(shape=(1.0,)), "the shape [1.0]"),
        (_entry(shape=(True,)), "the shape [True]"),
        (_entry(shape=(1,) * 9), "the shape [1, 1"),
        (_entry(shape=(1 << 61, 1 << 61)), "bytes, at [0, 4]"),
        (_entry(offsets=(4, 0)), "at [4, 0]"),
        (_entry(offsets=(0, 4, 8)), "at [0, 4, 8]"),
        (_entry(offsets=(0, 1 << 70)), "at [0, 1180591620717411303424]"),
        (_entry(offsets=(4, 8)), "ends at byte"),
        ({**_entry(), "x": 1}, "has the entry"),
    ],
)
def test_entries_that_cannot_be_are_refused(tmp_path, entry, words):
    """The tensor and what is wrong with it."""
    message = _refused(tmp_path, with_header(json.dumps({"a": entry}), bytes(4)))
    assert "tensor a" in message
    assert words in message


def test_tensors_neither_overlap_nor_leave_gaps(tmp_path):
    """As the format promises; hidden bytes are none either."""
    two = {"a": _entry(), "b": _entry(offsets=(4, 8))}
    assert 2 == len(read_header(_write(tmp_path, with_header(json.dumps(two), bytes(8)))))
    for offsets, size in (((0, 4), 4), ((8, 12), 12)):
        two["b"] = _entry(offsets=offsets)
        message = _refused(tmp_path, with_header(json.dumps(two), bytes(size)))
        assert "begins at byte" in message
    message = _refused(tmp_path, with_header(json.dumps({"a": _entry()}), bytes(9)))
    assert "the tensors end at byte" in message


def test_a_name_that_is_there_twice_is_refused(tmp_path):
    """In the header or in an entry."""
    entry = json.dumps(_entry())
    twice = f'{{"a":{entry},"a":{entry}}}'
    assert "tensor a is there twice" in _refused(tmp_path, with_header(twice, bytes(4)))
    inside = '{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    assert "a key is there twice" in _refused(tmp_path, with_header(inside, bytes(4)))


@pytest.mark.parametrize("length", [3, 1 << 20, 1 << 62, (1 << 64) - 1])
def test_lengths_beyond_the_file_are_refused(tmp_path, length):
    """Before anything is read."""
    content = length.to_bytes(8, "little") + b"{}"
    assert f"a length of {length} bytes, but the file only 10 bytes" in _refused(tmp_path, content)


@pytest.mark.parametrize(
    "text", ["[", '"', '\\"', "\\", '{"a":', '"a",', " ", '{"__metadata__":{"":"",']
)
def test_a_header_at_its_bound_takes_no_more_memory_than_its_text(tmp_path, text):
    """Megabytes of brackets, strings or numbers are refused, and never parsed as a whole."""
    content = '{"' + text * (MAX_HEADER_BYTES // len(text) - 2)
    file = _write(tmp_path, with_header(content))
    tracemalloc.start()
    with pytest.raises(CheckpointError):
        read_header(file)
    assert tracemalloc.get_traced_memory()[1] < 2.5 * MAX_HEADER_BYTES
    tracemalloc.stop()
    message = _refused(tmp_path, with_header(" " * (MAX_HEADER_BYTES + 1)))
    assert f"expected 2 to {MAX_HEADER_BYTES}" in message
