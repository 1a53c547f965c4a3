"""Token by token to text."""

import codecs
from collections.abc import Callable


class Detokenizer:
    """Turns the tokens of one completion into text as they come.

    A character whose UTF-8 bytes are spread over tokens appears with its last byte; bytes that
    are not UTF-8 become U+FFFD. All pushes and ``finish`` joined are what decoding all the
    bytes at once with ``errors="replace"`` gives.
    """

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        """Start a completion.

        Args:
            piece: the bytes of a token; empty for control tokens.
        """
        self._piece = piece
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """Take a token; give the text that is complete now."""
        return self._decoder.decode(self._piece(token_id))

    def finish(self) -> str:
        """Give what was held back: U+FFFD for an unfinished character, else nothing."""
        return self._decoder.decode(b"", final=True)
