"""Reading a file's header field by field, each read checked against the file's end."""

import struct

from worker.errors import GGUFError

from .mapped_file import MappedFile

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class Cursor:
    """A position in a mapped file that never passes its end.

    Each method takes ``what``, the field's name, for the message of its GGUFError.
    """

    def __init__(self, file: MappedFile, position: int = 0) -> None:
        self.path = file.path
        self.size = file.size
        self.position = position
        self._data = file.view

    @property
    def remaining(self) -> int:
        """Bytes from here to the end of the file."""
        return self.size - self.position

    def skip(self, n_bytes: int, what: str) -> int:
        """Move on by ``n_bytes`` and return where they begin."""
        start = self.position
        if n_bytes > self.size - start:
            raise GGUFError(
                f"{self.path}: {what} has a length of {n_bytes} bytes at offset {start}, but the "
                f"file has only {self.size} bytes; it is cut off or damaged: copy or download the "
                "file again"
            )
        self.position = start + n_bytes
        return start

    def u32(self, what: str) -> int:
        """Read an unsigned 32-bit integer."""
        value: int = _U32.unpack_from(self._data, self.skip(4, what))[0]
        return value

    def u64(self, what: str) -> int:
        """Read an unsigned 64-bit integer."""
        value: int = _U64.unpack_from(self._data, self.skip(8, what))[0]
        return value

    def string(self, what: str) -> bytes:
        """Read a string: its length as 64 bits, then its bytes."""
        n_bytes = self.u64(f"the length of {what}")
        start = self.skip(n_bytes, what)
        return bytes(self._data[start : start + n_bytes])

    def skip_strings(self, count: int, what: str) -> int:
        """Walk over ``count`` strings, checking every length; return where the first begins."""
        start = position = self.position
        data, size, unpack = self._data, self.size, _U64.unpack_from
        last_length = size - 8
        for index in range(count):
            if position > last_length:
                self.position = position
                self.skip(8, f"the length of string {index} of {what}")
            (n_bytes,) = unpack(data, position)
            position += 8
            if n_bytes > size - position:
                self.position = position
                self.skip(n_bytes, f"string {index} of {what}")
            position += n_bytes
        self.position = position
        return start
