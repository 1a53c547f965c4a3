"""Where tensors may lie."""

import pytest

from worker.errors import GGUFError
from worker.gguf import GGUFFile

from . import gguf_bytes as g

F32 = 0


def _opened(folder, table, data):
    return GGUFFile.open(g.write(folder, g.gguf(tensors=table, data=data)))


@pytest.mark.parametrize("offset", [1, 4, 31, 33])
def test_offsets_are_multiples_of_the_alignment(tmp_path, offset):
    """Tensor, offset and alignment are named."""
    with pytest.raises(GGUFError, match=f"tensor a has the offset {offset}, expected a multiple"):
        _opened(tmp_path, [g.tensor("a", [4], F32, offset)], bytes(128))


@pytest.mark.parametrize("missing", [1, 16, 32])
def test_a_truncated_file_names_the_first_tensor_that_is_cut_and_both_sizes(tmp_path, missing):
    """The expected size is that of the whole file, not of the tensor."""
    table = [g.tensor("a", [8], F32, 0), g.tensor("b", [8], F32, 32), g.tensor("c", [8], F32, 64)]
    size = len(g.gguf(tensors=table))
    with pytest.raises(GGUFError) as caught:
        _opened(tmp_path, table, bytes(64 - missing))
    message = str(caught.value)
    assert "tensor b of dimensions [8] (F32)" in message
    assert (
        f"expected size is {size + 96} bytes, its real size {size + 64 - missing} bytes" in message
    )
    assert "copy or download the file again" in message


@pytest.mark.parametrize("offset", [2**40, 2**63, 2**64 - 32])
def test_an_offset_beyond_the_file_is_refused(tmp_path, offset):
    """Offsets near 2^64 do not wrap."""
    with pytest.raises(GGUFError, match=r"tensor a of dimensions .* the file ends before"):
        _opened(tmp_path, [g.tensor("a", [8], F32, offset)], bytes(64))


@pytest.mark.parametrize("offset", [0, 32])
def test_tensors_must_not_overlap(tmp_path, offset):
    """Both tensors are named, whichever comes first in the table."""
    table = [g.tensor("b", [8], F32, offset), g.tensor("a", [16], F32, 0)]
    with pytest.raises(GGUFError, match=r"tensor [ab] begins at byte .* inside tensor [ab]"):
        _opened(tmp_path, table, bytes(64))


def test_gaps_bytes_behind_and_any_order_are_allowed(tmp_path):
    """The table need not be in the order of the data, nor the data without gaps."""
    table = [g.tensor("b", [2], F32, 96), g.tensor("a", [2], F32, 0)]
    model = _opened(tmp_path, table, bytes(96) + b"\x01" * 8 + bytes(50))
    assert [[1] * 8] == model.raw("b").tolist()
    assert [[0] * 8] == model.raw("a").tolist()


def test_a_file_without_tensors_opens(tmp_path):
    """A vocabulary-only file has no data section."""
    assert {} == dict(_opened(tmp_path, [], b"").tensors)
