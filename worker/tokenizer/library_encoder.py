"""Encoding with the tokenizers library beside other threads."""

import os

import tokenizers

# Texts come one by one: no pool of threads is needed, about which the library warns after a fork.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def encode_text(encoder: tokenizers.Tokenizer, text: str) -> list[int]:
    """Encode a text, without special tokens around it.

    ``encode`` would hold the interpreter for the whole text; a batch lets other threads run.
    """
    [encoding] = encoder.encode_batch_fast([text], add_special_tokens=False)
    return list(encoding.ids)
