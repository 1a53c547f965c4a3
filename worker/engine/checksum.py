"""A checksum over generated tokens that does not depend on the order of the rows."""

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np

from .request import RowId

_MODULUS = 1 << 64


class TokenChecksum:
    """Sum modulo 2**64 of one hash a row, over its row id and token ids.

    A sum, not an exclusive or, under which two equal rows would cancel out. Checksums of parts
    add up to that of the whole.
    """

    def __init__(self, value: int = 0) -> None:
        self.value = value % _MODULUS

    def add(self, row_id: RowId, token_ids: Iterable[int]) -> None:
        """Count one row in; a row without tokens counts too."""
        tokens = np.fromiter(token_ids, "<i8")
        digest = blake2b(np.array(row_id, "<i8").tobytes() + tokens.tobytes(), digest_size=8)
        self.value = (self.value + int.from_bytes(digest.digest(), "little")) % _MODULUS

    def merge(self, other: "TokenChecksum") -> None:
        """Count in all rows of another checksum."""
        self.value = (self.value + other.value) % _MODULUS

    def take_out(self, other: "TokenChecksum") -> None:
        """Count out all rows of another checksum, which were counted in before."""
        self.value = (self.value - other.value) % _MODULUS

    def __str__(self) -> str:
        return f"{self.value:016x}"
