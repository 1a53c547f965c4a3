"""Headers of packed files."""

import io
from dataclasses import replace

import pytest

from worker import packed_index
from worker.packed_index import PackedIndex, UnsoundPackedFileError, read_index

from .packed_models import NAMES, open_model


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def index(tmp_path):
    """That of a small model."""
    return PackedIndex.of(open_model(tmp_path), NAMES)


def test_tensors_lie_on_pages_one_behind_the_other(index):
    """In the order asked for, none over another."""
    assert NAMES == tuple(entry.name for entry in index.entries)
    end = 0
    for entry in index.entries:
        assert entry.offset % 4096 == 0
        assert 0 <= entry.offset - end < 4096
        assert entry.n_bytes == entry.layout.packed_bytes(entry.rows, entry.columns)
        end = entry.offset + entry.n_bytes
    assert end == index.n_bytes
    assert len(index.header) % 4096 == 0
    assert len(index.header) + end == index.file_bytes


def test_a_header_is_read_as_it_was_written(index):
    """Every field of it."""
    assert index == read_index(io.BytesIO(index.header), index.file_bytes)


def test_the_key_names_the_content(index, tmp_path, monkeypatch):
    """Another model, other tensors, another layout: another key. Another name: the same one."""
    same = PackedIndex.of(open_model(tmp_path / "b", name="other.gguf"), NAMES)
    assert (index.key, True) == (same.key, same.has_content_of(index))
    others = [
        PackedIndex.of(open_model(tmp_path, seed=1), NAMES),
        PackedIndex.of(open_model(tmp_path), NAMES[:-1]),
        PackedIndex.of(open_model(tmp_path), NAMES[::-1]),
        replace(index, layout_version=index.layout_version + 1),
    ]
    monkeypatch.setattr(packed_index, "_FORMAT_VERSION", 99)
    others.append(replace(index))
    assert 6 == len({index.key, *(other.key for other in others)})
    assert not any(other.has_content_of(index) for other in others[:-1])


def _flip(header, at):
    return header[:at] + bytes([header[at] ^ 1]) + header[at + 1 :]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda h: b"", "does not begin"),
        (lambda h: h[:50], "does not begin"),
        (lambda h: b"GGUF" + h[4:], "does not begin"),
        (lambda h: _flip(h, 8), "its version is 0, expected 1"),
        (lambda h: _flip(h, 14), "its index promises"),
        (lambda h: _flip(h, 16), "bytes, expected"),
        (lambda h: _flip(h, 24), "header is damaged"),
        (lambda h: _flip(h, 300), "header is damaged"),
        (lambda h: h[:200], "header is damaged"),
    ],
)
def test_a_damaged_header_is_told(index, damage, reason):
    """Magic, version, lengths, checksum and index."""
    with pytest.raises(UnsoundPackedFileError, match=reason):
        read_index(io.BytesIO(damage(index.header)), index.file_bytes)


def test_a_file_of_another_size_is_told(index):
    """One byte less or more."""
    for n_bytes in (index.file_bytes - 1, index.file_bytes + 1):
        with pytest.raises(UnsoundPackedFileError, match=f"{n_bytes} bytes, expected"):
            read_index(io.BytesIO(index.header), n_bytes)
