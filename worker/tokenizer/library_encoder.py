"""Encoding with the tokenizers library beside other threads."""

import os

import tokenizers

from worker.errors import RowError
from worker.gguf.wording import shown

# Texts come one by one: no pool of threads is needed, about which the library warns after a fork.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def encode_text(encoder: tokenizers.Tokenizer, text: str) -> list[int]:
    """Encode a text, without special tokens around it.

    ``encode`` would hold the interpreter for the whole text; a batch lets other threads run.

    Raises:
        RowError: the library gives up, over a pattern that backtracks without end, say.
    """
    try:
        [encoding] = encoder.encode_batch_fast([text], add_special_tokens=False)
    except BaseException as error:
        if not _is_of_library(error):
            raise
        raise RowError(f"the tokenizer cannot encode the text: {shown(str(error))}") from error
    return list(encoding.ids)


def _is_of_library(error: BaseException) -> bool:
    """It raises nothing more particular, and what panics is no Exception, of a hidden class."""
    return type(error) is Exception or type(error).__name__ == "PanicException"
