"""Do the tensors of a header fit the file?"""

from collections.abc import Sequence
from itertools import pairwise

from worker.errors import GGUFError

from .header import Header
from .mapped_file import MappedFile
from .tensor_info import TensorInfo
from .wording import shown


def check_layout(file: MappedFile, header: Header) -> None:
    """Check that each tensor starts aligned, ends inside the file and overlaps no other.

    Gaps between tensors and bytes behind the last one are allowed.

    Raises:
        GGUFError: naming the tensor, its place and the file's size.
    """
    tensors = sorted(header.tensors, key=lambda info: info.offset)
    for info in tensors:
        _check_aligned(file, header, info)
    for before, info in pairwise(tensors):
        if before.offset + before.n_bytes > info.offset:
            raise GGUFError(
                f"{file.path}: tensor {shown(info.name)} begins at byte {info.offset}, inside "
                f"tensor {shown(before.name)} (bytes {_extent(before)}); the file is damaged: "
                "copy or download the file again"
            )
    _check_complete(file, tensors)


def _check_aligned(file: MappedFile, header: Header, info: TensorInfo) -> None:
    if info.offset % header.alignment:
        raise GGUFError(
            f"{file.path}: tensor {shown(info.name)} has the offset "
            f"{info.offset - header.data_start}, expected a multiple of the alignment "
            f"{header.alignment}; convert the model again"
        )


def _check_complete(file: MappedFile, tensors: Sequence[TensorInfo]) -> None:
    for info in tensors:
        if info.offset + info.n_bytes > file.size:
            # Tensors are sorted and do not overlap, so the last one ends last.
            expected = tensors[-1].offset + tensors[-1].n_bytes
            raise GGUFError(
                f"{file.path}: tensor {shown(info.name)} of dimensions "
                f"{list(reversed(info.shape))} ({info.qtype.name}) lies at bytes {_extent(info)}, "
                f"but the file ends before: its expected size is {expected} bytes, its real size "
                f"{file.size} bytes; copy or download the file again"
            )


def _extent(info: TensorInfo) -> str:
    return f"{info.offset} to {info.offset + info.n_bytes}"
