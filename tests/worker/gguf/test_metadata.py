"""Metadata: scanning, decoding and the typed getters."""

import struct

import numpy as np
import pytest

from worker.errors import GGUFError
from worker.gguf import GGUFFile

from . import gguf_bytes as g


def _opened(folder, *pairs):
    return GGUFFile.open(g.write(folder, g.gguf(list(pairs)))).metadata


SCALARS = [
    (g.U8, 255),
    (g.I8, -128),
    (g.U16, 65535),
    (g.I16, -32768),
    (g.U32, 2**32 - 1),
    (g.I32, -(2**31)),
    (g.U64, 2**64 - 1),
    (g.I64, -(2**63)),
    (g.F32, 0.5),
    (g.F64, 1e-300),
    (g.BOOL, True),
    (g.STRING, "grüße\n😀"),
]


@pytest.mark.parametrize(("kind", "value"), SCALARS)
def test_scalars_of_every_type_come_back(tmp_path, kind, value):
    """Each scalar type gives the Python value that was written, of the same type."""
    found = _opened(tmp_path, g.pair("k", kind, value))["k"]
    assert (type(value), value) == (type(found), found)


@pytest.mark.parametrize(("kind", "value"), SCALARS)
def test_arrays_of_every_type_come_back(tmp_path, kind, value):
    """Each element type gives a list of str or an array with the file's dtype."""
    found = _opened(tmp_path, g.array("k", kind, [value, value]))["k"]
    if kind == g.STRING:
        assert [value, value] == found
    else:
        assert [value, value] == found.tolist()
        assert np.dtype(g._FORMATS[kind]) == found.dtype


def test_empty_arrays_and_strings_come_back(tmp_path):
    """Nothing is a value, too."""
    pairs = [
        g.array("a", g.STRING, []),
        g.array("b", g.F32, []),
        g.pair("c", g.STRING, ""),
        g.array("d", g.STRING, ["", ""]),
    ]
    metadata = _opened(tmp_path, *pairs)
    assert ([], [], "", ["", ""]) == (
        metadata.array("a"),
        metadata.array("b").tolist(),
        metadata.text("c"),
        metadata.strings("d"),
    )


def test_array_lengths_are_known_without_decoding(tmp_path):
    """The length of an array of broken strings can be asked for."""
    metadata = _opened(tmp_path, g.array("a", g.STRING, [b"\xff"] * 3), g.pair("b", g.U8, 1))
    assert [3, None, None] == [metadata.array_length(key) for key in "abc"]


GETTERS = {
    "integer": ["an integer", g.pair("k", g.U32, 7), 7],
    "number": ["a number", g.pair("k", g.U32, 7), 7.0],
    "text": ["a string", g.pair("k", g.STRING, "x"), "x"],
    "boolean": ["a boolean", g.pair("k", g.BOOL, False), False],
    "strings": ["an array of strings", g.array("k", g.STRING, ["x"]), ["x"]],
    "numbers": ["an array of numbers", g.array("k", g.I32, [4]), [4]],
    "array": ["an array", g.array("k", g.I32, [4]), [4]],
}
ILL_TYPED = {
    "integer": [g.pair("k", g.BOOL, True), g.pair("k", g.F32, 2.0), g.array("k", g.U32, [1])],
    "number": [g.pair("k", g.BOOL, True), g.pair("k", g.STRING, "2.0")],
    "text": [g.pair("k", g.U8, 1), g.array("k", g.STRING, ["x"])],
    "boolean": [g.pair("k", g.U8, 1)],
    "strings": [g.pair("k", g.STRING, "x"), g.array("k", g.U8, [1])],
    "numbers": [g.pair("k", g.U8, 1), g.array("k", g.STRING, ["x"])],
    "array": [g.pair("k", g.U8, 1)],
}


@pytest.mark.parametrize("getter", GETTERS)
def test_getters_give_the_value(tmp_path, getter):
    """A value of the right type is returned as it is."""
    _, pair, value = GETTERS[getter]
    assert value == getattr(_opened(tmp_path, pair), getter)("k")


@pytest.mark.parametrize("getter", GETTERS)
def test_a_missing_key_is_an_error_that_names_file_and_key_or_the_default(tmp_path, getter):
    """Without a default a missing key raises; with one, even None, it is returned."""
    metadata = _opened(tmp_path)
    assert None is getattr(metadata, getter)("llama.x", None)
    with pytest.raises(GGUFError, match=r"model\.gguf: key llama\.x is missing"):
        getattr(metadata, getter)("llama.x")


@pytest.mark.parametrize(
    ("getter", "pair"), [(name, pair) for name, pairs in ILL_TYPED.items() for pair in pairs]
)
def test_an_ill_typed_key_is_an_error_that_names_both_types(tmp_path, getter, pair):
    """A value of another type is never converted, default or not."""
    expected = GETTERS[getter][0]
    with pytest.raises(GGUFError, match=f"key k is stored as .*, expected {expected}"):
        getattr(_opened(tmp_path, pair), getter)("k", None)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_must_be_finite(tmp_path, value):
    """NaN in a hyperparameter would become NaN in every logit."""
    with pytest.raises(GGUFError, match=r"key k is .*expected a finite number"):
        _opened(tmp_path, g.pair("k", g.F32, value)).number("k")


def test_a_string_that_is_not_utf8_is_reported_when_it_is_asked_for(tmp_path):
    """A broken string does no harm until it is needed; then key and place are named."""
    metadata = _opened(
        tmp_path, g.pair("a", g.STRING, b"\xff"), g.array("b", g.STRING, ["x", b"\xc3"])
    )
    with pytest.raises(GGUFError, match=r"key a is not valid UTF-8"):
        metadata.text("a")
    with pytest.raises(GGUFError, match="string 1 of key b is not valid UTF-8"):
        metadata.strings("b")


def test_a_key_that_is_not_utf8_is_refused(tmp_path):
    """A key nobody could ask for is damage."""
    with pytest.raises(GGUFError, match="metadata key 1 is not valid UTF-8"):
        _opened(tmp_path, g.pair(b"\xff\xfe", g.U8, 1))


def test_a_boolean_other_than_0_or_1_is_refused(tmp_path):
    """Single booleans and arrays of them are checked."""
    broken = g.text("k") + struct.pack("<IB", g.BOOL, 2)
    with pytest.raises(GGUFError, match="key k is a boolean with the value 2, expected 0 or 1"):
        _opened(tmp_path, broken)
    broken = g.text("k") + struct.pack("<IIQBB", g.ARRAY, g.BOOL, 2, 1, 7)
    with pytest.raises(GGUFError, match="value 7"):
        _opened(tmp_path, broken)


@pytest.mark.parametrize("kind", [13, 2**32 - 1])
def test_a_value_type_that_does_not_exist_is_refused(tmp_path, kind):
    """Key and number are named, for scalars and for elements."""
    with pytest.raises(GGUFError, match=f"type of key k is {kind}"):
        _opened(tmp_path, g.text("k") + struct.pack("<IQ", kind, 0))
    with pytest.raises(GGUFError, match=f"element type of key k is {kind}"):
        _opened(tmp_path, g.text("k") + struct.pack("<IIQ", g.ARRAY, kind, 0))


@pytest.mark.parametrize("kind", [g.U8, g.F64, g.STRING, g.BOOL])
@pytest.mark.parametrize("count", [2**20, 2**61, 2**63, 2**64 - 1])
def test_an_array_longer_than_the_file_is_refused(tmp_path, kind, count):
    """A promised length is checked before anything is read or allocated."""
    with pytest.raises(GGUFError, match=f"key k promises {count} elements.*too small"):
        _opened(tmp_path, g.array("k", kind, [], count))


@pytest.mark.parametrize("length", [2**20, 2**63, 2**64 - 1])
def test_a_string_longer_than_the_file_is_refused(tmp_path, length):
    """Scalars, elements of arrays and keys are checked alike."""
    huge = struct.pack("<Q", length)
    with pytest.raises(GGUFError, match=f"key k has a length of {length} bytes"):
        _opened(tmp_path, g.text("k") + struct.pack("<I", g.STRING) + huge)
    with pytest.raises(GGUFError, match=f"string 0 of key k has a length of {length} bytes"):
        _opened(tmp_path, g.text("k") + struct.pack("<IIQ", g.ARRAY, g.STRING, 1) + huge)
    with pytest.raises(GGUFError, match=f"metadata key 1 has a length of {length} bytes"):
        _opened(tmp_path, huge)


def test_a_name_with_control_codes_is_shown_printable(tmp_path):
    """A file cannot send escape sequences to the user's terminal."""
    with pytest.raises(GGUFError) as caught:
        _opened(tmp_path, g.text("\x1b[2J\n") + struct.pack("<I", 13))
    assert str(caught.value).isprintable()
    assert "\\x1b[2J\\n" in str(caught.value)
