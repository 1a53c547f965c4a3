"""The counts, the keys and the tensor table."""

import pytest

from worker.errors import GGUFError, UnsupportedModelError
from worker.gguf import SUPPORTED_TYPES, GGUFFile

from . import gguf_bytes as g

F32, Q8_0, Q8_K = 0, 8, 15


def _refused(folder, content, error=GGUFError):
    """The message of the refusal; it is one line."""
    with pytest.raises(error) as caught:
        GGUFFile.open(g.write(folder, content))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("count", [2**16, 2**32, 2**60, 2**63, 2**64 - 1])
def test_counts_that_the_file_cannot_hold_are_refused(tmp_path, count):
    """Both counts are checked against the size before the first record is read."""
    for counts, name in (((count, 1), "tensor count"), ((0, count), "metadata key count")):
        message = _refused(tmp_path, g.gguf(counts=counts))
        assert f"the {name} is {count}, but the file is too small for it" in message


def test_a_table_that_is_cut_off_names_the_field(tmp_path):
    """One tensor more than there is: its name lies behind the end."""
    content = g.gguf(tensors=[g.tensor("a", [8], F32, 0)], counts=(2, 1), alignment=1)
    assert "the length of tensor 1" in _refused(tmp_path, content)


def test_a_key_that_is_there_twice_is_refused_with_both_values(tmp_path):
    """Neither the first nor the last wins; arrays are shown shortened."""
    pairs = [g.pair("k", g.U32, 256), g.pair("k", g.STRING, "x" * 1000)]
    message = _refused(tmp_path, g.gguf(pairs))
    assert "key k is there twice, with the values 256 and xxxx" in message
    assert len(message) < 400


def test_a_tensor_that_is_there_twice_is_refused(tmp_path):
    """Names are unique."""
    table = [g.tensor("a", [8], F32, 0), g.tensor("a", [4], F32, 32)]
    message = _refused(tmp_path, g.gguf(tensors=table, data=bytes(64)))
    assert "tensor a is there twice, with the shapes (8,) and (4,)" in message


@pytest.mark.parametrize("dimensions", [[], [1, 1, 1, 1, 1], [1] * 100])
def test_tensors_have_one_to_four_dimensions(tmp_path, dimensions):
    """The number found is named."""
    content = g.gguf(tensors=[g.tensor("a", dimensions, F32, 0)], data=bytes(64))
    assert f"tensor a has {len(dimensions)} dimensions, expected 1 to 4" in _refused(
        tmp_path, content
    )


@pytest.mark.parametrize(
    "dimensions", [[0], [8, 0], [2**32, 2**32, 2], [2**63], [2**64 - 1] * 4, [2**32, 2**31]]
)
def test_dimensions_that_are_zero_or_wrap_are_refused(tmp_path, dimensions):
    """The product is formed without wrapping at 64 bits."""
    content = g.gguf(tensors=[g.tensor("a", dimensions, F32, 0)], data=bytes(64))
    assert f"tensor a has the dimensions {dimensions}" in _refused(tmp_path, content)


@pytest.mark.parametrize("number", [4, 5, 31, 36, 153, 2**32 - 1])
def test_a_type_number_that_is_not_known_is_refused_with_the_types_that_are(tmp_path, number):
    """Tensor, number and every supported type are named."""
    content = g.gguf(tensors=[g.tensor("a", [256], number, 0)], data=bytes(1024))
    message = _refused(tmp_path, content, UnsupportedModelError)
    assert f"tensor a is of type {number}, which is not known" in message
    assert [] == [qtype.name for qtype in SUPPORTED_TYPES if qtype.name not in message]


def test_a_known_type_that_cannot_be_dequantised_is_refused_unless_asked_for(tmp_path):
    """To look at such a file is possible, to run it is not."""
    content = g.gguf(tensors=[g.tensor("a", [256], Q8_K, 0)], data=bytes(320))
    message = _refused(tmp_path, content, UnsupportedModelError)
    assert "tensor a is Q8_K (type 15); supported types: F32, " in message
    assert "Re-quantise with one of these" in message
    opened = GGUFFile.open(tmp_path / "model.gguf", any_type=True)
    assert "Q8_K" == opened.tensors["a"].qtype.name


@pytest.mark.parametrize("columns", [1, 31, 33, 48])
def test_rows_are_whole_quant_blocks(tmp_path, columns):
    """Name, row length, block length and type are named, however many values there are."""
    content = g.gguf(tensors=[g.tensor("a", [columns, 32], Q8_0, 0)], data=bytes(4096))
    message = _refused(tmp_path, content)
    assert f"tensor a has rows of {columns} values" in message
    assert "no multiple of the 32 values of a Q8_0 quant block" in message


@pytest.mark.parametrize("alignment", [0, 3, 24, 33, 2**32 - 1])
def test_an_alignment_that_is_no_power_of_two_is_refused(tmp_path, alignment):
    """Key and value are named."""
    message = _refused(tmp_path, g.gguf([g.pair("general.alignment", g.U32, alignment)]))
    assert f"key general.alignment is {alignment} (uint32), expected a power of two" in message


@pytest.mark.parametrize(
    "pair",
    [
        g.pair("general.alignment", g.STRING, "32"),
        g.pair("general.alignment", g.F32, 32.0),
        g.pair("general.alignment", g.U64, 64),
        g.array("general.alignment", g.U32, [32]),
    ],
)
def test_an_alignment_of_another_type_is_refused(tmp_path, pair):
    """The format says uint32; readers that skip another type would misplace all data."""
    assert "general.alignment" in _refused(tmp_path, g.gguf([pair]))


@pytest.mark.parametrize("alignment", [1, 8, 32, 64, 4096])
def test_data_is_found_at_every_alignment(tmp_path, alignment):
    """The data section begins at the next multiple of the alignment."""
    content = g.gguf(
        [g.pair("general.alignment", g.U32, alignment)],
        [g.tensor("a", [4], 24, 0)],  # I8
        b"\x01\x02\x03\x04",
        alignment=alignment,
    )
    opened = GGUFFile.open(g.write(tmp_path, content), any_type=True)
    assert [[1, 2, 3, 4]] == opened.raw("a").tolist()


@pytest.mark.parametrize(
    ("architecture", "fault"),
    [
        (b"", "key general.architecture is missing"),
        (g.pair("general.architecture", g.U32, 1), "stored as uint32, expected a string"),
        (g.pair("general.architecture", g.STRING, ""), "key general.architecture is empty"),
        (g.pair("general.architecture", g.STRING, b"\xff"), "is not valid UTF-8"),
    ],
)
def test_the_architecture_is_required(tmp_path, architecture, fault):
    """Without it nothing else can be understood."""
    assert fault in _refused(tmp_path, g.gguf(architecture=architecture))


def test_a_tensor_name_that_is_not_utf8_is_refused(tmp_path):
    """The tensor is told by its number."""
    content = g.gguf(tensors=[g.tensor(b"\xff", [8], F32, 0)], data=bytes(32))
    assert "the name of tensor 0 is not valid UTF-8" in _refused(tmp_path, content)


@pytest.mark.parametrize("alignment", [1, 32])
def test_a_table_longer_than_the_count_is_refused(tmp_path, alignment):
    """Data sought behind the last tensor counted would be read from the rest of the table."""
    table = [g.tensor("a", [8], F32, 0), g.tensor("b", [8], F32, 32)]
    content = g.gguf(tensors=table, data=bytes(64), counts=(1, 1), alignment=alignment)
    message = _refused(tmp_path, content)
    assert "the tensor count is 1, but another tensor, b, follows the last one" in message


@pytest.mark.parametrize("filling", [b"\0", b"\x01", b"a", b"\xff"])
def test_no_tensor_is_seen_in_padding(tmp_path, filling):
    """Whatever a writer fills up with, and however short the rest of the file is."""
    head = g.gguf(tensors=[g.tensor("a", [1], F32, 0)], alignment=1)
    path = g.write(tmp_path, head + filling * (-len(head) % 32) + bytes(4))
    assert ["a"] == list(GGUFFile.open(path).tensors)


@pytest.mark.parametrize(
    ("dimensions", "shape"),
    [([8, 4, 1], (4, 8)), ([8, 4, 1, 1], (4, 8)), ([8, 1, 1], (1, 8)), ([8, 2, 2], (2, 2, 8))],
)
def test_dimensions_of_one_at_the_end_are_filling(tmp_path, dimensions, shape):
    """A matrix with two more dimensions of 1 is a matrix."""
    content = g.gguf(tensors=[g.tensor("a", dimensions, F32, 0)], data=bytes(128))
    assert shape == GGUFFile.open(g.write(tmp_path, content)).tensor("a").shape
